"""A worker that was away must not go on: on a cluster its batch has been given to another one meanwhile.

One row's changes are applied by one worker at a time; that is what the order of steps is proved for. A machine that is
paused and wakes up breaks it: what it still does for its old batch comes between the steps of later ones. So a task
that has not touched the store for longer than a cluster's patience gives up, as a lease's holder does. So does a task
of plain views before it writes: a delete whose record does not tell its place in the log is done at whatever is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.errors import SinkUnavailable

# A standalone master gives a silent worker up after 60 s, of which 15 may have passed since its last heartbeat; YARN,
# Kubernetes and the driver itself wait for longer.
AWAY_SECONDS = 40.0


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine sleeps, as ``time.monotonic`` does not


class Awake:
    """Watches the time between two steps of a task.

    Args:
        limit: seconds that may pass; 0 to watch nothing.
        clock: seconds that never go back; replaced in unit tests.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = _clock) -> None:
        self._limit, self._clock = limit, clock
        self._last: float | None = None

    def begin(self) -> None:
        """A task begins; before the first one nothing is watched (the driver's own calls are no task's)."""
        self._last = self._clock() if self._limit else None

    def check(self) -> None:
        """Call it before each step. Not after: a pause in the middle of one must be seen before the next.

        Raises:
            SinkUnavailable: too much time has passed since the step before (transient: the batch is done again).
        """
        if self._last is None:
            return
        now = self._clock()
        away = now - self._last
        if away > self._limit:  # and so for whatever this task tries after it
            raise SinkUnavailable(
                f"a worker was away for {away:.0f} s in the middle of a batch",
                means="another worker may do its batch by now, so it has stopped; nothing is lost",
                fix="nothing, if it was paused or its machine slept; a sink that answers this slowly is overloaded",
            )
        self._last = now
