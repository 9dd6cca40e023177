"""What `run` notes of the age of everything: never too young, kept over restarts, void when a target is made anew."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import KafkaUnavailable
from cdc.pipeline import Pipeline, load
from connectors.ledger import LedgerEntry
from connectors.rest import Status
from operations.freshness import keeper
from operations.freshness.hanging import Hanging
from operations.freshness.keeper import Keeper, advance
from operations.freshness.marks import Marks
from operations.freshness.note import (
    FlowNote,
    SinkNote,
    SourceNote,
    forget_source_note,
    read_sink_note,
    read_source_note,
    write_sink_note,
    write_source_note,
)
from operations.freshness.place import FlowPlace
from operations.freshness.source_words import connector_words
from operations.state.folder import register_of
from operations.status.facts import judged, source_facts
from spark.disk.status import FlowStatus
from tests.support.growing_log import GrowingLog
from tests.support.lone_cache import written

NEW = FlowNote(None, None, 0.0)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load(written(tmp_path))


def place(at: int, hold: str | None = None, *, void: bool = False) -> FlowPlace:
    return FlowPlace(["t"], {"t": {0: at}} if at else {}, hold, void, at)


class _World(GrowingLog):
    """A flow follows the log besides, and somebody notes how old it is."""

    def __init__(self) -> None:
        super().__init__()
        self.note, self.before = NEW, None
        self.hold: str | None = None

    def step(self, *what: str) -> None:
        super().step(*what)
        if "anew" in what:  # the target is made anew, and filled from the beginning
            self.applied = 0
        elif "hold" in what or "free" in what:
            self.hold = "documents wait" if "hold" in what else None
        elif "restart" in what:  # what was told stays; who looks knows nothing of before
            self.marks, self.before = Marks(), None
        now = place(self.applied, self.hold)
        self.note, self.before = advance(self.note, self.before, now, self.marks, self.now), now


STEPS = ["commit", "look", "confirm", "apply", "anew", "hold", "free", "restart", "back"]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(STEPS), min_size=10, max_size=60))
def test_what_is_noted_is_never_too_young(steps: list[str]) -> None:
    world = _World()
    for step in steps:
        world.step(*("confirm", "bound") if step == "confirm" else (step,))
        world.assert_nothing_is_missing(world.note.as_of)


def marks(*entries: tuple[float, int]) -> Marks:
    made = Marks()
    for at, lsn in entries:
        made.note(at, lsn)
        made.confirm(LedgerEntry(lsn, {"t": {0: lsn}}))
    return made


def test_a_flow_that_has_all_is_as_young_as_the_newest_moment() -> None:
    note = advance(NEW, None, place(20), marks((100.0, 10), (101.0, 20)), 105.0)
    assert (note.as_of, note.behind, note.moved_at, note.reason) == (101.0, 0, 105.0, None)


def test_one_that_waits_for_nothing_but_stands_still_has_moved_last_when_it_did() -> None:
    now = marks((100.0, 10), (101.0, 20))
    first = advance(NEW, None, place(10), now, 105.0)
    still = advance(first, place(10), place(10), now, 300.0)
    assert (still.as_of, still.behind, still.moved_at) == (100.0, 10, 105.0)
    assert advance(still, place(10), place(15), now, 301.0).moved_at == 301.0


def test_documents_that_wait_hold_the_age_and_not_what_was_told() -> None:
    now = marks((100.0, 10), (101.0, 20))
    held = advance(FlowNote(99.0, 0, 99.0), place(5), place(20, "3 documents wait"), now, 105.0)
    assert (held.as_of, held.reason) == (99.0, "3 documents wait")


def test_a_target_that_is_made_anew_has_nothing_of_before() -> None:
    now = marks((100.0, 10), (101.0, 20))
    assert advance(FlowNote(101.0, 0, 99.0), place(20), place(10), now, 105.0).as_of == 100.0
    assert advance(FlowNote(101.0, 0, 99.0), place(20), place(5), now, 105.0).as_of is None
    assert advance(FlowNote(101.0, 0, 99.0), None, place(0), now, 105.0).as_of is None


def test_a_topic_that_was_made_anew_makes_who_has_the_old_one_no_younger_and_who_has_the_new_one_no_older() -> None:
    """The old one's offsets are large: a generation of it had all of the new one, and one of the new one was unknown to
    have anything until the hour's marks of before were forgotten."""
    made = Marks()
    for at in range(10):
        made.note(100.0 + at, at)
        made.confirm(
            LedgerEntry(at, {"t": {0: 900 + at} if at < 8 else {0: at}}, ids={"t": "old" if at < 8 else "new"})
        )
    old = FlowPlace(["t"], {"t": {0: 907}}, None, False, 0, {"t": "old"})
    told = advance(NEW, None, old, made, 110.0)
    assert (told.as_of, told.reason) == (107.0, "topic t was made anew")
    new = replace(old, applied={"t": {0: 9}}, ids={"t": "new"})
    told = advance(NEW, None, new, made, 110.0)
    assert (told.as_of, told.reason) == (109.0, None)


