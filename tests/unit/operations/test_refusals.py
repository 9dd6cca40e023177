"""A sink's trouble is its own: the others run and are verified, and the message names the command that mends it."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, HeadwaterError, LogGap, SinkRefused, SinkUnavailable, StateError
from cdc.pipeline import Pipeline, loads
from operations import opened as build
from operations.run import engine, session
from operations.run.refusals import Refusals
from operations.state.folder import register_of
from operations.status.alive import ailments
from operations.status.sinks import generation_status
from operations.verify.verifier import Asked, Verifier
from spark.disk.lease import EXPIRES_SECONDS, Holder
from spark.disk.made_of import define
from tests.support.promoted import promoted

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders, public.customers]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views:
  order: {root: orders}
  customer: {root: customers, columns: [id, name]}
sinks:
  search: {type: elasticsearch, url: "http://127.0.0.1:1", view: order}
  cache: {type: redis, url: "redis://127.0.0.1:1", view: customer}
  both: {type: redis, url: "redis://127.0.0.1:1", views: [order, customer], key_prefix: "both:"}
engine: {state_dir: STATE}
"""


def table(name: str, *columns: str) -> Table:
    return Table("public", name, tuple(Column(column, "text", "text") for column in columns), (columns[0],))


def tables(*found: Table) -> Catalogue:
    return Catalogue({one.qualified: one for one in found})


WHOLE = tables(table("orders", "id", "at"), table("customers", "id", "name"))
# What may have become of a table while nothing ran.
BROKEN = {
    "column": tables(table("orders", "id", "at"), table("customers", "id")),
    "table": tables(table("orders", "id", "at")),
    "key": tables(table("orders", "id", "at"), Table("public", "customers", WHOLE.tables["public.customers"].columns)),
}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


def make(pipeline: Pipeline, sink: str, number: int, stage: Any) -> None:
    """A generation that has written something."""
    register = register_of(pipeline, sink)
    while max(entry.number for entry in register.entries()) < number:
        register.create("test")
    register.move(number, stage)
    generation = register.generation(number)
    define(generation, pipeline, [])
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Engines of this test, whose servers and flows are none: what is tried and refused is what is looked at."""
    made: list[Any] = []
    spark = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(build, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    monkeypatch.setattr(engine, "read_snapshot_lsn", lambda _pipeline: 1)
    monkeypatch.setattr(session, "open_spark", lambda *_: spark)
    monkeypatch.setattr(engine, "flows_of", lambda *_: [])
    yield made
    for one in made:
        one.close()


def retired_as_it_opens(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Readers see generation 1 of the cache, and 2 is retired while 1 is opened; the folder that 2 had."""
    register, open_one = register_of(pipeline, "cache"), build.open_generation
    make(pipeline, "cache", 1, "living")
    make(pipeline, "cache", 2, "ready")

    def slow(pipeline: Pipeline, catalogue: Catalogue, sink: str, number: int) -> Any:
        if (sink, number) == ("cache", 1):
            shutil.rmtree(register.generation(2).folder)
            register.remove(2)
        return open_one(pipeline, catalogue, sink, number)

    monkeypatch.setattr(engine, "open_generation", slow)
    return register.generation(2).folder


