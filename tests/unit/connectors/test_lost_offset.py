"""Kafka Connect that has lost how far it had read: a second initial snapshot is no new beginning, and is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.errors import KafkaError, KafkaUnavailable, LogGap, SourceError
from connectors import connector, plan, plan_refusals, resnapshot
from connectors.captured.captured import Captured
from connectors.connector import RunningConnector, plan_connector
from connectors.database.history import Moment
from connectors.database.lost import Lost
from connectors.database.slot import Slot
from connectors.debezium import beat_topic, marker_topic
from connectors.gaps import lost_offset, source_gaps
from connectors.gaps.lost_offset import check_snapshot, read_up_to, refuse_lost_offset, refuse_second_snapshot
from connectors.preflight import slot as preflight
from connectors.preflight.model import Level
from connectors.rest import ConnectClient, Status
from tests.support.connector_cases import pipeline

RUNNING = Status("RUNNING", ("RUNNING",), "")
STREAMING = {"lsn": 1000, "lsn_commit": 1000}
SNAPSHOT = {"lsn": 1000, "snapshot": "INITIAL"}
SLOT = Slot("pgoutput", "flights", False, None, 900, "reserved", 0, None)
NOW = Moment("7", 1, standby=False, wal_lsn=5000)
LOST = [None, SNAPSHOT]


def captured(*states: str, through: int | None = None) -> dict[str, Captured]:
    now = datetime.now(UTC)
    return {f"s.t{n}": Captured(f"s.t{n}", state, None, now, read_through=through) for n, state in enumerate(states)}


@pytest.mark.parametrize(
    ("offset", "entries", "lost"),
    [
        (None, captured("done"), True),
        (SNAPSHOT, captured("done"), True),
        ({"lsn": 1000, "snapshot": True}, captured("initial", "done"), True),
        (None, captured("requested", through=7), True),  # it is being read again
        (STREAMING, captured("done"), False),
        ({**STREAMING, "incremental_snapshot_signal_id": "x"}, captured("done"), False),
        ({**STREAMING, "snapshot": "INCREMENTAL"}, captured("done"), False),
        ({**STREAMING, "snapshot": "blocking"}, captured("done"), False),  # somebody's own signal
        (None, captured("initial"), False),  # the first `apply`, also one that was interrupted
        (SNAPSHOT, captured("initial", "wanted"), False),  # a table was added meanwhile
        (SNAPSHOT, {}, False),  # dropped
        (None, {}, False),
    ],
)
def test_no_place_and_a_first_snapshot_are_a_gap_once_tables_were_read(
    offset: Mapping[str, Any] | None, entries: dict[str, Captured], lost: bool
) -> None:
    with pytest.raises(LogGap, match="has lost how far the connector had read") if lost else nullcontext():
        refuse_lost_offset(offset, entries)


@pytest.mark.parametrize(
    ("position", "through", "lost", "refused"),
    [
        (3000, 2000, [], True),
        (3000, 2000, [Lost(100, 0, 2500, 1), Lost(3500, 0, None, None)], True),  # of other gaps
        (3000, 2000, [Lost(0, 0, None, None)], False),  # tables are being read again for it
        (3000, 2000, [Lost(0, 0, 4000, 1)], False),  # they were
        (3000, None, [], False),  # not known when: the list is an older version's, or the snapshot is the first
        (1000, 2000, [], False),
        (2000, 2000, [], False),
        (None, 2000, [], False),
    ],
)
def test_a_snapshot_that_is_later_than_complete_tables_is_a_second_one(
    position: int | None, through: int | None, lost: list[Lost], refused: bool
) -> None:
    entries = captured("done", through=through) | {"s.late": replace(captured("done")["s.t0"], read_through=9000)}
    if through is None:
        entries = captured("done", "initial")
    with pytest.raises(LogGap, match="made its initial snapshot once more, at 0/BB8") if refused else nullcontext():
        refuse_second_snapshot(position, entries, lost)


@pytest.mark.parametrize("offset", LOST)
def test_run_ends_instead_of_going_on_behind_a_second_snapshot(
    monkeypatch: pytest.MonkeyPatch, offset: dict[str, Any] | None
) -> None:
    """Rows that were deleted between what had been read and the second snapshot stayed in every sink for ever."""
    told = {"read_slot": SLOT, "_stored_offset": (True, offset), "read_moment": NOW, "read_witness": None}
    for name, answer in {**told, "noted_timeline": None, "within": nullcontext()}.items():
        monkeypatch.setattr(source_gaps, name, lambda *_, answer=answer, **__: answer)
    monkeypatch.setattr(source_gaps, "read_captured", lambda *_: entries)
    known = source_gaps.Remembered("7", 1, wal_lsn=900, confirmed_lsn=700, offset_lsn=800, runner="r")
    entries = captured("initial")
    if offset is not None:
        assert source_gaps._check(cast(Any, None), pipeline(), known, None).offset_lsn is None
    entries = captured("done")
    with pytest.raises(LogGap, match="has lost how far the connector had read"):
        source_gaps._check(cast(Any, None), pipeline(), known, None)


@pytest.mark.parametrize("offset", LOST)
def test_apply_and_check_refuse_it(monkeypatch: pytest.MonkeyPatch, offset: dict[str, Any] | None) -> None:
    running, entries = RunningConnector({}, RUNNING, offset), captured("done")
    actual = SimpleNamespace(connector=running, slot=SLOT, captured=entries, now=NOW, noted=1)
    with pytest.raises(LogGap, match="has lost how far the connector had read"):
        plan_refusals.refuse_discontinued(pipeline(), cast(Any, actual))
    for name, answer in {"read_connector": running, "read_captured": entries, "read_moment": NOW}.items():
        monkeypatch.setattr(preflight, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(preflight, "noted_timeline", lambda *_: 1)
    site = SimpleNamespace(pipeline=pipeline(), db=None, names=None, connect=None, kafka=None)
    for there in (SLOT, None):
        seen = SimpleNamespace(slot=there, limit_bytes=None)
        monkeypatch.setattr(preflight, "look", lambda *_, seen=seen: seen)
        [finding] = preflight.run(cast(Any, site))
        assert finding.level is Level.ERROR and "has lost how far the connector had read" in finding.message
        assert "headwater resnapshot FILE --all" in finding.fix
        assert "headwater rebuild FILE SINK --auto" in finding.fix, "of what has counted the former snapshot's events"


def test_plan_refuses_what_a_second_snapshot_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had ended by then: all was found well, and the rows that were deleted meanwhile stayed."""
    monkeypatch.setattr(lost_offset, "read_lost", lambda *_: [])
    monkeypatch.setattr(lost_offset, "read_position", lambda *_: 3000)
    monkeypatch.setattr(plan, "prepare", lambda *_, **__: ([], set(), []))
    running = RunningConnector({}, RUNNING, STREAMING)
    entries = captured("done", through=2000)
    actual = SimpleNamespace(connector=running, slot=SLOT, captured=entries, now=NOW, noted=1)
    servers = SimpleNamespace(pipeline=pipeline(), kafka=None, setup=None)
    with pytest.raises(LogGap, match="made its initial snapshot once more"):
        plan.plan(cast(Any, servers), cast(Any, actual))


