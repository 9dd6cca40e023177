"""How long a sink waits for its server, and how it tells.

Back-off is exponential with full jitter: after an outage every executor's tasks would otherwise come back in step and
knock the server over again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from cdc.errors import SinkUnavailable
from cdc.waits import waiting_for
from sinks.contract import OnWait

# The first repeat comes soon (a dropped idle connection is the usual cause); the cap bounds how late a recovered server
# is noticed.
FIRST_SECONDS = 0.05
CAP_SECONDS = 10.0


_lock, _made = threading.Lock(), 0


def repeats() -> int:
    """How often anything in this process has waited to try again, since it began."""
    return _made


def _repeating() -> None:
    global _made  # noqa: PLW0603 (workers tell by the difference what a task has cost)
    with _lock:
        _made += 1


def quiet(_reason: str) -> None:
    """The default ``on_wait``: say nothing."""


class Patience:
    """One request's patience: ``hold`` sleeps a growing while, or gives up when no progress was made for too long.

    Args:
        who: named in the error, e.g. ``sink 'search' (Elasticsearch at http://…)``.
        give_up_seconds: None waits for ever, which is what a pipeline wants; tests and interactive verbs set a bound.
        on_wait: told the reason before each sleep.
        stop: set by ``Sink.close``; ends the sleep at once.
        clock: seconds, monotonic; replaced in unit tests.
    """

    def __init__(
        self,
        who: str,
        *,
        give_up_seconds: float | None = None,
        on_wait: OnWait = quiet,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._who, self._give_up, self._on_wait, self._clock = who, give_up_seconds, on_wait, clock
        self._stop = stop or threading.Event()
        self._attempt = 0
        self._since: float | None = None

    def progress(self) -> None:
        """Something was accepted: start counting afresh."""
        self._attempt, self._since = 0, None

    def hold(self, reason: str) -> None:
        """Wait before the next try.

        Raises:
            SinkUnavailable: no progress for ``give_up_seconds``, or the sink is being closed.
        """
        now, reason = self._clock(), reason.rstrip("; ")  # a server's own words may end so
        if self._since is None:
            self._since = now
        waited = now - self._since
        if self._stop.is_set() or (self._give_up is not None and waited >= self._give_up):
            raise SinkUnavailable(
                f"{self._who} is not available: {reason.removeprefix(f'{self._who}: ')}",
                means="the batch is held, nothing was skipped; "
                + ("the sink was closed." if self._stop.is_set() else f"gave up after {waited:.0f} s."),
                fix="mend that, or bring the server back (`headwater ps` shows local ones): `headwater run` tries "
                "again by itself, any other command is to be given again.",
            )
        _repeating()
        self._on_wait(reason)
        pause = random.uniform(0, min(CAP_SECONDS, FIRST_SECONDS * 2 ** min(self._attempt, 16)))  # noqa: S311
        if self._give_up is not None:
            pause = min(pause, max(self._give_up - waited, 0.001))
        self._attempt += 1
        with waiting_for(self._who):
            self._stop.wait(pause)
