"""Sweeps for missed deletes and requests to read again that come in between, without a server."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from cdc.errors import LogGap, SourceError, SourceUnavailable
from connectors import resnapshot
from connectors.captured.captured import Captured
from connectors.database.visibility import Visible
from connectors.resnapshot import Wish
from connectors.snapshots import cut_snapshot, missed_deletes, signals, snapshot
from connectors.snapshots.progress import Total
from connectors.snapshots.signals import Heard
from connectors.snapshots.snapshot import Waiting
from tests.support.killed import killed_in_a_fork

REQUESTED = Captured("s.t", "requested", "one", datetime(2026, 1, 1, tzinfo=UTC), sweep=True)


class Connector:
    """Kafka Connect, and what was asked of it and of the lock."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        return lambda *_: self.asked.append(verb)

    @contextmanager
    def changing(self, _: Any) -> Iterator[None]:
        self.asked.append("lock")
        yield
        self.asked.append("unlock")


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Connector:
    made = Connector()
    for module in (cut_snapshot, missed_deletes, resnapshot):
        monkeypatch.setattr(module, "changing", made.changing)
        monkeypatch.setattr(module, "wait_ready", lambda _: made.asked.append("wait_ready"))
    return made


def servers(connector: Connector) -> Any:
    pipeline = SimpleNamespace(source=SimpleNamespace(publication="p", outbox=None), topic=lambda table: table)
    described = {"s.t": SimpleNamespace(name="s.t", partitions=1)}
    kafka = SimpleNamespace(describe=lambda _: described, ends=lambda _: {})
    return SimpleNamespace(
        pipeline=pipeline, kafka=kafka, connect=connector, connector="c", setup=None, source=None, names=None
    )


STANDS_STILL = ["lock", "stop", "wait_stopped", "delete", "resume", "wait_ready", "unlock"]


def test_the_connector_stands_still_for_one_sweep_at_a_time(
    monkeypatch: pytest.MonkeyPatch, connector: Connector
) -> None:
    class Found:
        table, suspects = SimpleNamespace(qualified="s.t"), 1

        def __init__(self, *_: Any) -> None: ...

        def suspect(self, _: Any) -> None: ...

        def delete(self) -> int:
            connector.asked.append("delete")
            return 1

    monkeypatch.setattr(missed_deletes, "Ghosts", Found)
    monkeypatch.setattr(missed_deletes, "read_catalogue", lambda *_: SimpleNamespace(tables={"s.t": None}))
    assert missed_deletes.sweep_missed(servers(connector), ["s.t"]) == {"s.t": 1}
    assert connector.asked == STANDS_STILL


def test_what_a_killed_sweep_has_kept_is_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, tmp_path: Path
) -> None:
    """A hundred bytes a record of the topic stayed in /tmp at each kill."""

    class Killed:
        suspects = 0

        def __init__(self, _servers: Any, _table: Any, folder: Path) -> None:
            self.folder = folder

        def suspect(self, _: Any) -> None:
            self.folder.mkdir()
            if dying:
                os.kill(os.getpid(), signal.SIGKILL)

    dying = True
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(missed_deletes, "Ghosts", Killed)
    monkeypatch.setattr(missed_deletes, "read_catalogue", lambda *_: SimpleNamespace(tables={"s.t": None}))
    killed_in_a_fork(lambda: missed_deletes.sweep_missed(servers(connector), ["s.t"]))
    assert len(list(tmp_path.iterdir())) == 1
    dying = False
    missed_deletes.sweep_missed(servers(connector), ["s.t"])
    assert list(tmp_path.iterdir()) == []


def test_what_a_cut_snapshot_left_is_swept_by_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, connector: Connector
) -> None:
    def swept(*_: Any) -> int:
        connector.asked.append("delete")
        return 1

    monkeypatch.setattr(cut_snapshot, "snapshot_position", lambda _: 1)
    monkeypatch.setattr(cut_snapshot, "_sweep", swept)
    assert cut_snapshot.sweep(servers(connector), ["s.t"]) == {"s.t": 1}
    assert connector.asked == STANDS_STILL


