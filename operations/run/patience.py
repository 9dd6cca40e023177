"""Waiting for what is away when `run` begins, as its flows wait later: a broker's restart must not end it."""

from __future__ import annotations

import _thread
import errno
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeVar

from cdc.errors import ClusterUnavailable, HeadwaterError, KafkaRefused, SourceRefused, StateError
from cdc.log.opening import REFUSED_SECONDS
from cdc.pipeline import Pipeline
from cdc.repeating import Repeating
from cdc.saying import Say
from operations.state.folder import chosen_sinks, register_of
from spark.disk.files import disk_full
from spark.disk.process import signature
from spark.disk.status import FlowStatus

T = TypeVar("T")

# Pauses between two attempts: soon back after a broker's restart, and cheap for an hour.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
# How often it is said what is waited for, and how often `status` is told: it calls a silent process dead after 15 s.
SAY_SECONDS, TELL_SECONDS = 30.0, 5.0


class Asked(BaseException):
    """The process was asked to end while it was not yet in a loop that looks."""


class Stop(threading.Event):
    """Set by SIGTERM and SIGINT. While ``eager``, the signal also breaks off whatever the main thread waits for."""

    eager = False
    asked = False

    def is_set(self) -> bool:
        """Whether it was asked, from that moment on; who waits hears of it a moment later."""
        return self.asked or super().is_set()

    def ask(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """The handler.

        Raises:
            Asked: the first time, while eager.
        """
        first, self.asked = not self.asked, True
        # Not here: the signal may have come while this very thread was within `wait`, with the lock that `set` takes,
        # and the process would hear no signal any more.
        _thread.start_new_thread(self.set, ())
        if first and self.eager:
            raise Asked


def patiently(
    attempt: Callable[[], T],
    stop: threading.Event,
    say: Say,
    tell: Callable[[str | None], None] = lambda reason: None,
    until: float | None = None,
    *,
    begun: bool = True,
) -> T:
    """What ``attempt`` gives, once what it needs is there.

    Args:
        attempt: may be made again after any transient error.
        stop: ends the waiting.
        say: is told now and then what is waited for.
        tell: is told what is waited for after each attempt, and None at the end.
        until: when to give up, on the monotonic clock.
        begun: a sink was run before; else a login that Kafka or Postgres refuse for a minute is one that is wrong.

    Raises:
        Asked: ``stop`` was set.
        StateError: it is ``until`` (terminal).
        KafkaRefused, SourceRefused: nothing has ``begun``, and brokers or database let nobody in.
        HeadwaterError: what no waiting cures; and a cluster of Spark's, whose virtual machine has to be started anew.
    """
    pause, said, before = FIRST_PAUSE, 0.0, ""
    let_in = time.monotonic()
    while True:
        try:
            found = attempt()
        except (HeadwaterError, OSError) as error:
            reason = _curable(error)
            if not isinstance(error, (KafkaRefused, SourceRefused)):
                let_in = time.monotonic()
            elif not begun and time.monotonic() - let_in >= REFUSED_SECONDS:
                raise
        else:
            tell(None)
            return found
        now = time.monotonic()
        tell(reason)
        if reason != before or now - said > SAY_SECONDS:
            say(f"waiting: {reason}")
            said, before = now, reason
        if until is not None and now >= until:
            raise StateError(f"gave up waiting: {reason}", fix="start what is away; or give --timeout more seconds")
        if stop.wait(pause if until is None else max(0.0, min(pause, until - now))):
            raise Asked
        pause = min(pause * 2, LONGEST_PAUSE)


def _curable(error: HeadwaterError | OSError) -> str:
    """What is waited for, in a line; raises the error again if no waiting cures it."""
    if isinstance(error, OSError):
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise error
        error = disk_full(Path(str(error.filename or "")))
    if not error.transient or isinstance(error, ClusterUnavailable):
        raise error
    return error.what.splitlines()[0]


class Waiting:
    """A context manager that tells `status` what its sinks wait for, as long as there is something.

    Only of generations that no process holds: whoever holds one tells of it himself.

    Args:
        pipeline: the loaded file.
        only: the sinks; none for all.
    """

    def __init__(self, pipeline: Pipeline, only: Sequence[str]) -> None:
        self._pipeline, self._only = pipeline, only
        self._reason: str | None = None
        self._keeping = Repeating("waiting", self._keep, lambda: 0.2 if self._reason is None else TELL_SECONDS)

    @property
    def begun(self) -> bool:
        """Whether one of the sinks was run before."""
        registers = [register_of(self._pipeline, sink) for sink in chosen_sinks(self._pipeline, self._only)]
        return any(one.generation(number).started for one in registers for number in one.kept())

    def tell(self, reason: str | None) -> None:
        """For ``patiently``."""
        self._reason = reason

    def __enter__(self) -> Waiting:
        self._keeping.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeping.stop()
        self._keeping.join(TELL_SECONDS)

    def _keep(self) -> None:
        if (reason := self._reason) is not None:
            with suppress(OSError, HeadwaterError):  # a full disk, say, which is what is waited for then
                self._write(reason)

    def _write(self, reason: str) -> None:
        for sink in chosen_sinks(self._pipeline, self._only):
            register = register_of(self._pipeline, sink)
            for number in register.kept():
                generation = register.generation(number)
                if generation.lease.held_by_other():
                    continue
                for flow in generation.flows():
                    folder = generation.flow_folder(flow)
                    status = FlowStatus.read(folder)
                    if status is not None:
                        now = replace(status, state="retrying", last_error=reason, at=time.time(), **signature())
                        now.write(folder)
