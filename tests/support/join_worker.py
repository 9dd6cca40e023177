"""A task that moves only as it is let, step by step; it may be killed or frozen between any two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crash(BaseException):
    """A worker is killed."""


class PoorDocument(AssertionError):
    """A document was made of a store that had forgotten, and written."""


class Worker:
    """A task in a thread of its own; it moves only as ``advance`` lets it, step by step."""

    def __init__(self, name: str, work: Callable[[Worker], None]) -> None:
        self.name, self._work = name, work
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._kill = False
        self.done = False
        self.frozen = False  # it was given up: another one does its work
        self.confirmed = -1
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._kill:
                self._work(self)
        except Crash:
            pass
        except BaseException as error:  # handed to the test's own thread
            self.error = error
        self.done = True
        self._rest.release()

    def pause(self) -> None:
        """Called by the worker at each step."""
        self._rest.release()
        self._go.acquire()
        if self._kill:
            raise Crash

    def advance(self, steps: int = 1) -> bool:
        """Let it take steps; True once it has finished."""
        for _ in range(steps):
            if self.done:
                break
            self._go.release()
            self._rest.acquire()
        return self.done

    def kill(self) -> None:
        """End it where it stands."""
        self._kill = True
        if not self.done:
            self._go.release()
            self._rest.acquire()