def test_a_table_that_was_asked_for_again_while_it_was_swept_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, connector: Connector
) -> None:
    kept = {"s.t": REQUESTED}

    def complete(_: Any, __: Any, ___: str, entries: list[Captured]) -> set[str]:
        return {entry.table for entry in entries if kept[entry.table] == entry}

    def swept(*_: Any) -> dict[str, int]:
        if len(sweeps) == 0:  # somebody else's `run` has seen a partition that was detached
            kept["s.t"] = replace(REQUESTED, signal_id="two")
        sweeps.append("s.t")
        return {"s.t": 0}

    sweeps: list[str] = []
    monkeypatch.setattr(snapshot, "complete", complete)
    monkeypatch.setattr(snapshot, "sweep_missed", swept)
    monkeypatch.setattr(snapshot, "read_connector", lambda *_: SimpleNamespace(status=None, streaming=True))
    waiting = Waiting(servers(connector), cast(Any, None), lambda _: None)
    heard = Heard(statuses={"one": {"s.t": "SUCCEEDED"}})
    assert waiting.finished(heard, dict(kept), clean=True) == set()
    assert waiting.finished(heard, dict(kept), clean=True) == set(), "the newer one is not read yet"
    heard.statuses["two"] = {"s.t": "SUCCEEDED"}
    assert waiting.finished(heard, dict(kept), clean=True) == {"s.t"} and len(sweeps) == 2


REFUSED = SourceError("s.t: row-level security would hide rows from the role")


@pytest.mark.parametrize("at", ["suspect", "delete"])
def test_a_table_that_can_not_be_swept_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, at: str
) -> None:
    class Found:
        suspects = 1

        def __init__(self, _: Any, table: str, __: Path) -> None:
            self.table = table

        def suspect(self, _: Any) -> None:
            self.refuse("suspect")

        def delete(self) -> int:
            self.refuse("delete")
            return 7

        def refuse(self, now: str) -> None:
            if self.table == "s.t" and now == at:
                raise error

    error: SourceError = REFUSED
    monkeypatch.setattr(missed_deletes, "Ghosts", Found)
    monkeypatch.setattr(missed_deletes, "read_catalogue", lambda _, of: SimpleNamespace(tables={of[0]: of[0]}))
    assert missed_deletes.sweep_missed(servers(connector), ["s.t", "s.u"]) == {"s.t": REFUSED, "s.u": 7}
    assert connector.asked == [one for one in STANDS_STILL if one != "delete"], "once for all of them"
    error = SourceUnavailable("no answer")
    with pytest.raises(SourceUnavailable):
        missed_deletes.sweep_missed(servers(connector), ["s.t", "s.u"])


@pytest.mark.parametrize("only", [(), ("s.t",), ("s.u",)])
def test_who_waits_for_other_tables_is_not_told_of_one_that_can_not_be_swept(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, only: tuple[str, ...]
) -> None:
    """Each ALTER of any table had it read again for ever, and no `resnapshot` of another one came to its end."""
    kept = {name: replace(REQUESTED, table=name, signal_id=name) for name in ("s.t", "s.u")}

    def complete(_: Any, __: Any, ___: str, entries: list[Captured]) -> set[str]:
        kept.update({entry.table: replace(entry, state="done", sweep=False) for entry in entries})
        return {entry.table for entry in entries}

    monkeypatch.setattr(snapshot, "complete", complete)
    monkeypatch.setattr(snapshot, "sweep_missed", lambda *_: {"s.t": REFUSED, "s.u": 7})
    monkeypatch.setattr(snapshot, "read_connector", lambda *_: SimpleNamespace(status=None, streaming=True))
    monkeypatch.setattr(snapshot, "read_captured", lambda *_: dict(kept))
    monkeypatch.setattr("connectors.snapshots.progress.total_rows", lambda *_: Total(7, counted=True))
    ended: list[str] = []
    monkeypatch.setattr(snapshot, "end_lost", lambda *_: ended.append("lost"))
    made = servers(connector)
    made.kafka.describe = lambda _: {}
    heard = Heard(statuses={name: {name: "SUCCEEDED"} for name in kept})
    waiting = Waiting(made, cast(Any, SimpleNamespace(catch_up=lambda: heard)), lambda _: None, only)
    if only == ("s.u",):
        done = waiting.wait(None)
        assert done.done and [(one.table, one.swept) for one in done.tables] == [("s.u", 7)]
    else:
        with pytest.raises(SourceError, match="would hide rows"):
            waiting.wait(None)
    assert (kept["s.t"].state, kept["s.u"].state) == ("requested", "done")
    assert ended == [], "what was lost is not all swept"