def test_one_that_was_retired_since_the_register_was_read_is_not_begun_anew(
    pipeline: Pipeline, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was filled from offset 0, into a target that nothing of ours knew any more: neither `drop` nor `erase`."""
    folder = retired_as_it_opens(pipeline, monkeypatch)
    run = open_all(pipeline, WHOLE, opened)
    assert ("cache", 2) not in {(one.sink, one.number) for one in run.builds} and not folder.exists()


def test_a_run_at_work_goes_on_without_one_that_was_retired_as_it_was_taken_up(
    pipeline: Pipeline, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_all(pipeline, WHOLE, opened)
    folder = retired_as_it_opens(pipeline, monkeypatch)
    run._let_go(next(one for one in run.builds if one.sink == "cache"))
    assert run.follow() == ["cache, generation 1: kept up to date from now on"]
    assert not folder.exists() and run.follow() == [] and not run.refused.lines


def test_one_that_is_being_retired_is_not_opened_and_keeps_what_it_has(pipeline: Pipeline, opened: list[Any]) -> None:
    make(pipeline, "cache", 2, "ready")
    register = register_of(pipeline, "cache")
    register.begin_retiring(2)
    with pytest.raises(StateError, match="generation 2 was retired meanwhile"):
        build.open_generation(pipeline, WHOLE, "cache", 2)
    assert register.generation(2).started and not register.generation(2).lease.busy()


def open_all(pipeline: Pipeline, catalogue: Catalogue, opened: list[Any]) -> engine.Engine:
    made = engine.open_engine(pipeline, catalogue)
    opened.append(made)
    return made


@pytest.mark.parametrize("what", BROKEN)
def test_the_others_run_and_status_says_what_mends_the_one(pipeline: Pipeline, opened: list[Any], what: str) -> None:
    for sink in pipeline.sinks:
        make(pipeline, sink, 1, "living")
    run = open_all(pipeline, BROKEN[what], opened)
    assert [build.sink for build in run.builds] == ["search"]
    for sink in ("cache", "both"):
        status = generation_status(register_of(pipeline, sink).generation(1), None)
        assert status["state"] == "failed"
        assert f"`headwater rebuild shop.yaml {sink} --auto`" in status["last_error"]
        assert "public.customers" in status["last_error"] or "customers is not" in status["last_error"]
        assert not register_of(pipeline, sink).generation(1).lease.busy()
    assert ailments(pipeline, ["cache"]) == ["cache: refused"]
    assert len(run.refused.lines) == 2


def test_a_run_in_a_container_that_was_killed_and_started_again_waits_for_its_own_lease(
    pipeline: Pipeline, opened: list[Any]
) -> None:
    for sink in pipeline.sinks:
        make(pipeline, sink, 1, "living")
        lease = register_of(pipeline, sink).generation(1).lease
        # Its container had this name, and its processes' numbers counted elsewhere.
        lease._write(Holder(1, 1, 7.0, f"{socket.gethostname()}/1", time.time() - EXPIRES_SECONDS + 1))
    assert len(open_all(pipeline, WHOLE, opened).builds) == len(pipeline.sinks)


def test_what_only_the_previous_generation_uses_stops_only_that(pipeline: Pipeline, opened: list[Any]) -> None:
    make(pipeline, "cache", 1, "living")
    newer = loads(TEXT.replace("STATE", str(pipeline.engine.state_dir)).replace("[id, name]", "[id]"), "shop.yaml", {})
    make(newer, "cache", 2, "ready")
    promoted(register_of(newer, "cache"), 2)
    run = open_all(newer, BROKEN["column"], opened)
    assert ("cache", 2) in {(build.sink, build.generation.number) for build in run.builds}
    (line,) = run.refused.lines
    assert "sink cache, generation 1, is not run" in line
    assert "`headwater retire shop.yaml cache --generation 1`" in line


def test_an_expression_that_spark_refuses_stops_its_sink_alone(
    pipeline: Pipeline, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def flows_of(build: Any, *_: Any) -> list[Any]:
        if build.sink == "cache":
            raise ConfigError("not Spark SQL", fix="correct it")
        return []

    monkeypatch.setattr(engine, "flows_of", flows_of)
    run = open_all(pipeline, WHOLE, opened)
    assert {build.sink for build in run.builds} == {"search", "both"}
    folder = register_of(pipeline, "cache").generation(1).folder
    assert not (folder / "definition.json").exists() and not (folder / "identity.json").exists()
    (line,) = run.refused.lines
    assert "correct it" in line and "rebuild" not in line  # it has never started: the corrected file is enough


def test_nothing_is_begun_behind_a_second_initial_snapshot(
    pipeline: Pipeline, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(_pipeline: Any, position: int) -> None:
        raise LogGap(f"once more, at {position}")

    make(pipeline, "search", 1, "living")
    monkeypatch.setattr(engine, "check_snapshot", second)
    with pytest.raises(LogGap, match="once more, at 1"):
        open_all(pipeline, WHOLE, opened)
    assert not register_of(pipeline, "search").generation(1).lease.busy()


def test_run_ends_only_when_nothing_is_left(pipeline: Pipeline, opened: list[Any]) -> None:
    with pytest.raises(HeadwaterError, match="no sink can be run") as caught:
        open_all(pipeline, tables(), opened)
    for sink in pipeline.sinks:
        assert f"sink {sink}, generation 1" in str(caught.value)


@pytest.mark.parametrize("asked", ["topic_ids", "flows_of"])
def test_a_server_that_is_away_is_no_refusal(
    pipeline: Pipeline, opened: list[Any], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def away(*_: Any) -> dict[str, str]:
        raise SinkUnavailable("away")

    monkeypatch.setattr(build if asked == "topic_ids" else engine, asked, away)
    with pytest.raises(SinkUnavailable):
        open_all(pipeline, WHOLE, opened)
    assert register_of(pipeline, "cache").generation(1).refused() is None
    assert not register_of(pipeline, "cache").generation(1).lease.busy()


def test_a_refused_sink_is_taken_up_when_it_fits_again(
    pipeline: Pipeline, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(pipeline, "cache", 1, "living")
    run = open_all(pipeline, BROKEN["column"], opened)
    assert run.follow() == []  # not at once: the database is not asked twice a second
    monkeypatch.setattr(engine, "source_catalogue", lambda _pipeline: WHOLE)
    monkeypatch.setattr(run.refused, "due", lambda *_: True)
    assert "cache, generation 1: kept up to date from now on" in run.follow()
    assert run.refused.lines == [] and register_of(pipeline, "cache").generation(1).refused() is None


def test_pauses_grow_but_not_while_another_process_has_it(pipeline: Pipeline) -> None:
    refused = Refusals(pipeline)
    pauses = []
    for _ in range(7):
        refused.add("cache", 1, SinkRefused("no"))
        pauses.append(refused._of["cache", 1].pause)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    holder = register_of(pipeline, "search").generation(1)
    holder.lock()
    try:
        for _ in range(3):
            assert not refused.add("search", 1, SinkRefused("held"))
        assert refused._of["search", 1].pause == 1 and holder.refused() is None
    finally:
        holder.unlock()


def test_what_needs_nobody_to_be_taken_up_is_waited_for(pipeline: Pipeline) -> None:
    """A broker that was back some seconds after the sink was resumed found no process any more."""
    refused = Refusals(pipeline)
    assert not refused.waits
    refused.add("cache", 1, SinkRefused("no"))
    assert not refused.waits, "a person has to mend it"
    refused.add("cache", 1, SinkUnavailable("away"))
    assert refused.waits
    refused.forget("cache", ())
    assert not refused.waits
    holder = register_of(pipeline, "search").generation(1)
    holder.lock()
    try:
        refused.add("search", 1, StateError("already run by another process"))
        assert refused.waits, "whoever has it may let go in the next moment, as an erasure does at its end"
    finally:
        holder.unlock()
    refused.mended("search", 1)
    assert not refused.waits


# -- verify -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", BROKEN)
def test_the_others_are_verified(pipeline: Pipeline, what: str) -> None:
    for sink in pipeline.sinks:
        make(pipeline, sink, 1, "living")
    verifier = Verifier(pipeline, BROKEN[what], Asked())
    assert list(verifier.builds) == ["search"] and list(verifier.failed) == ["cache", "both"]
    with pytest.raises(ConfigError):
        Verifier(pipeline, BROKEN[what], Asked(only=["cache"]))


def test_a_sink_that_fails_half_way_is_told_and_the_rest_is_compared(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from operations.verify.comparison import Comparison

    def compared(self: Verifier, view: Any, holders: Any, folder: Path) -> dict[str, Comparison]:
        if any(build.sink == "search" for build in holders):
            raise SinkUnavailable("search: away")
        return {build.sink: Comparison(view.name) for build in holders}

    monkeypatch.setattr(Verifier, "_view", compared)
    monkeypatch.setattr("operations.verify.tables_now.TablesNow.refuse_altered", lambda *_: None)
    said: list[str] = []
    report = {one["sink"]: one for one in Verifier(pipeline, WHOLE, Asked(), said.append).sinks()}
    assert report["search"]["error"] and report["search"]["views"] == []
    assert [view["view"] for view in report["both"]["views"]] == ["order", "customer"]
    assert report["both"]["error"] is None and report["cache"]["error"] is None
    assert any("search can't be verified" in line for line in said)
    assert json.dumps(report) and cast(Any, report)