def test_of_what_was_lost_nothing_is_told() -> None:
    now = marks((100.0, 10))
    assert advance(FlowNote(99.0, 0, 99.0), place(10), place(10, "lost", void=True), now, 105.0).as_of is None


def test_a_table_that_is_being_read_keeps_the_age() -> None:
    silent = Marks()
    silent.note(100.0, 10)
    silent.confirm(LedgerEntry(10, {}, {"t": "table t is still being read"}))
    note = advance(FlowNote(90.0, 0, 99.0), place(10), place(10), silent, 105.0)
    assert (note.as_of, note.reason) == (90.0, "table t is still being read")


def test_notes_are_read_as_they_were_written(pipeline: Pipeline) -> None:
    assert (read_sink_note(pipeline, "cache"), read_source_note(pipeline)) == (None, None)
    sink = SinkNote(2.0, 1.0, {1: {"main": FlowNote(1.5, 3, 1.9)}, 2: {"main": FlowNote(None, None, 1.9, "why")}})
    source = SourceNote(2.0, 1.0, 1.5, connector="RUNNING", tasks=["RUNNING"], reading=["public.t"])
    write_sink_note(pipeline, "cache", sink)
    write_source_note(pipeline, source)
    assert read_sink_note(pipeline, "cache") == sink
    assert read_source_note(pipeline) == source
    assert sink.of([1]) == FlowNote(1.5, 3, 1.9)
    assert sink.of([1, 2]) == FlowNote(None, None, 1.9, "why")  # readers may see either
    assert (sink.of([3]).as_of, sink.of([]).as_of) == (None, None)
    assert sink.of([1, 3]) == FlowNote(None, None, 0.0), "of one of the two nobody has told anything"
    assert sink.of([1], ["other"]).as_of == 1.5  # plain views share `main`
    two = SinkNote(2.0, 1.0, {1: {"main": FlowNote(1.5, 3, 1.9), "card": FlowNote(1.2, 4, 1.8)}})
    assert (two.of([1]), two.of([1], ["thing"]).behind) == (FlowNote(1.2, 7, 1.8), 3)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"at": 1}', '{"at": 1, "since": 1, "generations": {"1": {"m": []}}}'])
def test_half_a_note_is_none(pipeline: Pipeline, text: str, tmp_path: Path) -> None:
    write_sink_note(pipeline, "cache", SinkNote(1.0, 1.0))
    write_source_note(pipeline, SourceNote(1.0, 1.0))
    for path in (tmp_path / "state").rglob("frontier.json"):
        path.write_text(text)
    assert read_sink_note(pipeline, "cache") is None
    assert read_source_note(pipeline) is None or text == '{"at": 1, "since": 1, "generations": {"1": {"m": []}}}'


