"""Calls that run behind their caller's back, in order: the next documents are put together while a sink takes these.

A task that waits for its server leaves the processor idle, and there are often fewer tasks than task slots (a topic of
two partitions has two). One thread a task, and few calls ahead: memory stays bounded by the pieces in flight.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Behind(Generic[T]):
    """Runs calls one after the other in a thread of its own.

    After a call has failed none is run any more; ``submit`` and ``finish`` raise what it raised.

    Args:
        ahead: how many calls may wait while one runs.
    """

    def __init__(self, ahead: int = 1) -> None:
        self._todo: queue.Queue[Callable[[], T] | None] = queue.Queue(maxsize=ahead)
        self._done: deque[T] = deque()
        self._error: BaseException | None = None
        self._over = False
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], T]) -> None:
        """Run a call as soon as those before it have ended; waits while too many wait."""
        if self._thread is None:
            # A daemon: a worker whose task has failed must be able to end though a sink waits for its server.
            self._thread = threading.Thread(target=self._run, name="behind", daemon=True)
            self._thread.start()
        self._todo.put(call)
        self._raise()

    def ended(self) -> list[T]:
        """Results that have come since this was last asked, in the order of the calls."""
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def finish(self) -> list[T]:
        """Wait for every call; the results that have not been asked for yet."""
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join()
            self._thread = None
        self._raise()
        return self.ended()

    def abandon(self) -> None:
        """Run none of the calls that wait; does not wait for the one that runs."""
        self._over = True
        if self._thread is not None and self._thread.is_alive():
            while True:
                try:
                    self._todo.put_nowait(None)
                    return
                except queue.Full:
                    try:
                        self._todo.get_nowait()
                    except queue.Empty:
                        continue

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (call := self._todo.get()) is not None:
            if self._error is not None or self._over:
                continue
            try:
                self._done.append(call())
            except BaseException as error:  # handed to the thread that submits
                self._error = error
