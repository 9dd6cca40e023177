"""What is away when `run` begins is waited for; SIGTERM and --timeout are heeded; what no waiting cures is told."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, patch

import pytest
from confluent_kafka import KafkaError as Refusal
from confluent_kafka import KafkaException
from py4j.clientserver import JavaClient, JavaParameters, PythonParameters
from pyspark import java_gateway
from pyspark.core import context

from cdc import errors
from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import HeadwaterError, KafkaError, KafkaRefused, KafkaUnavailable, StateError
from cdc.log import topic_ids as topicids
from cdc.pipeline import load
from console.cli import run as command
from operations.run import patience
from operations.run.patience import Asked, Stop, Waiting, patiently
from operations.state.folder import register_of
from operations.supervise.wanted import Wanted
from spark.disk.files import disk_full
from spark.disk.process import place
from spark.disk.status import FlowStatus, state_of
from spark.machine import cluster, quiet
from spark.machine.session import _handlers_kept, _none_left
from tests.support.lone_cache import written

TABLE = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
CATALOGUE = Catalogue({"public.t": TABLE}, "1", 1, "d")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(patience, "TELL_SECONDS", 0.05)


def transient() -> Iterator[type[HeadwaterError]]:
    """Every error of ours that may pass by itself."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, HeadwaterError) and kind.transient:
            yield kind


class Attempts:
    """Fails as told, one after the other, and then succeeds."""

    def __init__(self, *fails: BaseException) -> None:
        self.fails, self.said, self.told = list(fails), list[str](), list[str | None]()

    def __call__(self) -> str:
        if self.fails:
            raise self.fails.pop(0)
        return "there"

    def wait(self, stop: threading.Event | None = None, until: float | None = None, *, begun: bool = True) -> str:
        return patiently(self, stop or threading.Event(), self.said.append, self.told.append, until, begun=begun)


@pytest.mark.parametrize("kind", [kind for kind in transient() if kind is not errors.ClusterUnavailable])
def test_whatever_is_transient_is_waited_for(kind: type[HeadwaterError]) -> None:
    attempts = Attempts(*[kind("away\nand more")] * 3)
    assert attempts.wait() == "there"
    assert attempts.said == ["waiting: away"], "one line, not one an attempt"
    assert attempts.told == ["away"] * 3 + [None]


def test_a_disk_without_room_is_waited_for_and_another_refusal_of_the_system_is_not() -> None:
    attempts = Attempts(OSError(errno.ENOSPC, "No space left on device", "/state/x"))
    assert attempts.wait() == "there" and "/state/x is full" in attempts.said[0]
    with pytest.raises(PermissionError):
        Attempts(PermissionError(errno.EACCES, "no", "/state/x")).wait()


@pytest.mark.parametrize("error", [StateError("run by another"), errors.ClusterUnavailable("no executor came")])
def test_what_no_waiting_cures_ends_it(error: HeadwaterError) -> None:
    with pytest.raises(type(error)):
        Attempts(error).wait()


def test_it_gives_up_when_the_time_is_over() -> None:
    began = time.monotonic()
    with pytest.raises(StateError, match="gave up waiting: away"):
        Attempts(*[KafkaUnavailable("away")] * 10_000).wait(until=time.monotonic() + 0.3)
    assert 0.25 < time.monotonic() - began < 3


@pytest.mark.parametrize("kind", [KafkaRefused, errors.SourceRefused])
def test_a_login_that_is_refused_is_waited_for_and_by_who_has_never_run_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, kind: type[HeadwaterError]
) -> None:
    """LDAP was away for a second, and `run` ended; a wrong password is told."""
    wrong = kind("Kafka at h:1 refuses the login")
    assert Attempts(*[wrong] * 5).wait(begun=False) == "there"
    monkeypatch.setattr(patience, "REFUSED_SECONDS", 0.2)
    assert Attempts(*[wrong] * 12, KafkaUnavailable("away"), wrong).wait() == "there"
    attempts = Attempts(*[wrong] * 10_000)
    with pytest.raises(kind):
        attempts.wait(begun=False)
    assert attempts.said == ["waiting: Kafka at h:1 refuses the login"] and len(attempts.fails) > 1