def test_a_sink_that_has_never_run_gets_no_folder(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`drop` takes a folder for a sign that what its target holds is ours."""
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.05)
    with Keeper(pipeline):
        until(lambda: read_source_note(pipeline) is not None)
        time.sleep(0.2)
    assert not (tmp_path / "state" / "p" / "cache").exists()
    forget_source_note(pipeline)
    assert read_source_note(pipeline) is None


def test_what_a_later_version_notes_besides_is_left_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    write_source_note(pipeline, SourceNote(1.0, 1.0, 0.5))
    path = tmp_path / "state" / "p" / "frontier.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    found = read_source_note(pipeline)
    assert found is not None and found.as_of == 0.5


def test_connects_words() -> None:
    assert connector_words("c", None)["connector"] == "absent"
    failed = connector_words("c", Status("RUNNING", ("FAILED",), "a deadlock"))
    assert failed["tasks"] == ("FAILED",) and "a deadlock" in failed["connector_error"]
    assert connector_words("c", Status("RUNNING", ("RUNNING",), ""))["connector_error"] is None
    silent = connector_words("c", None, "no answer")
    assert (silent["connector"], silent["connector_error"]) == ("unknown", "no answer")


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_servers_that_are_away_stop_nobody_and_what_was_told_stays(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens where the file says: sinks are noted all the same, as they were."""
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.05)
    folder = register_of(pipeline, "cache").generation().flow_folder("main")
    folder.mkdir(parents=True)
    FlowStatus("cache/main", "running", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, ["t"], time.time()).write(folder)
    (folder / "applied.json").write_text(json.dumps({"batch": 1, "offsets": {"t": {"0": 5}}}))
    write_sink_note(pipeline, "cache", SinkNote(2.0, 1.0, {1: {"main": FlowNote(1.5, 3, 1.9)}}))
    write_source_note(pipeline, SourceNote(2.0, 1.0, 1.5))
    with Keeper(pipeline):
        until(lambda: bool((note := read_source_note(pipeline)) and note.error and note.connector_error))
        until(lambda: bool((note := read_sink_note(pipeline, "cache")) and note.at > 2.0 and note.away))
        sink, source = read_sink_note(pipeline, "cache"), read_source_note(pipeline)
    assert sink is not None and source is not None
    assert sink.generations[1]["main"].as_of == 1.5 and sink.at > 2.0
    assert "Connection refused" in (sink.away or ""), "a sink's server that is gone is told of, whatever its flow says"
    assert source.as_of == 1.5 and "does not answer" in (source.error or "")


def test_of_a_slot_nothing_is_known_while_postgres_is_away(pipeline: Pipeline) -> None:
    noting = Keeper(pipeline)
    known = {"slot_there": True, "slot_active": True, "slot_retained_bytes": 5, "slot_safe_bytes": 9}
    noting._source = replace(noting._source, as_of=1.5, **known)
    noting._look()  # nothing listens where the file says
    noting._tell()
    note = read_source_note(pipeline)
    assert note is not None and note.error and note.as_of == 1.5
    assert {name: getattr(note, name) for name in known} == dict.fromkeys(known)


