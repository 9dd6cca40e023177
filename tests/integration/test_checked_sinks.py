"""`headwater check` of the way out: a server that is off, a row store that forgets, Spark without our jar."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import pytest
from elasticsearch import Elasticsearch

from cdc.pipeline import Pipeline, load
from connectors.preflight import Answer
from deploy.local.endpoints import Endpoints
from operations.check.sinks import CLASSES, SINKS, checked_sinks
from operations.state.folder import register_of
from spark.machine.class_archive import VARIABLE
from spark.machine.jars import OWN_JAR, OWN_SOURCES, REQUIRED_JARS
from tests.support.redis_server import redis_servers

pytestmark = pytest.mark.stack

FILE = """
version: 1
name: p
source: {{host: 127.0.0.1, port: 1, database: d, user: u, password: x, tables: [public.t, public.r, public.o]{outbox}}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{v: {{root: t, refs: {{r: {{table: r, on: {{r: id}}}}}}}}{view}}}
sinks: {{cache: {{type: redis, url: "{sink}", view: v}}}}
row_store: {{url: "{store}"}}
engine: {{state_dir: {folder}}}
"""
NOBODY = "redis://127.0.0.1:1/0"


def made(folder: Path, sink: str, store: str, outbox: str = "", view: str = "") -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(FILE.format(folder=folder / "state", sink=sink, store=store, outbox=outbox, view=view))
    return load(path)


def said(answer: Answer) -> list[tuple[str, str]]:
    return [(one.level.value, one.about) for one in answer.findings]


def test_each_server_of_the_way_out_is_asked(tmp_path: Path) -> None:
    with redis_servers(tmp_path) as server:
        cache, store = server(), server("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
        [answer] = checked_sinks(made(tmp_path, cache, cache))
        assert answer.check is SINKS and answer.state == "ok"
        [answer] = checked_sinks(made(tmp_path, cache, store))
        assert said(answer) == [("error", "row_store")] and "allkeys-lru" in answer.findings[0].message
        [answer] = checked_sinks(made(tmp_path, NOBODY, cache))
        assert said(answer) == [("warning", "sink cache")]
        [answer] = checked_sinks(made(tmp_path, cache, NOBODY))
        assert said(answer) == [("warning", "row_store")] and "127.0.0.1:1" in answer.findings[0].message


def test_a_managed_server_that_forbids_config_may_be_the_row_store(tmp_path: Path) -> None:
    """`check` and each start of a joined view ended in an error without any way out."""
    with redis_servers(tmp_path) as server:
        keeps, evicts = (
            server("--rename-command", "CONFIG", "", "--maxmemory", "100mb", "--maxmemory-policy", policy)
            for policy in ("noeviction", "allkeys-lru")
        )
        [answer] = checked_sinks(made(tmp_path, keeps, keeps))
        assert answer.state == "ok"
        [answer] = checked_sinks(made(tmp_path, keeps, evicts))
        assert said(answer) == [("error", "row_store")] and "allkeys-lru" in answer.findings[0].message


def test_an_alias_that_does_not_lead_to_what_is_kept(tmp_path: Path, stack: Endpoints) -> None:
    """Nothing fails and nothing lags there, and readers find nothing."""
    name = f"astray_{os.getpid()}"
    search = f'type: elasticsearch, url: "{stack.elasticsearch_url}", index: {name}, view: v'
    path = tmp_path / "pipeline.yaml"
    text = FILE.format(folder=tmp_path / "state", sink="", store=stack.redis_store_url, outbox="", view="")
    path.write_text(text.replace('cache: {type: redis, url: "", view: v}', f"search: {{{search}}}"))
    pipeline = load(path)
    with Elasticsearch(stack.elasticsearch_url) as client:
        try:
            client.indices.create(index=f"{name}_g1", aliases={name: {}})
            client.indices.create(index=f"{name}_g1_fences")
            register_of(pipeline, "search").generation(1).note_views(["v"])
            assert next(checked_sinks(pipeline)).state == "ok"
            client.indices.delete_alias(index=f"{name}_g1", name=name)
            answer = next(checked_sinks(pipeline))
            assert said(answer) == [("error", "sink search")]
            assert "no generation of it, and generation 1 is kept" in answer.findings[0].message
        finally:
            client.indices.delete(index=f"{name}_g1,{name}_g1_fences", ignore_unavailable=True)


def test_a_view_that_keeps_a_state_needs_our_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in REQUIRED_JARS:
        (jars / f"{name}.jar").touch()
    monkeypatch.setenv("HEADWATER_SPARK_JARS", str(jars))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere" / "spark.jsa"))
    fold = ", f: {root: o, events: [a], fold: {initial: \"named_struct('n', 0)\", step: state}}"
    pipeline = made(tmp_path, NOBODY, NOBODY, ", outbox: {table: public.o, types: [a]}", fold)
    _, answer = checked_sinks(pipeline)
    assert answer.check is CLASSES and said(answer) == [("error", "spark")] and OWN_JAR in answer.findings[0].message
    for of, state in (("another", "warning"), (OWN_SOURCES, "ok")):
        with ZipFile(jars / OWN_JAR, "w") as packed:
            packed.comment = f"- {of}".encode()
        _, answer = checked_sinks(pipeline)
        assert answer.check is CLASSES and answer.state == state