def asked_again(
    monkeypatch: pytest.MonkeyPatch,
    connector: Connector,
    wish: Wish,
    said: list[str],
    captured: dict[str, Captured],
    settled: dict[str, Captured],
    gap: LogGap | None = None,
) -> dict[str, Any]:
    """Do it; what is left unswept of it (the rest: ``connector.asked``).

    Args:
        said: gets its lines.
        captured, settled: the list as it is at first, and once what has become complete is noted.
        gap: that it finds.
    """
    asked: dict[str, Any] = {}
    made = servers(connector)

    def replaced(name: str, answer: Any) -> None:
        def called(*_: Any, **__: Any) -> Any:
            connector.asked.append(name)
            return answer

        monkeypatch.setattr(resnapshot, name, called)

    running = SimpleNamespace(config={}, offset={}, status=None)
    monkeypatch.setattr(resnapshot, "open_servers", lambda _: nullcontext(made))
    for name, answer in {
        "read_captured": captured,
        "read_connector": running,
        "read_slot": None,
        "read_catalogue": None,
        "refuse_keys": set(),
        "plan_schema": [],
        "find_changes": {},
        "find_gaps": {},
        "_gap": gap,
        "_settled": settled,
        "_lost_behind": (0, 0),
        "make_slot_anew": 16,
        **dict.fromkeys(("run_all", "_start", "_note", "request")),
    }.items():
        replaced(name, answer)
    for name in ("refuse_foreign", "refuse_renamed", "refuse_other_database", "refuse_empty", "check_condition"):
        monkeypatch.setattr(resnapshot, name, lambda *_: None)
    monkeypatch.setattr(resnapshot, "Begins", lambda _: SimpleNamespace(note=lambda _: None))
    monkeypatch.setattr(resnapshot, "leave_unswept", lambda _, __, tables: asked.__setitem__("left", tables))
    made.pipeline.name, made.pipeline.source.slot, made.pipeline.source.database = "p", "s", "d"
    resnapshot.resnapshot(made.pipeline, wish, said.append)
    return asked


@pytest.mark.parametrize(
    ("wish", "left"),
    [
        (Wish(["s.t", "s.u"], sweep=False), ["s.t"]),
        (Wish(["s.t"]), []),
        (Wish(["s.t"], "k = 1", sweep=False), []),  # of other rows
        (Wish([], sweep=False), []),  # of all, to close a gap: killed, the same command goes on, and sweeps
    ],
)
def test_a_table_that_can_not_be_swept_is_let_go_of(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, wish: Wish, left: list[str]
) -> None:
    """`--no-sweep`, which the refusal advises, changed nothing of a table that was being read again already."""
    captured = {"s.t": REQUESTED, "s.u": replace(REQUESTED, table="s.u", state="done", sweep=False)}
    said: list[str] = []
    asked = asked_again(monkeypatch, connector, wish, said, captured, captured)
    assert asked.get("left", []) == left and "request" in connector.asked
    assert said == [f"{name}: being read again already; missed deletes are left alone" for name in left]


@pytest.mark.parametrize("gap", [None, LogGap("slot s is gone")])
def test_it_is_done_by_one_at_a_time_from_the_first_look_on(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, gap: LogGap | None
) -> None:
    """`--all` replaced the slot that an `apply` beside it was making, or that another `--all` had just made."""
    captured = {"s.t": replace(REQUESTED, state="done", sweep=False)}
    asked_again(monkeypatch, connector, Wish([]), [], captured, captured, gap)
    looked, did = connector.asked.index("read_slot"), "_start" if gap is None else "make_slot_anew"
    assert connector.asked.index("lock") < looked < connector.asked.index(did) < connector.asked.index("request")
    assert connector.asked[-1] == "unlock" and connector.asked.count("lock") == 1


def test_of_a_table_that_has_been_swept_meanwhile_nobody_says_that_it_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, connector: Connector
) -> None:
    """What was being read as the command began may be read, and swept, by the time that it looks."""
    said: list[str] = []
    settled = {"s.t": replace(REQUESTED, state="done", sweep=False)}
    asked = asked_again(monkeypatch, connector, Wish(["s.t"], sweep=False), said, {"s.t": REQUESTED}, settled)
    assert "left" not in asked and said == []