def test_the_slot_is_known_while_kafka_is_away(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fills meanwhile: this is when somebody has to know."""

    def entry(*_: object, quick: bool = False) -> LedgerEntry:
        assert quick
        raise KafkaUnavailable("no answer")

    slot = SimpleNamespace(active=True, wal_status="reserved", behind_bytes=70, safe_bytes=9)
    look = SimpleNamespace(at=5.0, standing=SimpleNamespace(confirmed_lsn=8))
    noting = Keeper(pipeline)
    noting._log = SimpleNamespace(  # type: ignore[assignment]
        look=lambda _: look, slot=lambda: slot, entry=entry, reading=list, close=lambda: None
    )
    noting._topics = {"t"}  # type: ignore[assignment]
    monkeypatch.setattr(Marks, "seen", lambda self, _look: self)
    monkeypatch.setattr(Marks, "wanting", lambda _self, _confirmed: True)
    noting._look()
    noting._tell()
    note = read_source_note(pipeline)
    assert note is not None and (note.error, note.kafka_error) == (None, "no answer")
    assert time.time() - note.answered_at < 60, "Postgres has answered"
    assert (note.slot_there, note.slot_active, note.slot_retained_bytes, note.slot_safe_bytes) == (True, True, 70, 9)


def test_a_sink_that_is_not_in_the_file_any_more_is_let_go_of(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readers' alias, which nobody writes behind any more, was set again each time that somebody took it away."""
    noting = Keeper(pipeline)
    folder = register_of(pipeline, "cache").generation().flow_folder("main")
    folder.mkdir(parents=True)
    FlowStatus("cache/main", "running", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, ["t"], time.time()).write(folder)
    noting._write_once()
    asked = noting._answering["cache"]
    assert asked._thread.is_alive() and noting._before
    without = pipeline.model_copy(update={"sinks": {}})
    noting.follow(lambda: (without, ()))
    noting._write_once()
    until(lambda: not asked._thread.is_alive())
    assert not noting._answering and not noting._places and not noting._before
    noting.follow(lambda: (pipeline, ()))
    noting._write_once()
    assert noting._answering["cache"] is not asked
    noting._end()


def test_a_generation_that_was_retired_while_it_was_behind_is_not_late_for_good(pipeline: Pipeline) -> None:
    """Kafka was asked for its topics' ends every ten seconds until `run` ended."""
    noting, register = Keeper(pipeline), register_of(pipeline, "cache")
    second = register.create("a test")
    register.move(second.number, "ready")
    for number in (1, 2):
        folder = register.generation(number).flow_folder("main")
        folder.mkdir(parents=True)
        FlowStatus("cache/main", "running", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [f"t{number}"], time.time()).write(
            folder
        )
    noting._marks.note(time.time(), 9)
    noting._marks.confirm(LedgerEntry(9, {"t1": {0: 0}, "t2": {0: 5}}))
    noting._write_once()
    asked = list[set[str]]()
    source: Any = SimpleNamespace(both_ends=lambda topics: asked.append(topics) or ({}, {}))
    noting._see_hanging(source, time.time() + 2 * keeper.STILL_SECONDS)
    assert asked == [{"t2"}]
    register.begin_retiring(2)
    noting._write_once()
    assert list(noting._before) == [("cache", 1, "main")]
    noting._hanging = Hanging()
    noting._see_hanging(source, time.time() + 2 * keeper.STILL_SECONDS)
    assert asked == [{"t2"}]
    noting._end()


def test_when_connect_answered_last_is_told_while_it_does_not(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that its worker's restart is told from one that is dead, while rows are read and the slot stands still."""
    noting = Keeper(pipeline)
    monkeypatch.setattr(noting._connect, "status", lambda _name: Status("RUNNING", ("RUNNING",), ""))
    before = time.time()
    noting._ask()
    monkeypatch.undo()
    noting._ask()  # nothing listens there
    noting._tell()
    note = read_source_note(pipeline)
    assert note is not None and note.connector == "unknown" and note.connector_error
    assert before <= note.connect_answered_at <= note.at


def test_a_clock_that_was_put_back_makes_nothing_young(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """For eight hours everything was 0 s old, and had been silent for less than nothing: a connector that was away, and
    a slot that nobody read, raised no alarm."""
    ahead = time.time() + 8 * 3_600
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "time", SimpleNamespace(time=lambda: ahead))
        noting = Keeper(pipeline)
        noting._marks = marks((1.0, 5), (ahead, 10))
        noting._source = replace(noting._source, as_of=ahead, moved_at=ahead, answered_at=ahead)
        patch.setattr(noting._connect, "status", lambda _name: Status("FAILED", ("FAILED",), "why"))
        noting._ask()
    noting._look()  # nothing listens where the file says
    noting._ask()
    noting._tell()
    note = read_source_note(pipeline)
    assert note is not None and (note.as_of, noting._marks.bound) == (None, 1.0)
    assert max(note.since, noting.since, note.moved_at, note.answered_at, note.connect_answered_at) <= note.at
    assert note.failed_at is not None and note.failed_at <= note.at
    told = advance(FlowNote(ahead, 0, ahead), place(5), place(5), noting._marks, note.at)
    assert (told.as_of, told.moved_at) == (1.0, note.at)


def test_what_is_still_to_come_is_judged_as_what_nobody_writes(pipeline: Pipeline) -> None:
    """`run` is dead, and the clock was put back since: nobody looks, and nothing is known to be 0 s old."""
    now, ahead = time.time(), time.time() + 3_600
    folder = register_of(pipeline, "cache").generation().flow_folder("main")
    folder.mkdir(parents=True)
    FlowStatus("cache/main", "running", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, ["t"], now).write(folder)
    assert not source_facts(SourceNote(ahead, now, ahead), now, 30.0).watched
    assert source_facts(SourceNote(now + 2, now, now), now, 30.0).watched, "of another machine whose clock is ahead"
    write_sink_note(pipeline, "cache", SinkNote(ahead, now, {1: {"main": FlowNote(ahead, 0, ahead)}}))
    found = judged(pipeline).sinks["cache"]
    assert (found.as_of, found.age) == (None, None)


@pytest.mark.parametrize("silent", [range(40, 60), range(60, 90), range(5, 99)])
def test_moments_while_a_table_was_read_again_hide_no_newer_ones(silent: range) -> None:
    """The entries of that time say nothing of the table, and are reached by nobody who reads it: a search that halves
    would come upon them, and tell of an age that grew for as long again."""
    marks = Marks()
    for at in range(100):
        marks.note(float(at), at)
        known = {} if at in silent else {"t": {0: at}}
        marks.confirm(LedgerEntry(at, known, {"t": "table t is still being read"} if at in silent else {}))
    assert marks.newest(lambda entry: "t" in entry.offsets and entry.behind({"t": {0: 1000}}) == 0) == 99.0
    assert marks.newest(lambda entry: "t" in entry.offsets and entry.behind({"t": {0: 3}}) == 0) == 3.0
