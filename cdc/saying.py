"""Somebody who wants to know how work goes on: a door that prints lines, a job's journal, a test's list.

Whatever takes more than two seconds takes one of these; below the doors nothing prints.
"""

from __future__ import annotations

from collections.abc import Callable

# Called with one line for people. May be called from several threads at once; must not raise.
Say = Callable[[str], None]


def to_nobody(line: str) -> None:
    """The ``Say`` of work that nobody watches."""
