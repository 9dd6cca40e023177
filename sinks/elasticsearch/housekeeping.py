"""What is done now and then beside the writes, in a thread of its own: old fences are forgotten.

A view with a condition leaves a fence for each change of a row that does not match it, so a sink that runs for months
would collect them. Every worker's sink looks when it writes; which of them does the work is decided in the fences'
index, so that a worker that lives for a minute does it too if nobody else has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from elastic_transport import TransportError
from elasticsearch import ApiError

from cdc.errors import HeadwaterError
from sinks.elasticsearch.settings import Target

log = logging.getLogger(__name__)


class Housekeeping:
    """One sink's.

    Args:
        work: what is to be done for a target; may take its time, and fail: then it is tried again the next time.
        every_seconds: pause between two turns of a target, of this process.
        clock: seconds, monotonic; replaced in unit tests.
    """

    def __init__(
        self, work: Callable[[Target], None], every_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work, self._every, self._clock = work, every_seconds, clock
        self._due: dict[str, float] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def look(self, target: Target) -> None:
        """Begin a turn if one is due and none is under way; returns at once."""
        if self._clock() < self._due.get(target.view, 0.0):
            return
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            self._due[target.view] = self._clock() + self._every
            # A daemon: a worker must be able to end in the middle of it.
            self._thread = threading.Thread(target=self._run, args=(target,), name="housekeeping", daemon=True)
            self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the turn that is under way."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, target: Target) -> None:
        try:
            self._work(target)
        except (HeadwaterError, ApiError, TransportError) as error:
            # Its writes will say so themselves if that lasts; fences that stay are only many.
            log.warning("old fences of %s were not forgotten this time: %s", target.concrete, error)