def test_it_ends_when_it_is_asked_to() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Asked):
        Attempts(KafkaUnavailable("away")).wait(stop)


def test_a_signal_breaks_off_what_is_waited_for_while_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a master that gives no executor for a minute and a half."""
    monkeypatch.setattr(cluster, "executors", lambda _spark: 0)
    monkeypatch.setattr(cluster, "ended", lambda _spark: False)
    stop = Stop()
    stop.eager = True
    before = signal.signal(signal.SIGALRM, stop.ask)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    began = time.monotonic()
    try:
        with pytest.raises(Asked):
            cluster.await_executors(cast(Any, SimpleNamespace()))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stop.is_set() and time.monotonic() - began < 5
    stop.ask(signal.SIGTERM, None)  # a second one breaks off nothing: what is being ended is ended in order


# -- what Kafka says ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Refusal.UNKNOWN_TOPIC_OR_PART, KafkaError),
        (Refusal.TOPIC_AUTHORIZATION_FAILED, KafkaError),
        (Refusal.SASL_AUTHENTICATION_FAILED, KafkaError),
        (Refusal._TRANSPORT, KafkaUnavailable),
        (Refusal._TIMED_OUT, KafkaUnavailable),
        (Refusal._ALL_BROKERS_DOWN, KafkaUnavailable),
        (Refusal.LEADER_NOT_AVAILABLE, KafkaUnavailable),
        (Refusal.COORDINATOR_LOAD_IN_PROGRESS, KafkaUnavailable),
        (Refusal.BROKER_NOT_AVAILABLE, KafkaUnavailable),
    ],
)
def test_only_a_topic_that_is_not_there_is_for_apply(
    code: int, kind: type[HeadwaterError], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Admin:
        def __init__(self, _settings: object) -> None:
            pass

        def poll(self, _seconds: float) -> int:
            return 0

        def describe_topics(self, *_: object, **__: object) -> Any:
            def result() -> None:
                raise KafkaException(Refusal(code))

            return {"t": SimpleNamespace(result=result)}

    monkeypatch.setattr(topicids, "AdminClient", Admin)
    with pytest.raises(KafkaError) as caught:
        topicids.topic_ids(load(file), {"t"})
    assert type(caught.value) is kind
    assert ("headwater apply" in str(caught.value)) == (code == Refusal.UNKNOWN_TOPIC_OR_PART)


# -- what status says meanwhile ----------------------------------------------------------------------------------------


def stopped(file: Path) -> Path:
    folder = register_of(load(file), "cache").generation().flow_folder("main")
    folder.mkdir(parents=True)
    FlowStatus("cache/main", "stopped", 1, 7, 3, 3, 0, 0, 0, 0, 0, 0, None, [], 0.0).write(folder)
    return folder


def test_status_says_what_a_process_waits_for(file: Path) -> None:
    folder = stopped(file)
    with Waiting(load(file), ()) as waiting:
        waiting.tell("Kafka does not answer")
        until = time.monotonic() + 5
        while (found := FlowStatus.read(folder)) is None or found.last_error is None:
            assert time.monotonic() < until
            time.sleep(0.02)
    assert (state_of(found), found.last_error, found.pid, found.host) == (
        "retrying",
        "Kafka does not answer",
        os.getpid(),
        place(),
    )
    assert found.batch_id == 7


def test_nothing_is_said_over_a_process_that_has_the_sink(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stopped(file)
    monkeypatch.setattr("spark.disk.lease.Lease.held_by_other", lambda _self: True)
    with Waiting(load(file), ()) as waiting:
        waiting.tell("Kafka does not answer")
        time.sleep(0.4)
    found = FlowStatus.read(folder)
    assert found is not None and found.state == "stopped"


# -- the command -------------------------------------------------------------------------------------------------------


def run(file: Path, *options: str) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", "console.cli", "run", str(file), *options]
    return subprocess.Popen(
        command, cwd=root, env={**os.environ, "PYTHONPATH": root}, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("known", "how"), [(False, signal.SIGINT), (True, signal.SIGTERM)], ids=["Postgres", "Kafka"])
def test_run_waits_and_ends_at_once_when_it_is_told_to(file: Path, known: bool, how: signal.Signals) -> None:
    if known:  # with the tables known from an earlier start, Postgres may be away: Kafka is what is needed
        (file.parent / "state" / "p").mkdir(parents=True)
        (file.parent / "state" / "p" / "catalogue.json").write_text(CATALOGUE.to_json())
    process = run(file)
    assert process.stderr is not None
    try:
        lines = []
        while not lines or '"event":"waiting: ' not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        assert ("Kafka" if known else "Postgres") in lines[-1] and "apply" not in lines[-1]
        began = time.monotonic()
        process.send_signal(how)
        assert process.wait(20) == 0
        assert time.monotonic() - began < 5
    finally:
        process.kill()
        said = process.stderr.read()
        process.stderr.close()
    assert "Traceback" not in said


def test_run_gives_up_when_its_timeout_is_over(file: Path) -> None:
    process = run(file, "--until-caught-up", "--timeout", "1")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and "gave up waiting: Postgres does not answer" in said


def test_run_waits_for_room_for_what_it_finds_out_of_the_tables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table was altered while nothing ran, the disk was full: `run` ended, and said that all goes on by itself."""
    found, said = [disk_full(file), disk_full(file), None], list[str]()

    def catch_up(*_: object) -> None:
        if (error := found.pop(0)) is not None:
            raise error

    def open_engine(*_: object) -> None:
        raise StateError("there was room")

    monkeypatch.setattr(command, "_say", said.append)
    monkeypatch.setattr(command, "_judged", lambda *_: nullcontext())
    monkeypatch.setattr("operations.run.source_watch.SourceWatch", lambda *_: nullcontext())
    monkeypatch.setattr("operations.state.catalogue.source_catalogue", lambda _pipeline: CATALOGUE)
    monkeypatch.setattr("operations.schema.evolving.catch_up", catch_up)
    monkeypatch.setattr("operations.run.engine.open_engine", open_engine)
    with pytest.raises(StateError, match="there was room"):
        command._run(file, Wanted((), Stop(), None, until_caught_up=False, until=None))
    assert found == [] and f"waiting: the disk that holds {file} is full" in said