def test_a_sweep_of_a_compacted_topic_comes_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compaction leaves offsets without a record: it stood at 90 % of them for good."""
    ghosts = object.__new__(missed_deletes.Ghosts)
    ghosts.table, ghosts.folder = cast(Any, SimpleNamespace(qualified="s.t")), tmp_path / "0"
    ghosts.kafka, ghosts.topic = cast(Any, None), cast(Any, SimpleNamespace(name="s.t", partitions=1))
    ghosts.read, ghosts.total, ghosts.buckets = {}, 10, 1
    left = SimpleNamespace(key=lambda: None, offset=lambda: 3)
    monkeypatch.setattr(missed_deletes, "records", lambda *_: [left] * 9)
    told: list[tuple[str, int, int]] = []
    ghosts._spill("all", lambda *now: told.append(now))
    assert told == [("s.t", 9, 9)]


STARTED = b'{"aggregate_type": "Initial Snapshot", "type": "STARTED", "id": "x"}'


def message(offset: int, value: bytes | None) -> Any:
    """A record, or the end of the topic."""
    error = SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF) if value is None else None
    return SimpleNamespace(error=lambda: error, offset=lambda: offset, value=lambda: value)


@pytest.mark.parametrize(
    ("messages", "forgotten"),
    [
        ([message(0, STARTED), message(1, None)], False),
        ([message(0, None)], False),  # nothing was said yet
        ([message(1, STARTED), message(2, None)], True),
        ([message(2, None)], True),  # all of it is gone
    ],
)
def test_an_attempt_that_nobody_remembers_may_have_left_rows(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, messages: list[Any], forgotten: bool
) -> None:
    """Notifications are kept for a week: who had not waited for the end by then had tables completed, and not swept."""
    consumer = SimpleNamespace(assign=lambda _: None, poll=lambda _: messages.pop(0), close=lambda: None)
    monkeypatch.setattr(signals, "encoding_of", lambda _: SimpleNamespace(loads=json.loads))
    pipeline = cast(Any, SimpleNamespace(source=SimpleNamespace(reader=lambda: None), notification_topic="n"))
    heard = signals.Notifications(cast(Any, SimpleNamespace(consumer=lambda: consumer)), pipeline).catch_up()
    assert heard.forgotten == heard.interrupted == forgotten
    monkeypatch.setattr(snapshot, "complete", lambda _, __, ___, entries: {entry.table for entry in entries})
    monkeypatch.setattr(snapshot, "ask_rewritten", lambda *_: set())
    monkeypatch.setattr(snapshot, "has_skipped", lambda *_: False)
    monkeypatch.setattr(snapshot, "read_connector", lambda *_: SimpleNamespace(status=None, streaming=True))
    entries = {"s.t": replace(REQUESTED, state="initial")}
    found = Waiting(servers(connector), cast(Any, None), lambda _: None).finished(heard, entries, clean=False)
    assert found == (set() if forgotten else {"s.t"})


def test_a_row_whose_transaction_can_not_be_seen_yet_is_no_missed_delete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was deleted, at its own position: from all sinks and from each that is ever built."""

    def record(number: int, transaction: int | None) -> Any:
        snapshot = "false" if transaction else "incremental"
        source = {"txId": transaction, "snapshot": snapshot, "lsn": 8 * number, "sequence": None}
        value = json.dumps({"op": "u", "source": source}).encode()
        return SimpleNamespace(key=lambda: b"%d" % number, value=lambda: value, offset=lambda: number)

    records = [record(1, 41), record(2, 42), record(3, None), record(4, 44)]
    table = {b"4"}
    ghosts = object.__new__(missed_deletes.Ghosts)
    ghosts.table, ghosts.folder = cast(Any, SimpleNamespace(qualified="s.t")), tmp_path / "0"
    ghosts.kafka, ghosts.topic = cast(Any, None), cast(Any, SimpleNamespace(name="s.t", partitions=1))
    ghosts.read, ghosts.total, ghosts.buckets, ghosts.suspects = {}, 10, 1, 0
    ghosts.source = cast(Any, None)
    ghosts.encoding = cast(Any, SimpleNamespace(loads=json.loads, dumps=lambda event, _: event))
    check = SimpleNamespace(connection=None, absent=lambda keys: [key for key in keys if key not in table])
    ghosts.check = cast(Any, check)
    written: list[Any] = []
    monkeypatch.setattr(missed_deletes, "records", lambda *_: iter([records.pop(0) for _ in records[:]]))
    monkeypatch.setattr(missed_deletes, "read_moment", lambda _: SimpleNamespace(wal_lsn=1))
    monkeypatch.setattr(missed_deletes, "read_visible", lambda _: Visible(1000, frozenset({42, 43})))
    monkeypatch.setattr(missed_deletes, "write_deletes", lambda _, __, events: written.extend(events) or len(written))
    check.any_row = lambda: True
    ghosts.suspect(lambda *_: None)
    assert ghosts.suspects == 3
    records.append(record(3, 43))  # changed since the first look, and hidden again
    assert ghosts.delete() == 1
    assert [key for _, key, _ in written] == [b"1"]
    assert (written[0][2]["op"], written[0][2]["source"]["lsn"]) == ("d", 8)