def test_a_connector_that_is_made_again_begins_no_second_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Connect:
        def offset(self, _name: str) -> None:
            return None

        def __getattr__(self, verb: str) -> Any:
            return lambda *_: done.append(verb)

    monkeypatch.setattr(connector, "read_slot", lambda *_: SLOT)
    monkeypatch.setattr(connector, "read_captured", lambda *_: captured("done"))
    [action] = plan_connector("c", {}, None, slot=True, skipped=False)
    servers = SimpleNamespace(connect=Connect(), pipeline=pipeline(), source=None, setup=None, names=None)
    with pytest.raises(LogGap, match="it knows no place of it"):
        action.run(cast(Any, servers))
    assert done == ["create_stopped"], "`resnapshot --all` gets well from this, and needs the connector"


# -- the way out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [*LOST, STREAMING])
def test_reading_all_again_is_the_way_out(monkeypatch: pytest.MonkeyPatch, offset: dict[str, Any] | None) -> None:
    lost: list[Lost] = []
    monkeypatch.setattr(resnapshot, "read_moment", lambda *_: NOW)
    monkeypatch.setattr(resnapshot, "noted_timeline", lambda *_: 1)
    monkeypatch.setattr(lost_offset, "read_lost", lambda *_: lost)
    monkeypatch.setattr(lost_offset, "read_position", lambda *_: 3000)
    servers = cast(Any, SimpleNamespace(pipeline=pipeline(), source=None, setup=None, kafka=None, names=None))
    running = RunningConnector({}, RUNNING, offset)
    for slot in (SLOT, None):
        gap = resnapshot._gap(servers, slot, running, captured("done", through=2000))
        assert isinstance(gap, LogGap) and "resnapshot FILE --all" in gap.fix
    lost.append(Lost(0, 0, None, None))  # under way
    again = resnapshot._gap(servers, SLOT, running, captured("wanted", through=2000))
    assert (again is None) == (offset is STREAMING), "killed before it had made the slot anew, it does so"