def test_sparks_session_takes_nobodys_handler_away() -> None:
    """PySpark's own, by Ctrl-C, asked Java over the connection that the main thread was reading: "a defect"."""
    before, module = signal.getsignal(signal.SIGINT), cast(Any, context)
    with _handlers_kept():
        module.signal.signal(module.signal.SIGINT, lambda _number, _frame: None)  # as SparkContext does
        during = signal.getsignal(signal.SIGINT)  # the session is made after its context: that takes a second
    signal.signal(signal.SIGINT, before)
    assert during is before
    assert module.signal is signal, "PySpark's module is as it was"


def test_ctrl_c_while_java_is_asked_prints_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` ended with one above its "interrupted"."""
    quiet.hush()
    asked = JavaClient(JavaParameters(), PythonParameters())
    with (
        patch.object(asked, "_get_connection", return_value=Mock(send_command=Mock(side_effect=KeyboardInterrupt))),
        patch.object(logging.getLogger(), "handlers", [logging.StreamHandler(sys.stderr)]),
        suppress(KeyboardInterrupt, Exception),
    ):
        asked.send_command("c")
    assert "KeyboardInterrupt" not in capsys.readouterr().err


def test_who_ends_while_java_starts_leaves_none() -> None:
    """Ctrl-C two seconds after the start of `run`: its virtual machine lived on, for ever."""
    with pytest.raises(Asked), _none_left():
        process = cast(Any, java_gateway).Popen(["sleep", "60"])
        raise Asked
    assert process.wait(5) == -signal.SIGKILL
    assert cast(Any, java_gateway).Popen is subprocess.Popen


def test_a_signal_that_comes_within_a_wait_locks_nothing_up() -> None:
    """The handler runs in the thread that it has interrupted, which may hold the lock that `set` takes."""
    stop = Stop()
    before = signal.signal(signal.SIGTERM, stop.ask)
    try:
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
            assert stop.is_set()
        assert stop.wait(10)
    finally:
        signal.signal(signal.SIGTERM, before)
