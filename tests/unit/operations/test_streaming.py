"""A transaction that takes minutes: the slot stands still until its end, while its records come into the log."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.log.ends import Offsets
from operations.freshness import keeper
from operations.freshness import log as source_log
from operations.freshness.hanging import Hanging
from operations.freshness.keeper import Keeper
from operations.freshness.log import QUICK_SECONDS, SourceLog
from operations.freshness.marks import Marks
from operations.freshness.note import FlowNote
from operations.freshness.place import FlowPlace
from operations.freshness.streaming import LOOK_SECONDS, Streaming
from operations.status.facts import source_facts
from operations.status.source_judgement import SILENT_SECONDS, judge_source
from tests.support.json_examples import flights

LIMIT = 30.0


def test_only_ends_that_have_moved_since_the_last_look_are_records_that_come() -> None:
    streaming, ends, asked = Streaming(), dict[str, dict[int, int]](), list[float]()

    def look(now: float, **at: int) -> bool:
        ends.update({topic: {0: end} for topic, end in at.items()})
        return streaming.look(lambda: asked.append(now) or {topic: dict(parts) for topic, parts in ends.items()}, now)

    assert not look(0.0, t=5), "nobody knows since when they are there"
    assert not look(LOOK_SECONDS / 2, t=6) and asked == [0.0], "it is not asked at each look of the source"
    assert look(LOOK_SECONDS) and not look(2 * LOOK_SECONDS) and look(3 * LOOK_SECONDS, t=7)
    streaming.forget()
    assert not look(4 * LOOK_SECONDS, t=8), "of a transaction that has ended"
    with pytest.raises(KafkaUnavailable):
        streaming.look(_away, 5 * LOOK_SECONDS)
    assert not look(6 * LOOK_SECONDS, t=9)


def _away() -> Offsets:
    raise KafkaUnavailable("no answer")


class Database:
    """In place of ``SourceLog``: a slot that may stand still, and topics that may grow.

    Attributes:
        passes: lets time pass while something is asked, and gives what is judged then.
    """

    def __init__(self) -> None:
        self.at, self.confirmed, self.end = time.time(), 8, 0
        self.ends: Callable[[], Offsets] = lambda: {"t": {0: self.end}}
        self.passes: Callable[[float], tuple[str, str | None]]

    def look(self, _transactions: Any) -> Any:
        return SimpleNamespace(at=self.at, standing=SimpleNamespace(confirmed_lsn=self.confirmed))

    def slot(self) -> Any:
        return SimpleNamespace(active=True, wal_status="reserved", behind_bytes=70, safe_bytes=9)

    def reading(self) -> list[str]:
        return []

    def written(self) -> Offsets:
        return self.ends()


def judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Database, int], None], seconds: int = 200
) -> tuple[str, str | None]:
    """What is judged of a source that was looked at each second, and not moved by itself."""
    monkeypatch.setattr(Marks, "seen", lambda self, _look: self)
    noting, database = Keeper(flights(tmp_path)), Database()
    noting._log = database  # type: ignore[assignment]
    begun, clock = database.at, SimpleNamespace(now=database.at)
    monkeypatch.setattr(keeper, "time", SimpleNamespace(time=lambda: clock.now, monotonic=lambda: clock.now))
    noting._connector = {"connector": "RUNNING", "tasks": ("RUNNING",)}

    def told() -> tuple[str, str | None]:
        noting._tell()
        found = judge_source(source_facts(keeper.read_source_note(noting.pipeline), clock.now, LIMIT))
        return found.judgement, found.remedy

    def passes(more: float) -> tuple[str, str | None]:
        clock.now += more
        return told()

    database.passes = passes
    while clock.now < begun + seconds:
        database.at = clock.now
        meanwhile(database, int(clock.now - begun))
        noting._look()
        clock.now += 1
    clock.now -= 1
    return told()


def test_who_reads_a_large_transaction_is_behind_and_not_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began the transaction anew."""

    def grows(database: Database, _second: int) -> None:
        database.end += 40_000

    assert judged(tmp_path, monkeypatch, grows) == ("behind", None)


def test_a_connector_that_hangs_is_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(database: Database, second: int) -> None:
        database.end = 40_000 * min(second, 100)

    judgement, remedy = judged(tmp_path, monkeypatch, hangs)
    assert judgement == "stalled" and "restart the connector" in (remedy or "")


BROKERS = ("retrying", "see to it that Kafka's brokers answer; the rest comes by itself")


def test_brokers_that_do_not_answer_are_told_and_not_the_connector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connector was to be restarted, which can't help. And the slot is known all the same."""

    def away(database: Database, _second: int) -> None:
        database.ends = _away

    just_asked = 2 + 40 * int(LOOK_SECONDS)
    assert judged(tmp_path, monkeypatch, away, just_asked) == BROKERS
    note = keeper.read_source_note(flights(tmp_path))
    assert note is not None and (note.error, note.kafka_error) == (None, "no answer")


def test_a_connector_that_hangs_once_brokers_answer_again_is_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def comes_back(database: Database, second: int) -> None:
        database.ends = _away if second < 100 else lambda: {"t": {0: 7}}

    judgement, remedy = judged(tmp_path, monkeypatch, comes_back)
    assert judgement == "stalled" and "restart the connector" in (remedy or "")