def beat(commit: int | None, ms: int, op: str = "u") -> bytes:
    """A record of the heartbeat's row, or the marker's, behind a commit."""
    at = (commit or 0) + 5
    sequence = orjson.dumps([None if commit is None else str(commit), str(at)]).decode()
    return orjson.dumps({"op": op, "source": {"lsn": at, "sequence": sequence, "ts_ms": ms}})


BEATS = [beat(None, 1, "r"), beat(None, 1000), beat(1500, 2000), None, beat(2500, 3000), beat(3600, 4000)]


@pytest.mark.parametrize(
    ("attempts", "lost", "known"),
    [
        ([], [], (3600, 3_000_000)),
        ([100], [], (3600, 3_000_000)),  # of the first snapshot
        ([100, 2600], [], (2500, 2_000_000)),  # what was streamed behind a second one tells nothing
        ([100, 2100, 2600], [], (1500, 1_000_000)),
        ([100, 2600], [Lost(2500, 0, 3000, 1)], (3600, 3_000_000)),  # got well from
    ],
)
def test_an_offset_that_was_lost_is_known_by_what_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, attempts: list[int], lost: list[Lost], known: tuple[int, int]
) -> None:
    """All earlier cuts of every history that had no name were refused for good."""
    file, there = pipeline(), dict[str, Any]()
    there |= {beat_topic(file): BEATS, marker_topic(file): [beat(at - 5, 1, "r") for at in attempts]}

    def read(_kafka: Any, topic: str, _partition: int) -> Any:
        return (SimpleNamespace(value=lambda value=value: value) for value in there[topic])

    monkeypatch.setattr(lost_offset, "records", read)
    monkeypatch.setattr(lost_offset, "read_lost", lambda *_: lost)
    monkeypatch.setattr(resnapshot, "refuse_read_twice", lambda *_: None)
    servers = cast(Any, SimpleNamespace(pipeline=file, setup=None, kafka=None, names=None))
    running, entries = RunningConnector({}, RUNNING, None), captured("done", "wanted", through=2000)
    assert resnapshot._lost_behind(servers, running, entries) == known
    # Of a list that an older version has made nobody knows whether a second snapshot was made before.
    assert resnapshot._lost_behind(servers, running, captured("done", "done")) == (0, 0)
    older = entries | {"s.old": captured("done")["s.t0"]}
    assert resnapshot._lost_behind(servers, running, older) == (0, 0)
    for others in ([], [b"{}"], [b"x"], [beat(None, 1, "r"), None, beat(None, 2)]):
        there[beat_topic(file)] = others
        assert resnapshot._lost_behind(servers, running, entries) == (0, 0)
    streaming = replace(running, offset={"lsn": 900, "lsn_commit": 800, "ts_usec": 7})
    assert resnapshot._lost_behind(servers, streaming, entries) == (900, 7)


