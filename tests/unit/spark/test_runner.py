"""What the runner says of a flow, and that what it says is so: states, errors, restarts, a disk that is full."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import HeadwaterError, KafkaRefused, SinkRefused, SinkUnavailable
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from console.cli.shared.flow_bars import FlowBars
from operations.status.caught_up import Goal
from spark import failures, log_gaps, runner, running
from spark.disk import files, temporary
from spark.disk.lease import Holder, Lease
from spark.disk.process import signature
from spark.disk.state import UNREAD
from spark.disk.status import BUSY_SECONDS, RESTARTS_KEPT, TURN_SECONDS, FlowStatus, state_of
from spark.flow import Flow, Reading
from spark.join.query import JoinedQuery
from spark.reading.spec import FlowSpec
from spark.runner import Runner
from spark.unread import Look, Mark, Unread
from spark.wanted import refuse_unwanted


def report(batch: int, **counts: int) -> Any:
    return SimpleNamespace(
        batchId=batch,
        durationMs={"addBatch": 5, "triggerExecution": 9},
        observedMetrics={"applied": SimpleNamespace(asDict=lambda: counts)},
        timestamp="2026-11-23T06:00:00.000Z",
    )


IDLE = SimpleNamespace(batchId=0, durationMs={"triggerExecution": 3}, observedMetrics={})


class Query:
    """A streaming query as Spark's looks from outside."""

    def __init__(self) -> None:
        self.recentProgress: list[Any] = []
        self.status: Mapping[str, Any] = {"message": "Initializing sources"}
        self.isActive, self.error, self.waiting = True, "", 0

    def exception(self) -> Exception | None:
        return RuntimeError(self.error) if self.error else None

    def fails(self, error: str) -> None:
        self.isActive, self.error = False, error

    def stop(self) -> None:
        self.isActive = False


class Case:
    """One flow under a runner; ``make`` is what its next start does."""

    def __init__(self, folder: Path) -> None:
        self.flow = Flow(
            "main", FlowSpec("s", {}, {"t": ()}, {}, {}, {}), Reading("", {}, None), folder / "g1" / "main"
        )
        self.queries: list[Query] = []
        self.make: Callable[[], Query] = Query
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
        self.runner = Runner(session, [(self.flow, self._start)], lambda _flow: None)

    def _start(self, _spark: object, _flow: object) -> Any:
        self.queries.append(self.make())
        return self.queries[-1]

    def step(self, *, hurry: bool = False) -> FlowStatus:
        if hurry:
            self.runner.running[0].retry_at = 0.0
        self.runner.step()
        return self.read()

    def read(self) -> FlowStatus:
        found = FlowStatus.read(self.flow.folder)
        assert found is not None
        return found


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def unavailable() -> Query:
    raise SinkUnavailable("sink 's' does not answer")


def refused() -> Query:
    raise SinkRefused("no such index")


def no_login() -> Query:
    raise KafkaRefused("Kafka at h:1 refuses the login")


@pytest.mark.parametrize("ran", ["never", "before", "here"])
def test_a_login_that_is_refused_fails_a_flow_that_never_ran_and_only_after_a_minute(
    case: Case, monkeypatch: pytest.MonkeyPatch, ran: str
) -> None:
    """An LDAP server that was away for a second ended flows for good."""
    if ran == "before":
        case.flow.checkpoint.mkdir(parents=True)
        (case.flow.checkpoint / "metadata").touch()
    if ran == "here":
        case.step()
        case.queries[0].isActive, case.queries[0].error = False, RuntimeError("SaslAuthenticationException: no")
    case.make = no_login
    status = case.step(hurry=True) if ran != "here" else [case.step(), case.step(hurry=True)][-1]
    assert (status.state, status.last_error) == ("retrying", "Kafka at h:1 refuses the login")
    monkeypatch.setattr(running, "REFUSED_SECONDS", 0.0)
    assert case.step(hurry=True).state == ("failed" if ran == "never" else "retrying")