def test_brokers_that_are_silent_do_not_make_postgres_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source was `retrying` and `stalled` in turns: who waits for brokers has heard Postgres before."""
    seen, takes = list[tuple[str, str | None]](), SILENT_SECONDS - 0.5

    def silent(database: Database, second: int) -> None:
        def asked() -> Offsets:
            for _ in range(2):
                told = database.passes(takes / 2)
                seen.extend([told] if second > 2 * LIMIT else [])
            raise KafkaUnavailable("no answer")

        database.ends = asked

    assert judged(tmp_path, monkeypatch, silent) == BROKERS
    assert set(seen) == {BROKERS} and len(seen) > 10


def test_brokers_that_tell_nothing_of_a_late_flow_are_no_error_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came and went, for they are not asked at each look; and what was asked of Postgres had its answer."""
    asked = list[str]()
    monkeypatch.setattr(Hanging, "look", lambda _self, ask, _now: asked.append("hanging") or ask())
    place = FlowPlace(["t"], {"t": {0: 5}}, None, False, 5)
    late = keeper._Before(FlowNote(1.0, 4, 1.0), place)
    monkeypatch.setattr(Database, "both_ends", lambda *_: _away(), raising=False)
    begin = Keeper.__init__

    def begun(noting: Keeper, *args: Any) -> None:
        begin(noting, *args)
        noting._before["cache", 1, "main"] = late

    monkeypatch.setattr(Keeper, "__init__", begun)
    assert judged(tmp_path, monkeypatch, lambda *_: None)[0] == "stalled" and asked
    note = keeper.read_source_note(flights(tmp_path))
    assert note is not None and note.error is None


def test_who_looks_at_the_slot_asks_silent_brokers_once_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took 16.5 s each time, and the figures of the slot were as old just while it filled."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pipeline = flights(tmp_path)
        kafka = pipeline.kafka.model_copy(update={"bootstrap": f"127.0.0.1:{silent.getsockname()[1]}"})
        found = SourceLog(pipeline.model_copy(update={"kafka": kafka}))
        monkeypatch.setattr(source_log, "read_captured", lambda *_: {"public.a": None})
        monkeypatch.setattr(found, "_connected", lambda: None)
        monkeypatch.setattr(source_log, "within", lambda *_: nullcontext())
        topics = [pipeline.topic("public.a")]
        monkeypatch.setattr(found, "_silent", dict)
        for ask in (found.written, lambda: found.both_ends(topics), lambda: found.entry(9, topics, quick=True)):
            begun = time.monotonic()
            with pytest.raises(KafkaUnavailable):
                ask()
            assert time.monotonic() - begun < QUICK_SECONDS + 2
            found._counts = {topics[0]: 1}


def test_a_slot_that_moves_asks_kafka_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def moves(database: Database, _second: int) -> None:
        database.confirmed += 1
        database.ends = lambda: pytest.fail("it was asked")

    assert judged(tmp_path, monkeypatch, moves)[0] == "starting", "nothing was bound in this test"


def test_what_brokers_said_once_is_forgotten_once_nobody_asks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def comes_back(database: Database, second: int) -> None:
        database.ends = _away
        database.confirmed = max(second, 100)

    judged(tmp_path, monkeypatch, comes_back, 100)
    note = keeper.read_source_note(flights(tmp_path))
    assert note is not None and note.kafka_error == "no answer"
    assert judged(tmp_path, monkeypatch, comes_back)[0] == "starting"


def test_brokers_that_keep_run_from_binding_are_told_though_the_slot_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was `starting` for good, and no alarm; or behind, and nothing to be done."""

    def refuse(*_: Any, quick: bool) -> Any:
        raise KafkaError("not authorized", fix="give it the right")

    monkeypatch.setattr(Database, "entry", refuse, raising=False)
    monkeypatch.setattr(Marks, "wanting", lambda *_: True)
    begin = Keeper.__init__

    def begun(noting: Keeper, *args: Any) -> None:
        begin(noting, *args)
        noting._topics = {"t"}

    monkeypatch.setattr(Keeper, "__init__", begun)
    seen = set[tuple[str, str | None]]()

    def beats(database: Database, second: int) -> None:
        database.confirmed = second // 12
        seen.update({database.passes(0.0)} if second > 2 else ())

    told = ("retrying", "give it the right; the rest comes by itself")
    assert judged(tmp_path, monkeypatch, beats) == told and seen == {told}, "topics' ends alone do not take it away"


def test_all_captured_tables_count_also_those_that_no_sink_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = flights(tmp_path)
    monkeypatch.setattr(source_log, "read_captured", lambda *_: {"public.a": None, "public.b": None})
    found, asked = SourceLog(pipeline), list[tuple[set[str], bool]]()
    topics = {pipeline.topic("public.a"), pipeline.topic("public.b")}
    counted = list[set[str]]()

    def partitions(names: Any) -> dict[str, int]:
        counted.append(set(names))
        return {name: 1 for name in names if name in {*topics, "other"}}

    def ends(wanted: Any, *, written: bool) -> Any:
        asked.append((set(wanted), written))
        return {name: {0: 7} for name in wanted}

    kafka: Any = SimpleNamespace(partitions=partitions, ends=ends, impatient=lambda _seconds: kafka)
    found._kafka = kafka
    monkeypatch.setattr(found, "_connected", lambda: None)
    monkeypatch.setattr(source_log, "within", lambda *_: nullcontext())
    assert found.written() == {name: {0: 7} for name in topics} and asked == [(topics, True)]
    found._count({"other"}, kafka)
    found.written()
    assert counted == [topics, {*topics, "other"}], "who asks for other topics does not have these asked for anew"
