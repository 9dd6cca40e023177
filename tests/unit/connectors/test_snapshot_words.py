"""How far a snapshot is, on a terminal and elsewhere: of hundreds of tables those that are being read."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable, QueryCanceled
from rich.console import ConsoleDimensions

from cdc.errors import SourceUnavailable
from connectors.captured.captured import Captured
from connectors.postgres import explained
from connectors.snapshots.progress import Progress, SnapshotMeter, TableProgress, Total, total_rows
from connectors.snapshots.signals import Heard
from connectors.snapshots.snapshot import Waiting, is_read
from console.cli.shared import snapshot_bars
from tests.support.connector_cases import pipeline


def names(count: int) -> list[str]:
    return [f"public.t{number:03}" for number in range(count)]


def progress(read: int, *reading: tuple[int, int | None], of: int = 300, done: bool = False) -> Progress:
    """Of a snapshot that has read some tables, and some rows of the next ones; the others are to come."""
    found = [TableProgress(name, 10, 10, done=done, read=True) for name in names(read)]
    found += [TableProgress(name, *rows, done=False) for name, rows in zip(names(of)[read:], reading, strict=False)]
    return Progress((*found, *(TableProgress(name, 0, 9, done=False) for name in names(of)[len(found) :])), done)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(now=1.0, monotonic=lambda: made.now)
    monkeypatch.setattr(snapshot_bars, "time", made)
    return made


def test_a_snapshot_of_many_tables_says_now_and_then_how_many_are_read(
    clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    view = snapshot_bars.SnapshotView(terminal=False)
    for _ in range(2):  # the second one is too soon
        view.show(progress(212, (1, 100), (41, 100), (7, None), (3, 9)))
    clock.now += 6
    view.show(progress(213))
    view.show(progress(300, done=True))  # its end is told at once
    assert capsys.readouterr().err.splitlines() == [
        "snapshot: 212 of 300 tables read, 2,172 rows;"
        " reading public.t213 41 %, public.t214 7 rows, public.t215 33 % and 1 more",
        "snapshot: 213 of 300 tables read, 2,130 rows",
        "snapshot: 300 of 300 tables read, 3,000 rows",
    ]


def test_a_snapshot_of_few_tables_says_each(clock: Any, capsys: pytest.CaptureFixture[str]) -> None:
    view = snapshot_bars.SnapshotView(terminal=False)
    view.show(progress(0, (1, 100), of=12))
    view.show(progress(12, of=12, done=True))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "snapshot public.t000: 1 of about 100 rows"
    assert len(lines) == 13 and lines[-1] == "snapshot public.t011: 10 rows (complete)"


def test_bars_of_many_tables_are_those_being_read() -> None:
    view = snapshot_bars.SnapshotView(terminal=True)
    view.bars.console.size = ConsoleDimensions(80, 8)

    def bars() -> list[tuple[str, float, float | None]]:
        return [(task.description, task.completed, task.total) for task in view.bars.tasks]

    view.show(progress(212, (1, 100), (41, 100)))
    assert bars() == [("tables", 212, 300), ("public.t213", 41, 100), ("public.t212", 1, 100)]
    view.show(progress(213, (50, 100)))
    assert bars() == [("tables", 213, 300), ("public.t213", 50, 100)]
    view.show(progress(0, *((number, 100) for number in range(1, 30))))
    assert len(bars()) == 1 + 8 - 4
    assert [name for name, _, _ in bars()[1:]] == [f"public.t{number:03}" for number in (28, 27, 26, 25)]
    view.show(progress(300, done=True))
    assert bars() == [("tables", 300, 300)]


def test_bars_of_few_tables_are_all() -> None:
    view = snapshot_bars.SnapshotView(terminal=True)
    view.show(progress(3, (1, 100), of=12))
    assert [task.description for task in view.bars.tasks] == names(12)


def test_an_estimate_that_was_too_low_is_told_no_more(clock: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its table stood at 100 % until it was done, for hours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connectors.snapshots.progress.total_rows", lambda *_: Total(100, counted=False))
        servers: Any = SimpleNamespace(setup=None)
        meter = SnapshotMeter(servers, Captured("public.t000", "initial", None, datetime.now(UTC)))
    bars, lines = (snapshot_bars.SnapshotView(terminal=terminal) for terminal in (True, False))
    shown = list[Any]()
    for end in (40, 100, 250):
        clock.now += 6
        now = Progress((meter.measure([end], Heard(), done=False, swept=None),), done=False)
        bars.show(now)
        lines.show(now)
        shown += [(task.completed, task.total) for task in bars.bars.tasks]
    assert shown == [(40, 100), (100, 100), (250, None)]
    assert capsys.readouterr().err.splitlines() == [
        "snapshot public.t000: 40 of about 100 rows",
        "snapshot public.t000: 100 of about 100 rows",
        "snapshot public.t000: 250 rows",
    ]


@pytest.mark.parametrize(
    ("known", "done", "told"),
    [
        (Total(100, counted=True), False, (100, 100)),
        (Total(100, counted=True), True, (100, 100)),
        (Total(100, counted=False), True, (101, None)),  # the planner's guess was told as the rows that were read
        (Total(100, counted=False), False, (101, None)),
        (None, True, (101, None)),
    ],
)
def test_changes_that_come_meanwhile_are_no_rows_of_a_table_that_was_counted(
    monkeypatch: pytest.MonkeyPatch, known: Total | None, done: bool, told: tuple[int, int | None]
) -> None:
    """With the first of them its total was gone; and one that is done told all records of its topic as its rows."""
    monkeypatch.setattr("connectors.snapshots.progress.total_rows", lambda *_: known)
    servers: Any = SimpleNamespace(setup=None)
    meter = SnapshotMeter(servers, Captured("public.t000", "initial", None, datetime.now(UTC)))
    assert meter.measure([40], Heard(), done=False, swept=None).rows == 40
    found = meter.measure([101], Heard(), done=done, swept=None)
    assert (found.rows, found.total) == told


def test_tables_that_are_told_one_by_one_are_many_in_the_end() -> None:
    """While missed deletes are looked for, and nothing else was told yet."""
    view = snapshot_bars.SnapshotView(terminal=True)
    for name in names(40):
        view.show(Progress((TableProgress(name, 5, 9, done=False, sweeping=True),), done=False, sweeps=40))
        view.show(Progress((TableProgress(name, 9, 9, done=False, sweeping=True),), done=False, sweeps=40))
    assert [(task.description, task.completed, task.total) for task in view.bars.tasks] == [("missed deletes", 40, 40)]


def test_a_table_is_read_when_debezium_says_so() -> None:
    at = datetime.now(UTC)
    heard = Heard(statuses={"initial": {"s.a": "SUCCEEDED", "s.x": "SQL_EXCEPTION"}, "id-1": {"s.b": "EMPTY"}})
    assert is_read(heard, Captured("s.a", "initial", None, at))
    assert not is_read(heard, Captured("s.x", "initial", None, at))
    assert not is_read(heard, Captured("s.a", "wanted", None, at)), "that was another time"
    assert is_read(heard, Captured("s.b", "requested", "id-1", at))
    assert not is_read(heard, Captured("s.b", "initial", None, at))


@pytest.mark.parametrize("error", [QueryCanceled, LockNotAvailable])
def test_rows_that_can_not_be_counted_are_not_known(error: type[Exception]) -> None:
    """For a bar that nobody needs `apply --wait` ended with an error, of a lock that nobody had."""

    def execute(query: Any, values: Any = None) -> Any:
        if values is None:
            raise error("canceling statement due to statement timeout")
        return SimpleNamespace(fetchone=lambda: (7.0, 0, 8192))

    assert total_rows(SimpleNamespace(execute=execute), "public.t") is None  # type: ignore[arg-type]


def test_a_statement_that_takes_too_long_is_not_a_lock() -> None:
    with pytest.raises(SourceUnavailable) as slow, explained("looking"):
        raise QueryCanceled("too slow")
    assert slow.value.what == "looking: took longer than 60 s, or somebody has ended it: too slow"
    assert "lock" not in str(slow.value) and "has less to do" in slow.value.fix
    with pytest.raises(SourceUnavailable, match="gave up after waiting 10 s for a lock"), explained("looking"):
        raise LockNotAvailable("lock timeout")


def test_the_wait_tells_which_tables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An initial snapshot's tables are done all at once, at its end: none would be under way, or all."""
    there = {name: Captured(name, "initial", None, datetime.now(UTC)) for name in names(3)}
    heard = Heard(statuses={"initial": dict.fromkeys(names(2), "SUCCEEDED")})
    monkeypatch.setattr("connectors.snapshots.snapshot.read_captured", lambda *_: there)
    monkeypatch.setattr("connectors.snapshots.progress.total_rows", lambda *_: Total(7, counted=True))
    monkeypatch.setattr(Waiting, "finished", lambda *_, **__: set())
    kafka = SimpleNamespace(describe=lambda _: {}, ends=lambda _: {})
    servers: Any = SimpleNamespace(setup=None, names=None, pipeline=pipeline(), kafka=kafka)
    told: list[Progress] = []
    Waiting(servers, SimpleNamespace(catch_up=lambda: heard), told.append).wait(-1)  # type: ignore[arg-type]
    assert [(one.done, one.read) for one in told[0].tables] == [(False, True), (False, True), (False, False)]