def test_a_login_that_is_refused_fails_no_new_flow_beside_one_that_was_let_in(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that was added to an old pipeline ended for good while the others waited."""
    monkeypatch.setattr(running, "REFUSED_SECONDS", 0.0)
    other = replace(case.flow, folder=case.flow.folder.parent / "other")
    case.runner.add([(other, lambda *_: cast(Any, Query()))])
    case.runner.running[1].started = 1.0
    case.make = no_login
    assert case.step().state == "retrying"


def test_a_refusal_before_an_outage_does_not_count(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.make = no_login
    case.step()
    assert case.runner.running[0].refused_since is not None
    case.make = unavailable
    case.step(hurry=True)
    assert case.runner.running[0].refused_since is None


def test_a_flow_is_starting_until_its_query_is_at_work(case: Case) -> None:
    assert case.step().state == "starting"
    case.queries[0].status = {"message": "Processing new data"}
    assert case.step().state == "running"


def test_an_idle_flow_has_recovered_as_soon_as_it_reads(case: Case) -> None:
    """No batch comes for hours: the error must not stay so long, and not vanish before anything has gone through."""
    case.make = unavailable
    status = case.step()
    assert (status.state, status.last_error) == ("retrying", "sink 's' does not answer")
    case.make = Query
    status = case.step(hurry=True)
    case.queries[0].status = {"message": "Processing new data"}
    assert (case.step().state, status.last_error) == ("retrying", "sink 's' does not answer")
    case.queries[0].recentProgress = [IDLE]
    status = case.step()
    assert (status.state, status.last_error) == ("running", None)


def test_a_failure_for_good_is_failed_and_stays_so_when_the_process_ends(case: Case) -> None:
    case.make = refused
    assert case.step().state == "failed"
    case.runner.stop()
    assert (case.read().state, case.read().last_error) == ("failed", "no such index")


def test_who_is_halted_was_at_no_moment_told_to_end(case: Case) -> None:
    """Between the two words `status` said that somebody had stopped the process, which was alive."""
    case.step()
    assert case.runner.halt({"t": "the table is gone"}) == {"s/main": "t"}
    assert (case.read().state, case.read().last_error) == ("failed", "the table is gone")
    assert case.runner.halt({"t": "the table is gone"}) == {}


def test_who_is_halted_tells_the_newer_reason_in_place_of_its_own_only(case: Case) -> None:
    case.step()
    case.runner.halt({"t": "the view can't be made"})
    case.runner.halt({"t": "the table is gone"})
    case.runner.halt({"t": "nothing to do"}, instead=["somebody else's"])
    assert case.read().last_error == "the view can't be made"
    assert case.runner.halt({"t": "nothing to do"}, instead=["the view can't be made"]) == {}
    assert (case.read().state, case.read().last_error) == ("failed", "nothing to do")


def test_a_flow_that_waits_for_its_next_try_is_stopped_when_the_process_ends(case: Case) -> None:
    case.make = unavailable
    case.step()
    case.runner.stop()
    assert case.read().state == "stopped"


def test_a_machine_that_is_gone_does_not_keep_the_state_from_being_written(case: Case) -> None:
    case.step()

    def gone() -> None:
        raise ConnectionError("the JVM is gone")

    case.queries[0].stop = gone  # type: ignore[method-assign]
    case.runner.stop()
    assert case.read().state == "stopped"


def test_a_fan_out_is_no_fill(case: Case) -> None:
    case.step()
    case.queries[0].waiting, case.queries[0].recentProgress = 7, [IDLE]
    status = case.step()
    assert (status.state, status.deferred) == ("running", 7)


def test_what_another_process_has_taken_over_is_its_own_to_tell_of(case: Case) -> None:
    case.step()
    theirs = replace(case.read(), pid=1, state="running")
    theirs.write(case.flow.folder)
    case.runner.fail(case.flow.folder.parent, "taken over", taken=True)
    case.runner.step()
    case.runner.stop()
    assert case.read() == theirs


@pytest.mark.parametrize(
    "words",
    [
        "java.lang.IllegalStateException: Table UUID does not match: current=a != refreshed=b",
        "org.apache.iceberg.exceptions.NoSuchTableException: Failed to load table happened.scans__g2 from catalog"
        " hw_events: dropped by another process",  # the name was taken away in the middle of a commit
    ],
)
def test_a_table_that_was_renamed_under_its_flow_is_no_failure(case: Case, words: str) -> None:
    """At each promotion of a warehouse `status` showed Java's words about one generation or the other."""
    case.step()
    case.queries[0].fails(words)
    status = case.step()
    assert (status.state, status.last_error, len(case.queries)) == ("starting", None, 2)
    assert status.restarted is not None and "readers see another generation" in str(status.restarted)


def test_a_task_that_a_sink_has_fenced_says_nothing_over_its_successor(case: Case) -> None:
    case.step()
    theirs = replace(case.read(), pid=1)
    theirs.write(case.flow.folder)
    case.queries[0].fails("cdc.errors.Fenced: the generation was taken over by another process")
    assert case.step() == theirs
    assert case.runner.errors


def watch(case: Case, capsys: pytest.CaptureFixture[str]) -> Callable[[FlowStatus, int, int], str]:
    """What `run` prints of a flow whose way is so far."""
    goal = object.__new__(Goal)
    goal.running, goal._ends = case.runner.running, {case.flow.checkpoint: {"t": {0: 0}}}
    made = FlowBars(goal, terminal=False, line_seconds=0.0)

    def printed(status: FlowStatus, done: int, total: int) -> str:
        goal.way = lambda _run: (done, total)  # type: ignore[method-assign]
        made.show([status])
        return capsys.readouterr().err

    return printed


def test_a_share_is_told_of_what_is_known(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    say, status = watch(case, capsys), case.step()
    assert say(status, 0, 0) == "s/main: starting · 0 records\n"
    assert say(replace(status, state="filling"), 0, 0) == "s/main: filling · 0 records\n"
    assert say(replace(status, state="filling", records=3), 3, 12).startswith("s/main: filling · 25% of the log")
    assert "7 documents to be written" in say(replace(status, state="running", deferred=7), 12, 12)
    assert "in 3 days" in say(replace(status, state="running", records=9, warning="in 3 days"), 1, 12)


def test_caught_up_is_who_has_written_what_a_fan_out_has_touched(case: Case) -> None:
    made = object.__new__(Goal)
    made.running, made._ends = case.runner.running, {case.flow.checkpoint: {"t": {0: 0}}}
    case.step()
    case.queries[0].waiting = 7
    assert not made.caught_up()
    case.queries[0].waiting = 0
    assert made.caught_up()


def test_caught_up_is_not_who_has_yet_to_look_for_what_a_fan_out_has_touched(case: Case) -> None:
    """A joined view's flow between two attempts, or just started: its batch is committed, its documents may not be."""
    table = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
    root = Node("v", "root", table, columns=(("id", "id"),))
    joined = JoinedView("v", table, ("id",), root.columns, root=root)
    (run,) = case.runner.running
    run.flow = replace(run.flow, spec=replace(run.flow.spec, views={"v": joined}))
    run.query = None
    assert run.deferred is None
    run.query = cast(Any, SimpleNamespace(waiting=None))
    assert run.deferred is None
    run.query = cast(Any, SimpleNamespace(waiting=0))
    assert run.deferred == 0


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_every_restart_is_counted_and_the_newest_tell_why(case: Case) -> None:
    case.step()
    metrics = (
        'Cannot invoke "scala.collection.IterableOps.map(scala.Function1)" because the return value of "x" is null'
    )
    for error in (metrics, "cdc.errors.SinkUnavailable: it is down"):
        case.queries[-1].fails(error)
        case.step()
        case.step(hurry=True)
    status = case.read()
    assert status.restarts == 2
    first, second = status.restarted
    assert "metrics" in first["reason"] and second["reason"] == "it is down"
    assert abs(second["at"] - time.time()) < 60


def test_restarts_outlive_the_process_and_are_bounded(case: Case, tmp_path: Path) -> None:
    case.make = unavailable
    for _ in range(RESTARTS_KEPT + 5):
        case.step(hurry=True)
    again = Case(tmp_path)
    again.make = unavailable
    status = again.step()
    assert (status.restarts, len(status.restarted)) == (RESTARTS_KEPT + 6, RESTARTS_KEPT)


# -- counts ------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_fill_is_counted_though_nobody_looked_between_it_and_the_first_batch(case: Case) -> None:
    query = object.__new__(JoinedQuery)
    query._fill = cast(Any, SimpleNamespace(reports=[report(0, written=3, records=4), report(1, written=5, records=5)]))
    query._query, query._before = cast(Any, SimpleNamespace(recentProgress=[report(0, written=2, records=2)])), 2
    case.step()
    case.queries[0].recentProgress = list(query.recentProgress)
    status = case.step()
    assert (status.written, status.records, status.batch_id) == (10, 11, 2)


# -- a disk that is full -----------------------------------------------------------------------------------------------


def test_a_status_that_can_not_be_written_ends_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.step()

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        case.flow.folder.joinpath("status.json").unlink()
        case.runner.step()
        assert case.runner.trouble is not None and str(case.flow.folder) in case.runner.trouble
    case.runner.step()
    assert case.runner.trouble is None


def test_a_look_at_the_log_that_can_not_be_noted_ends_nothing(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full disk ended the process within a minute, at its next look."""
    began = time.time()
    looks = [Look(began + 0.001, {"t": {0: 0}})]
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    case.runner = Runner(session, [(case.flow, case._start)], lambda _flow: looks[-1])
    monkeypatch.setattr(log_gaps, "committed_offsets", lambda _checkpoint: (3, {"t": {0: 0}}))
    log_gaps.write_unread(case.flow, Unread((Mark(3, began - 5),)))
    before = (case.flow.folder / UNREAD).read_text()
    case.step()

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert case.step().unread_since == looks[-1].at, "it is known all the same"
        assert case.queries[0].isActive and (case.flow.folder / UNREAD).read_text() == before
    assert log_gaps.read_unread(case.flow, 3).since == began - 5, "the next start takes it for older than it is"
    looks.append(Look(began + 0.002, {"t": {0: 0}}))
    case.step()
    assert log_gaps.read_unread(case.flow, 3).since == looks[-1].at


@pytest.mark.parametrize(
    "text",
    [
        "Caused by: java.io.IOException: No space left on device",
        "org.apache.spark.SparkException\nCaused by: java.io.FileNotFoundException: /x (No space left on device)",
        "java.nio.file.FileSystemException: /x: Disk quota exceeded",
    ],
)
@pytest.mark.parametrize("whose", ["the checkpoint's", "another"])
def test_a_disk_without_room_is_tried_again_and_named(
    case: Case, monkeypatch: pytest.MonkeyPatch, text: str, whose: str
) -> None:
    """Of another one it is only known that it is neither of ours: a warehouse's, or that of a catalogue's database."""
    free = 0 if whose == "the checkpoint's" else 2**40
    monkeypatch.setattr(failures.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    case.step()
    case.flow.checkpoint.mkdir(parents=True, exist_ok=True)
    case.queries[0].fails(text)
    status = case.step()
    named = f"the disk that holds {case.flow.checkpoint} is full" in str(status.last_error)
    assert status.state == "retrying" and named == (free == 0)
    assert named or f"a disk is full, and neither that of {case.flow.checkpoint} nor" in str(status.last_error)


@pytest.mark.parametrize(
    "text",
    [
        "[BUG] Expected sorted snapshot log entries.",
        "[BUG] Expected sorted previous metadata log entries.",
        "Invalid update timestamp 1764000000000: before last snapshot log entry at 1764000120000",
        "Invalid update timestamp 1764000000000: before the latest metadata log entry timestamp 1764000120000",
    ],
)
def test_a_clock_that_is_behind_the_warehouses_newest_commit_is_named(case: Case, text: str) -> None:
    """It was told as a bug of Iceberg's, and nobody looked at the clock of the machine that `run` had been moved to."""
    case.step()
    case.queries[0].fails(
        f"Job aborted\nCaused by: java.lang.IllegalArgumentException: {text}\n\tat org.apache.iceberg"
    )
    status = case.step()
    assert (status.state, status.last_error) == ("retrying", failures.BEHIND)
    assert "clock" in failures.BEHIND and "goes on by itself" in failures.BEHIND


@pytest.mark.parametrize("kind", [SinkUnavailable, SinkRefused])
def test_a_server_whose_disk_is_full_is_told_as_what_it_says(case: Case, kind: type[HeadwaterError]) -> None:
    case.step()
    case.queries[0].fails(f"{failures.name_of(kind)}: sink search: 500 translog_exception: No space left on device")
    status = case.step()
    assert status.state == ("retrying" if kind.transient else "failed")
    assert str(status.last_error).startswith("sink search: 500 translog_exception")


def test_the_disk_that_is_named_is_the_one_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(temporary, "_OWN", {})  # no session of this process's
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "temporary"))
    free = {tmp_path: 2**40, tmp_path / "temporary": 0}
    monkeypatch.setattr(failures.shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path]))
    assert f"{tmp_path}/temporary is full" in failures.no_room(tmp_path, "No space left on device")


