"""`headwater verify` of joined views: real sinks, against Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from elasticsearch import Elasticsearch

from cdc.catalogue import Catalogue, Table
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline
from cdc.resolve.views import resolve_views
from operations.held import held_under
from operations.opened import Opened
from operations.state.folder import register_of
from operations.verify.report import verified
from operations.verify.verifier import Asked
from sinks.configure import sink_config
from sinks.contract import Item, Outcome, Sink
from sinks.factory import open_sink
from tests.support.servers import servers
from tests.support.source import SourceDatabase
from tests.support.truth import fill, origin, people_database, tables_of
from truth.columns import NO_DOCUMENT
from truth.expected import expected
from truth.joins import documents
from truth.rows import read_rows, snapshot

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def people() -> Iterator[SourceDatabase]:
    with people_database() as database:
        yield database


@pytest.fixture(scope="module")
def tables(people: SourceDatabase) -> dict[str, Table]:
    return tables_of(people)


VIEWS: dict[str, Any] = {
    "shop_card": {
        "root": "shops",
        "children": {
            "team": {
                "table": "staff",
                "on": {"region": "region", "number": "number"},
                "columns": ["id", "weight"],
                "order_by": "pay desc, name",
                "limit": 3,
                "refs": {"chief": {"table": "staff", "on": {"boss": "id"}, "columns": ["name", {"weight": "heavy"}]}},
            }
        },
        "aggregates": {
            "lightest": {"table": "staff", "on": {"region": "region", "number": "number"}, "value": "min(weight)"},
            "pays": {"table": "staff", "on": {"region": "region", "number": "number"}, "value": "sum(pay)"},
        },
    }
}


def joined_pipeline(people: SourceDatabase, folder: Path) -> Pipeline:
    """One joined view in two key spaces and an index."""
    plain = people.pipeline("public.staff")
    people.pipelines.clear()
    raw = {**plain.model_dump(mode="json", exclude_defaults=True), "views": VIEWS, "engine": {"state_dir": str(folder)}}
    raw["source"] = {**raw["source"], "tables": ["public.*"], "password": people.password}
    raw["source"]["setup_password"] = people.password
    raw["row_store"] = {"url": people.endpoints.redis_store_url}
    cache = {"type": "redis", "url": people.endpoints.redis_cache_url, "view": "shop_card"}
    raw["sinks"] = {
        "one": {**cache, "key_prefix": f"{people.name}:1:"},
        "two": {**cache, "key_prefix": f"{people.name}:2:"},
        "search": {
            "type": "elasticsearch",
            "url": people.endpoints.elasticsearch_url,
            "view": "shop_card",
            "index": people.name,
        },
    }
    return Pipeline.model_validate(raw)


@contextmanager
def opened(pipeline: Pipeline, name: str, view: JoinedView) -> Iterator[Sink]:
    sink = open_sink(sink_config(name, pipeline.sinks[name], [view], {}, pipeline=pipeline.name))
    try:
        sink.setup()
        yield sink
    finally:
        sink.close()


def test_verify_compares_joined_views(
    people: SourceDatabase, tables: dict[str, Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real sinks: equal at first, whatever way a real is spelled; then each kind of difference is named."""
    servers().up(["redis-cache", "elasticsearch"])
    fill(people, 3, staff=60)
    # A shop of its own to be changed deep inside, whatever the seed gave.
    people.execute(
        "INSERT INTO shops VALUES ('z', 1, 'last', NULL)",
        "INSERT INTO staff (id, name, boss, region, number, weight) VALUES (900, 'a', 900, 'z', 1, 1e-45)",
    )
    pipeline = joined_pipeline(people, tmp_path)
    [view] = resolve_views(pipeline, Catalogue({t.qualified: t for t in tables.values()}), "one")
    assert isinstance(view, JoinedView)
    with snapshot(origin(people)) as connection:
        rows = {n: chain.from_iterable(read_rows(connection, t)) for n, t in view.tree.tables().items()}
        found = {identity: orjson.dumps(document) for identity, document in documents(view.tree, view.key, rows)}
    spelled = {identity: document.replace(b"1e-45", b"1.4e-45") for identity, document in found.items()}
    assert spelled["z|1"] != found["z|1"]
    try:
        for name in pipeline.sinks:
            with opened(pipeline, name, view) as sink:
                written = sink.write(view.name, [Item(key, 1, document) for key, document in spelled.items()])
                assert {answer.outcome for answer in written} == {Outcome.WRITTEN}
        assert refreshed(pipeline)
        readings = counted(monkeypatch)
        report = verified(pipeline, Asked())
        assert report["equal"], report
        assert readings == ["whole"], "three sinks, one view: Postgres is read once"
        assert report["source_rows"] == {"public.shops": len(found)}
        assert [sink["views"][0]["compared"] for sink in report["sinks"]] == [len(found)] * 3
        spoil(pipeline, view, found)
        refreshed(pipeline)
        readings.clear()
        report = verified(pipeline, Asked(["one", "search"], wait=1.5))
        assert not report["equal"]
        for sink in report["sinks"]:
            [shown] = sink["views"]
            assert (shown["changed"], shown["missing"], shown["extra"]) == (["z|1"], ["a|0"], ["nowhere|9"])
            assert shown["caught_up"] is False, "no flow has ever run"
            assert shown["columns"] == {"z|1": ["team[0].chief.name"]}, "no row's values, unless they are asked for"
        assert readings.count("whole") == 1 and readings.count("keys") >= 4, "a look again reads the differing keys"
        (told,) = verified(pipeline, Asked(["one"], values=True))["sinks"][0]["views"]
        assert told["columns"] == {"z|1": [{"field": "team[0].chief.name", "sink": "somebody", "expected": "a"}]}
    finally:
        clean(pipeline, people)