def test_a_sweep_tells_how_many_tables_it_has_looked_at(
    monkeypatch: pytest.MonkeyPatch, clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same look in which they are heard to be read: nothing was told of that before it."""
    there = {name: Captured(name, "requested", name, datetime.now(UTC), sweep=True) for name in names(300)}
    heard = Heard(statuses={name: {name: "SUCCEEDED"} for name in there}, chunks=7)
    seen: list[Progress] = []
    view = snapshot_bars.SnapshotView(terminal=False)

    def tell(now: Progress) -> None:
        clock.now += 6
        seen.append(now)
        view.show(now)

    def sweeps(_: Any, tables: list[str], told: Any) -> dict[str, int]:
        for name in tables[:101]:
            told(name, 40, 80)
            told(name, 70, 70)
        told(tables[101], 40, 80)
        return dict.fromkeys(tables, 0)

    monkeypatch.setattr("connectors.snapshots.snapshot.read_captured", lambda *_: there)
    monkeypatch.setattr("connectors.snapshots.snapshot.complete", lambda *_: set(there))
    monkeypatch.setattr("connectors.snapshots.snapshot.sweep_missed", sweeps)
    monkeypatch.setattr("connectors.snapshots.snapshot.end_lost", lambda *_: None)
    monkeypatch.setattr("connectors.snapshots.progress.total_rows", lambda *_: Total(7, counted=True))
    monkeypatch.setattr(Waiting, "_running", lambda _: SimpleNamespace(streaming=True))
    kafka = SimpleNamespace(describe=lambda _: {}, ends=lambda _: {})
    servers: Any = SimpleNamespace(setup=None, names=None, pipeline=pipeline(), kafka=kafka)
    done = Waiting(servers, SimpleNamespace(catch_up=lambda: heard), tell).wait(None)  # type: ignore[arg-type]
    assert done.done and not any(one.sweeping for one in done.tables)
    first, *_, last, end = seen
    assert (len(first.tables), {(one.read, one.sweeping) for one in first.tables}) == (300, {(True, False)})
    assert {(one.sweeps, one.chunks) for one in seen[:-1]} == {(300, 7)} and end == done
    assert [len([one for one in now.tables if one.sweeping]) for now in (first, seen[2], last)] == [0, 1, 102]
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[1], lines[-2]) == (
        "missed deletes: 0 of 300 tables looked at",
        "missed deletes: 0 of 300 tables looked at; looking at public.t000 50 %",
        "missed deletes: 101 of 300 tables looked at; looking at public.t101 50 %",
    )
    assert lines[-1].startswith("snapshot: 300 of 300 tables read")
