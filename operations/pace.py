"""How far a long piece of work is, how fast it goes and how long it will take: a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.saying import Say

# Between two lines.
LINE_SECONDS = 5.0


def left_of(seconds: float) -> str:
    """A time that is left, for people: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 7200 else f"{seconds / 3600:.1f} h left"


def pace(done: float, total: float, came: float, seconds: float) -> str:
    """``, 12,000/s, 3 min left``; nothing when it is done or has not begun.

    Args:
        done: how far it is.
        total: how far it has to go.
        came: how much of ``done`` came in ...
        seconds: ... this time.
    """
    if came <= 0 or done >= total or seconds <= 0:
        return ""
    rate = came / seconds
    return f", {rate:,.0f}/s, {left_of((total - done) / rate)}"


class Pace:
    """Tells of one piece of work.

    Args:
        say: told a line.
        what: what is counted, ``rows compared``.
        clock: seconds; for tests.
    """

    def __init__(self, say: Say, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._what, self._clock = say, what, clock
        self._begun = clock()
        self._due = self._begun + LINE_SECONDS
        self._first: int | None = None

    def at(self, done: int, total: int) -> None:
        """Where it is now; said when the last line is some seconds old.

        Args:
            done: so many.
            total: of about so many; 0 if nobody knows. An estimate may be too low: then it is not told any more.
        """
        if self._first is None:
            self._first = done
        now = self._clock()
        if now < self._due:
            return
        self._due = now + LINE_SECONDS
        known = 0 < total >= done
        of, share = (f" of about {total:,}", f" ({100 * done // total}%)") if known else ("", "")
        gone = pace(done, total, done - self._first, now - self._begun)
        self._say(f"  {done:,}{of} {self._what}{share}{gone}")
