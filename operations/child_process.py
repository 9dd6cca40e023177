"""A function of ours in a process of its own: what it says, what it returns and the error that it raises come back.

Not by fork: our processes have threads, and perhaps a JVM. What is handed over and back is pickled.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, TypeVar

from cdc.errors import HeadwaterError
from cdc.saying import Say

T = TypeVar("T")
# A process that was asked to end has a Spark session to close; one that does not listen is killed.
END_SECONDS = 30.0


class Apart(Generic[T]):
    """Work in a process of its own, from here on until ``end``, or until the process that wants it is no more.

    Args:
        work: a function that can be imported by its name; called with one for its lines, then with ``arguments``.
        arguments: pickled.
    """

    def __init__(self, work: Callable[..., T], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(sender, work, arguments))
        self._process.start()
        sender.close()
        self._outcome: tuple[T | None, HeadwaterError | None] | None = None
        self._said: list[str] = []

    def __enter__(self) -> Apart[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def lines(self) -> list[str]:
        """What it has said since the last call."""
        self.ended()
        said, self._said = self._said, []
        return said

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether its result is there; it is waited for no longer than this (seconds)."""
        until = time.monotonic() + seconds
        while self._outcome is None and self._receiver.poll(max(until - time.monotonic(), 0.0)):
            self._receive()
        return self._outcome is not None

    def follow(self, say: Say, between: Callable[[], object]) -> None:
        """Tell all that it says, until its result is there.

        Args:
            say: told a line each.
            between: called between two looks: it waits, and raises if the result is not wanted any more.
        """
        while not self.ended():
            for line in self.lines():
                say(line)
            between()
        for line in self.lines():  # what it said last
            say(line)

    def result(self) -> T:
        """What it returns; waits for it.

        Raises:
            HeadwaterError: what it has raised; or that it has ended without a word.
        """
        while self._outcome is None:
            self._receive()
        value, error = self._outcome
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _receive(self) -> None:
        try:
            line, value, error = self._receiver.recv()
        except EOFError:
            self._process.join()
            why = f"a process of {sys.argv[0]} ended without a word (exit code {self._process.exitcode})"
            self._outcome = None, HeadwaterError(why, fix="run the same command again")
            return
        if line is None:
            self._outcome = value, error
        else:
            self._said.append(line)

    def ask(self) -> None:
        """Ask it to end, and wait for nothing. Idempotent."""
        if self._outcome is None and self._process.is_alive():
            self._process.terminate()

    def end(self, seconds: float | None = None) -> None:
        """End it if it has not ended: one that has not after this long is killed. Idempotent."""
        self.ask()
        self._process.join(END_SECONDS if seconds is None else seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._receiver.close()


# Starts a function in a process of its own, as ``Apart`` does; tests have another.
Start = Callable[..., Apart[Any]]


def end_all(processes: Iterable[Apart[Any]]) -> None:
    """End several in the time of one: what stops us (systemd, docker) kills before three have closed their Spark one
    after the other."""
    asked, until = list(processes), time.monotonic() + END_SECONDS
    for one in asked:
        one.ask()
    for one in asked:
        one.end(max(0.0, until - time.monotonic()))


def _work(sender: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who waits, who then ends this one
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_when_orphaned, name="orphaned", daemon=True).start()

    def tell(line: str | None, value: Any = None, error: HeadwaterError | None = None) -> None:
        with suppress(BrokenPipeError):  # nobody wants it any more
            sender.send((line, value, error))

    try:
        tell(None, work(tell, *arguments))
    except HeadwaterError as error:
        tell(None, error=error)
    except Exception as error:
        tell(None, error=HeadwaterError(f"{type(error).__name__}: {error}"))
        raise


def _when_orphaned() -> None:
    """One that was killed could not tell us: then we end as if it had."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    os._exit(1)


def _leave(_signal: int, _frame: object) -> None:
    """As an exception, so that what is open is closed on the way; once. Who ends us asks twice, and a second one would
    break off the closing: a virtual machine that is just being started would live on for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)
