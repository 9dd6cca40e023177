"""Threads that work side by side, and keep no process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Hands:
    """Does work in threads of its own, so much at one time at the most. For one thread that submits.

    The interpreter joins the threads of ``concurrent.futures`` as it ends: one that asks a silent server kept the
    process for as long as that takes. These are daemons, and what they are at then is cut, as by a kill.

    Args:
        most: threads.
        name: theirs, with a number.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._work = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Have something done; the result can be cancelled until it is begun."""
        future = Future[T]()
        self._work.put((future, partial(work, *args)))
        if len(self._threads) < self._most:
            name = f"{self._name}_{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()
        return future

    def close(self, *, wait: bool = True) -> None:
        """End the threads once all that was submitted is done.

        Args:
            wait: for that.
        """
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while (one := self._work.get()) is not None:
            _do(*one)
            del one  # what it holds is not kept until there is something to do again


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # whoever asks for the result is told
        future.set_exception(error)
    else:
        future.set_result(result)
