"""A word on standard error while a command that only asks is kept waiting: a silent one seems to hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import click

from cdc.saying import Say
from cdc.waits import waited_for

F = TypeVar("F", bound=Callable[..., Any])
# Seconds after which a person begins to wonder, and then between two words.
FIRST_SECONDS = 2.0
NEXT_SECONDS = 10.0


def patient(function: F) -> F:
    """Decorate a verb that prints what it has found at its end."""

    @wraps(function)
    def verb(*args: Any, **options: Any) -> Any:
        with saying_why():
            return function(*args, **options)

    return verb  # type: ignore[return-value]


@contextmanager
def saying_why(say: Say | None = None, first: float = FIRST_SECONDS) -> Iterator[None]:
    """Say after ``first`` seconds inside the block what is waited for, and again from time to time.

    Args:
        say: takes each line; by default to standard error, so that ``--json`` stays one document.
        first: seconds.
    """
    done = threading.Event()
    speaker = threading.Thread(target=_speak, args=(done, say or _to_stderr, first), daemon=True)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()


def _speak(done: threading.Event, say: Say, first: float) -> None:
    began, pause = time.monotonic(), first
    while not done.wait(pause):
        pause, now = NEXT_SECONDS, time.monotonic()
        wait = waited_for()
        # A question of a moment is not what lasts.
        if wait is not None and now - wait.began >= first / 2:
            say(f"waiting for {wait.what} ({now - wait.began:.0f} s)")
        else:
            say(f"still at work ({now - began:.0f} s)")


def _to_stderr(line: str) -> None:
    click.echo(line, err=True)
