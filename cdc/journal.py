"""What a line of this process's log is about. (The log of changes is something else: ``cdc.log``.)

Rooms say what happens through Python's ``logging``, or hand sentences to whoever called them (``say``). Neither knows
who reads them: a door decides whether they become JSON (console/log_lines.py, docs/logs.md). What a line is about goes
with it in one of two ways: ``about`` binds it to all that the thread says inside a block, and a ``Line`` takes it along
with a sentence that is said later, elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from structlog.contextvars import bound_contextvars

# Every line says these; null where they mean nothing. The batch is Spark's number of it in the flow.
CONTEXT = ("pipeline", "sink", "generation", "flow", "batch")


def about(**what: Any) -> AbstractContextManager[None]:
    """While it lasts, lines of this thread are about this, too. A thread that is begun inside knows nothing of it.

    Args:
        what: names of ``CONTEXT`` and what they are; names, numbers and counts, never what a row holds.
    """
    return bound_contextvars(**what)


class Line(str):
    """A sentence that knows what it is about.

    Attributes:
        about: names of ``CONTEXT``, and figures, as ``about`` takes them.
    """

    about: Mapping[str, Any]

    def __new__(cls, text: str, **what: Any) -> Self:  # noqa: D102 (the class says it)
        line = super().__new__(cls, text)
        line.about = what
        return line


def after(prefix: str, line: str) -> Line:
    """A sentence with something before it, about the same."""
    return Line(prefix + line, **what_of(line))


def what_of(line: str) -> Mapping[str, Any]:
    """What a sentence is about; nothing for plain text."""
    return line.about if isinstance(line, Line) else {}


def all_about(lines: Iterable[str], **what: Any) -> list[str]:
    """Sentences, all of them about this, too."""
    return [Line(line, **{**what, **what_of(line)}) for line in lines]


def telling(say: Callable[[str], Any], **what: Any) -> Callable[[str], None]:
    """``say`` for a callee whose sentences are all about one thing.

    Args:
        say: is told each sentence as a ``Line``.
        what: as ``about`` takes it.
    """

    def told(line: str) -> None:
        say(Line(line, **{**what, **what_of(line)}))

    return told