@pytest.mark.parametrize("error", [KafkaUnavailable("away"), KafkaError("it is not there")])
def test_a_log_that_does_not_answer_is_waited_for_and_one_that_is_not_there_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    def away(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(lost_offset, "records", away)
    monkeypatch.setattr(lost_offset, "read_lost", lambda *_: [])
    servers = cast(Any, SimpleNamespace(pipeline=pipeline(), setup=None, kafka=None, names=None))
    with pytest.raises(KafkaUnavailable) if error.transient else nullcontext():
        assert read_up_to(servers, captured("done", through=2000)) == (0, 0)


class Database:
    """What is noted in the database, as far as nobody was killed on the way."""

    def __init__(self) -> None:
        self.captured, self.lost = captured("done", "done"), list[Lost]()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = dict(self.captured), list(self.lost)
        try:
            yield
        except BaseException:
            self.captured, self.lost = before
            raise

    def note_lost(self, _setup: Any, _names: Any, since: int, since_us: int) -> None:
        self.lost.append(Lost(since, since_us, None, None))

    def want_again(self, _setup: Any, _names: Any, tables: Any, _condition: Any, *, sweep: bool) -> None:
        for table in tables:
            self.captured[table] = replace(self.captured[table], state="wanted", sweep=sweep)


@pytest.mark.parametrize("killed", ["note_lost", "want_again", None])
def test_a_kill_hides_neither_that_changes_are_lost_nor_that_an_offset_was(
    monkeypatch: pytest.MonkeyPatch, killed: str | None
) -> None:
    """Tables were wanted, which says that nothing was read before, and no loss was noted: cuts of then were called
    complete. The other way round a second initial snapshot would be no gap any more, and nobody read the tables."""
    database, asked = Database(), list[str]()

    def doing(name: str, *given: Any, **more: Any) -> None:
        asked.append(name)
        if name == killed:
            raise KeyboardInterrupt
        getattr(database, name)(*given, **more)

    for name in ("note_lost", "want_again"):
        monkeypatch.setattr(resnapshot, name, partial(doing, name))
    servers = cast(Any, SimpleNamespace(setup=database, names=None))
    with pytest.raises(KeyboardInterrupt) if killed else nullcontext():
        resnapshot._note(servers, ["s.t0", "s.t1"], resnapshot.Wish([]), {"s.t1"}, (7, 8))
    assert not killed or killed in asked
    if killed:
        assert database.lost == []
        with pytest.raises(LogGap):
            refuse_lost_offset(None, database.captured)
        with pytest.raises(LogGap):
            refuse_second_snapshot(3000, captured("done", through=2000), database.lost)
    else:
        assert database.lost == [Lost(7, 8, None, None)]
        assert {(one.table, one.state, one.sweep) for one in database.captured.values()} == {
            ("s.t0", "wanted", True),
            ("s.t1", "wanted", False),
        }


def test_a_connector_without_a_place_is_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    kept: list[dict[str, Any]] = []

    def request(_self: Any, method: str, _path: str, body: Any = None) -> Any:
        asked.append((method, body))
        return {"offsets": kept}

    monkeypatch.setattr(ConnectClient, "request", request)
    client = ConnectClient(pipeline().connect)
    client.alter_offset("c", {"lsn": 5}, {"server": "flights"})
    kept.append({"partition": {"server": "theirs"}, "offset": {"lsn": 1}})
    client.alter_offset("c", {"lsn": 5}, {"server": "flights"})
    assert [body["offsets"] for method, body in asked if method == "PATCH"] == [
        [{"partition": {"server": name}, "offset": {"lsn": 5}}] for name in ("flights", "theirs")
    ]


# -- while it runs -----------------------------------------------------------------------------------------------------


def test_a_database_that_does_not_answer_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_source: Any) -> Any:
        raise SourceError("away")

    monkeypatch.setattr(lost_offset, "connect", away)
    check_snapshot(pipeline(), 3000)
    monkeypatch.setattr(lost_offset, "connect", lambda _: nullcontext(None))
    monkeypatch.setattr(lost_offset, "within", lambda *_: nullcontext())
    monkeypatch.setattr(lost_offset, "read_captured", lambda *_: captured("done", through=2000))
    monkeypatch.setattr(lost_offset, "read_lost", lambda *_: [])
    check_snapshot(pipeline(), 2000)
    with pytest.raises(LogGap, match="once more"):
        check_snapshot(pipeline(), 3000)