def test_what_is_no_document_is_a_difference_like_another(
    people: SourceDatabase, tables: dict[str, Table], tmp_path: Path
) -> None:
    """A value that is no JSON, one of another type, a name that is no text: named, and the other sinks are told of."""
    servers().up(["redis-cache"])
    fill(people, 3, staff=60)
    people.execute("INSERT INTO shops SELECT 'y', n, 'shop', NULL FROM generate_series(1, 3) n")
    pipeline = joined_pipeline(people, tmp_path)
    [view] = resolve_views(pipeline, Catalogue({t.qualified: t for t in tables.values()}), "one")
    assert isinstance(view, JoinedView)
    with snapshot(origin(people)) as connection:
        rows = {n: chain.from_iterable(read_rows(connection, t)) for n, t in view.tree.tables().items()}
        found = {identity: orjson.dumps(document) for identity, document in documents(view.tree, view.key, rows)}
    try:
        for name in ("one", "two"):
            with opened(pipeline, name, view) as sink:
                sink.write(view.name, [Item(key, 1, document) for key, document in found.items()])
        first, second, third = sorted(found)[:3]
        prefix = f"{people.name}:1:{view.name}:".encode()
        with redis.Redis.from_url(pipeline.sinks["one"].url) as client:
            client.set(prefix + first.encode(), b'{"aid":')
            client.delete(prefix + second.encode())
            client.rpush(prefix + second.encode(), "x")
            client.set(f"hw:v:{{{people.name}:1:{view.name}:{third}}}", "none")
            client.set(prefix + b"\xff\xfe", b"{}")
            client.set(prefix + b"one part", b"{}")
        report = verified(pipeline, Asked(["one", "two"], wait=0.2))
        (one,), (two,) = (sink["views"] for sink in report["sinks"])
        assert sorted(one["changed"]) == [first, second, third]
        assert sorted(one["extra"]) == ["\\xff\\xfe", "one part"] and one["differences"] == 5
        assert one["columns"] == {key: [NO_DOCUMENT] for key in (first, second, third)}
        assert two["equal"] and not two["columns"] and two["compared"] == len(found)
        one_of = Opened(pipeline, register_of(pipeline, "one").generation(1), [view], 0)
        assert held_under(one_of, view, first).document == {NO_DOCUMENT: '{"aid":'}
    finally:
        with redis.Redis.from_url(pipeline.sinks["one"].url) as client:
            for pattern in (f"{people.name}:*", f"hw:v:{{{people.name}:*"):
                for key in client.scan_iter(match=pattern, count=1000):
                    client.delete(key)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The readings of whole views from now on, and those of some keys; each is made as ever."""
    made: list[str] = []

    def counting(view: Any, connection: Any, spark: Any, ids: Any = None, **more: Any) -> Any:
        made.append("whole" if ids is None else "keys")
        return expected(view, connection, spark, ids, **more)

    monkeypatch.setattr("operations.verify.verifier.expected", counting)
    monkeypatch.setattr("operations.verify.looks.expected", counting)
    return made


def spoil(pipeline: Pipeline, view: JoinedView, found: dict[str, bytes]) -> None:
    """In two sinks: a name two levels down, a document too few and one too many."""
    wrong = orjson.loads(found["z|1"])
    wrong["team"][0]["chief"]["name"] = "somebody"
    for name in ("one", "search"):
        with opened(pipeline, name, view) as sink:
            items = [Item("z|1", 2, orjson.dumps(wrong)), Item("a|0", 2, None), Item("nowhere|9", 2, found["z|1"])]
            assert {answer.outcome for answer in sink.write(view.name, items)} == {Outcome.WRITTEN}


def refreshed(pipeline: Pipeline) -> bool:
    with Elasticsearch(pipeline.sinks["search"].url, request_timeout=60) as client:
        client.indices.refresh(index=f"{pipeline.sinks['search'].index}*")
    return True


def clean(pipeline: Pipeline, people: SourceDatabase) -> None:
    with Elasticsearch(pipeline.sinks["search"].url, request_timeout=60) as client:
        names = f"{people.name},{people.name}_g*"
        for index in client.indices.get(index=names, ignore_unavailable=True, expand_wildcards="all").body:
            client.indices.delete(index=index)
    with redis.Redis.from_url(pipeline.sinks["one"].url) as client:
        for pattern in (f"{people.name}:*", f"hw:v:{{{people.name}:*"):
            for key in client.scan_iter(match=pattern, count=1000):
                client.delete(key)