def test_a_full_disk_has_room_for_a_new_word_in_place_of_the_old(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a process that waits for room would be called dead, and its lease would run out."""
    case.step()

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    case.queries[0].fails("cdc.errors.SinkUnavailable: it is down")
    assert (case.step().state, case.read().last_error) == ("retrying", "it is down")
    lease = Lease(case.flow.folder.parent, "g")
    (lease.folder / "lease.json").write_bytes(b"{}")
    token = lease.take()
    try:
        holder = lease.holder()
        assert holder is not None and holder.token == token
    finally:
        lease.release()


def test_half_a_file_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_atomic(tmp_path / "a.json", "old")

    def half(self: Path, _target: Path) -> None:
        self.write_text(self.read_text()[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", half)
    with pytest.raises(files.DiskFull, match=str(tmp_path / "a.json")):
        files.write_atomic(tmp_path / "a.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"] and (tmp_path / "a.json").read_text() == "old"


# -- who has it now ----------------------------------------------------------------------------------------------------


def said(state: str, pid: int) -> FlowStatus:
    return FlowStatus("s/main", state, pid, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], time.time())


@pytest.mark.parametrize("state", ["failed", "stopped", "running", "retrying", "finished"])
def test_a_generation_that_a_new_process_holds_is_starting(tmp_path: Path, state: str) -> None:
    """Whatever the process before it has said, or still says when it wakes up."""
    lease = Lease(tmp_path, "g")
    lease.take()
    try:
        assert state_of(said(state, os.getpid() + 100_000), lease.holder()) == "starting"
        assert state_of(None, lease.holder()) == "starting"
        assert state_of(said(state, os.getpid()), lease.holder()) == state
    finally:
        lease.release()
    assert state_of(said("failed", os.getpid() + 100_000), lease.holder()) == "failed"
    assert state_of(None, lease.holder()) == "never run"


def test_a_flow_names_its_process_so_that_other_hosts_and_later_processes_tell_it(case: Case) -> None:
    case.step()
    found = case.read()
    assert {"host": found.host, "pid": found.pid, "started": found.started} == signature()


def test_a_holder_that_is_gone_or_silent_starts_nothing() -> None:
    held = Holder(1, os.getpid(), 0.0, socket.gethostname(), time.time() - 3600)
    nobody = replace(held, pid=2**22 + 1, renewed=time.time())
    states: Sequence[str] = [state_of(said("failed", 7), holder) for holder in (held, nobody, None)]
    assert states == ["failed", "failed", "failed"]


def test_a_process_that_opens_other_flows_is_not_gone() -> None:
    """It tells of no flow meanwhile: `status` called those dead that went on, and told to start `run` again."""
    now = time.time()
    mine = Holder(1, os.getpid(), 0.0, "h", now)
    for ago, holder, state in (
        (10.0, None, "running"),
        (60.0, mine, "running"),
        (BUSY_SECONDS + 5, mine, "dead"),  # it hangs, though a thread of it lives
        (60.0, replace(mine, renewed=now - 60), "dead"),
        (60.0, replace(mine, pid=0), "dead"),
        (60.0, None, "dead"),
    ):
        assert state_of(replace(said("running", os.getpid()), at=now - ago), holder) == state, (ago, holder)


def test_a_flow_that_is_opened_anew_was_not_told_to_end(case: Case) -> None:
    """Only one that is let go was, and only then there is something for a person to do."""
    case.step()
    shown = case.runner.running  # as who shows how far they are has it
    case.runner.remove(case.flow.folder.parent, anew=True)
    assert shown is case.runner.running
    waits = case.read()
    assert (waits.state, state_of(waits)) == ("starting", "starting") and case.runner.running == []
    assert state_of(replace(waits, at=waits.at - 60)) == "starting"  # others are opened before it
    assert state_of(replace(waits, at=waits.at - 2 * BUSY_SECONDS)) == "starting"  # as long as its process is seen
    assert state_of(replace(waits, at=waits.at - 2 * BUSY_SECONDS, host="elsewhere")) == "dead"
    assert state_of(replace(waits, at=waits.at - TURN_SECONDS - 5)) == "dead"
    assert state_of(replace(waits, pid=2**22 + 1)) == "dead"
    case.runner.add([(case.flow, case._start)])
    case.step()
    case.runner.remove(case.flow.folder.parent)
    assert case.read().state == "stopped"


def test_a_batch_that_takes_long_is_told_as_it_gets_on(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warehouse that was only slow was called stalled, and whoever was told so started `run` again."""
    monkeypatch.setattr("spark.pulse.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("spark.pulse.LOOK_SECONDS", 0.0)
    tasks = [0]
    monkeypatch.setattr(runner, "sign_of", lambda _spark, _query: tasks[0])
    case.step()
    case.step()
    assert case.step().got_on == 0
    tasks[0] += 1
    assert (case.step().got_on, case.step().got_on) == (1, 1)


def test_flows_that_are_up_say_so_while_another_one_is_still_being_started(tmp_path: Path) -> None:
    up, slow = Case(tmp_path / "up"), Case(tmp_path / "slow")
    written: list[str] = []

    def slowly() -> Query:
        until = time.monotonic() + 10
        while time.monotonic() < until and not written:
            if FlowStatus.read(up.flow.folder) is not None:
                written.append("up")
            time.sleep(0.05)
        assert FlowStatus.read(slow.flow.folder) is None  # its own start may ask it whether it ever ran
        return Query()

    slow.make = slowly
    up.runner.add([(slow.flow, slow._start)])
    told: list[list[str]] = []
    up.runner.step(lambda statuses: told.append([one.state for one in statuses]))
    assert written == ["up"] and told and all(len(states) == 2 and states[1] == "starting" for states in told)
    assert FlowStatus.read(slow.flow.folder) is not None


def beside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Case, Case, Event]:
    """A flow that is up, and one whose start waits for a sink that answers nothing, until the event is set."""
    monkeypatch.setattr(runner, "STEP_SECONDS", 0.3)
    up, silent, over = Case(folder / "up"), Case(folder / "silent"), Event()

    def silently() -> Query:
        assert over.wait(30)
        return unavailable() if silent.make is silently else silent.make()

    silent.make = silently
    up.runner.add([(silent.flow, silent._start)])
    up.runner.step()
    return up, silent, over


def test_a_start_that_nobody_answers_holds_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent search server's `request_timeout_seconds` was the pace of the whole process: a minute a turn."""
    up, silent, over = beside(tmp_path, monkeypatch)
    up.queries[0].fails("no leader for a moment")
    began = time.monotonic()
    up.runner.step()
    up.step(hurry=True)
    assert len(up.queries) == 2 and time.monotonic() - began < 10
    run = up.runner.running[1]
    assert run.starting and len(up.runner.step()) == 2
    over.set()
    assert run.starts is not None
    run.starts.result(10)
    assert run.retry_at > time.monotonic() - 10 and run.retry_at > began + 1  # the pause begins when the start ends
    assert up.runner.step()[1].state == "retrying" and not silent.queries
    up.runner.stop()


@pytest.mark.parametrize("how", ["stop", "halt", "remove"])
def test_what_ends_a_flow_waits_for_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Its query would run on, and nobody know of it."""
    up, silent, over = beside(tmp_path, monkeypatch)
    late = Query()
    silent.make = lambda: late
    Timer(0.3, over.set).start()
    if how == "stop":
        up.runner.stop()
    elif how == "halt":
        up.runner.halt({"t": "the table is gone"}, silent.flow.folder.parent)
    else:
        up.runner.remove(silent.flow.folder.parent)
    assert silent.queries == [late] and not late.isActive


@pytest.mark.parametrize("how", ["stop", "halt", "fail", "remove"])
def test_what_ends_a_flow_does_not_wait_for_a_start_that_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """`run` could not be ended, nor follow its leases, while a warehouse's catalogue was silent. The query that comes
    in the end is nobody's, and runs no more than one that came in time."""
    monkeypatch.setattr(runner, "ARRIVE_SECONDS", 0.3)
    up, silent, over = beside(tmp_path, monkeypatch)
    late, began, folder = Query(), time.monotonic(), silent.flow.folder.parent
    late.recentProgress = [IDLE]
    silent.make = lambda: late
    start = up.runner.running[1].starts
    assert start is not None
    if how == "stop":
        up.runner.stop()
        assert not up.queries[0].isActive
    elif how == "halt":
        up.runner.halt({"t": "the table is gone"}, folder)
    elif how == "fail":
        up.runner.fail(folder, "taken over")
    else:
        up.runner.remove(folder)
    assert time.monotonic() - began < 10
    assert silent.read().state == ("stopped" if how in ("stop", "remove") else "failed")
    over.set()
    start.result(10)
    wait_for(lambda: not late.isActive)
    assert silent.queries == [late]
    if how in ("halt", "fail"):  # what comes late takes the reason away from nobody
        why = {"halt": "the table is gone", "fail": "taken over"}[how]
        assert [up.runner.step()[1].last_error for _ in range(2)] == [why, why]
        assert (silent.read().state, silent.read().last_error, up.runner.errors) == ("failed", why, {"s/main": why})


def test_a_query_that_comes_as_its_flow_fails_takes_no_reason_away(case: Case) -> None:
    """The start has looked whether it is wanted a moment before it was not."""
    case.step()
    case.runner.halt({"t": "the table is gone"})
    case.queries[0].recentProgress = [IDLE]
    case.runner.running[0].query = cast(Any, case.queries[0])
    assert (case.step().last_error, case.runner.errors) == ("the table is gone", {"s/main": "the table is gone"})


@pytest.mark.parametrize("how", ["stop", "fail", "remove"])
def test_a_lease_is_not_given_back_before_a_late_start_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """`pause` and `drop` said that it was done, and then the server answered: the start made index and folder anew."""
    monkeypatch.setattr(runner, "ARRIVE_SECONDS", 0.3)
    up, silent, over = beside(tmp_path, monkeypatch)
    late, ended, folder = Query(), list[bool](), silent.flow.folder.parent
    silent.make = lambda: late
    if how == "stop":
        up.runner.stop()
    if how == "fail":
        up.runner.fail(folder, "its disk is full")
    if how in ("fail", "remove"):
        up.runner.remove(folder)
    up.runner.once_over(folder, lambda: ended.append(not late.isActive))
    up.runner.once_over(up.flow.folder.parent, lambda: ended.append(False))
    assert ended == [False]  # only who is late is waited for
    over.set()
    wait_for(lambda: ended == [False, True])


def test_a_late_start_writes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ARRIVE_SECONDS", 0.3)
    up, silent, over = beside(tmp_path, monkeypatch)
    ended = list[str]()

    def writes() -> Query:
        refuse_unwanted()
        return Query()

    silent.make = writes
    run = up.runner.running[1]
    up.runner.remove(silent.flow.folder.parent)
    up.runner.once_over(silent.flow.folder.parent, lambda: ended.append("over"))
    over.set()
    wait_for(lambda: ended == ["over"])
    assert not silent.queries and run.last_error is None and run.restarts.count == 0
    up.runner.add([(silent.flow, silent._start)])  # in the same hand, which was refused before
    up.runner.step()
    assert len(silent.queries) == 1
    up.runner.stop()


# Of a process whose flow's start is not answered, and that is told to end.
SILENT = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace as Made
from spark import runner
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
runner.STEP_SECONDS = runner.ARRIVE_SECONDS = 0.2
flow = Flow("main", FlowSpec("s", {}, {"t": ()}, {}, {}, {}), Reading("", {}, None), Path(sys.argv[1]) / "g1" / "main")
session = Made(sparkContext=Made(setLocalProperty=lambda *_: None))
started = threading.Event()
one = runner.Runner(session, [(flow, lambda *_: [started.set(), threading.Event().wait(600)])], lambda _: None)
one.step()
assert started.wait(10)
one.stop()
print("stopped", flush=True)
"""


def test_a_process_whose_sink_is_silent_ends(tmp_path: Path) -> None:
    """The interpreter waited for the start as it ended: a minute with a search server, for ever with a catalogue."""
    command = [sys.executable, "-c", SILENT, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "stopped\n"), ended.stderr


def test_a_query_that_begins_as_its_flow_is_told_to_end_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ARRIVE_SECONDS", 0.3)
    up, silent, over = beside(tmp_path, monkeypatch)
    late, run = Query(), up.runner.running[1]
    silent.make = lambda: late
    up.runner.remove(silent.flow.folder.parent)
    monkeypatch.setattr(run.vigil, "reread", lambda **_: setattr(run, "query", None))
    over.set()
    wait_for(lambda: not late.isActive)
    up.runner.stop()


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_sink_that_is_silent_does_not_keep_others_from_being_started_or_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warehouse has a flow for each view: four of them had all hands, and no other sink was started again."""
    monkeypatch.setattr(runner, "STEP_SECONDS", 0.3)
    monkeypatch.setattr(runner, "ARRIVE_SECONDS", 0.3)
    case, over, up = Case(tmp_path), Event(), Query()

    def silently(*_: object) -> Any:
        assert over.wait(30)
        return Query()

    def of(sink: str, number: int) -> Flow:
        spec = replace(case.flow.spec, sink=sink)
        return replace(case.flow, name=str(number), spec=spec, folder=tmp_path / sink / "g1" / str(number))

    case.runner.running.clear()
    case.runner.add([(of("lake", number), silently) for number in range(runner.HANDS + 1)])
    case.runner.step()
    case.runner.add([(of("search", 0), lambda *_: cast(Any, up))])
    case.runner.step()
    assert case.runner.running[-1].query is up
    began = time.monotonic()
    case.runner.stop()
    assert not up.isActive and time.monotonic() - began < 10
    over.set()
