"""How long ago something was, by the moment that was noted then. Pure.

The clock may have been put back since, or the moment be of a machine whose clock is ahead: then the difference is less
than nothing, and what is compared with it would seem young for as long as the clock was ahead.
"""

from __future__ import annotations

import math

# Clocks of machines that share a state folder are right to some seconds (docs/scaling.md), and notes that are written
# every second or two count as those of a living process for as long: who is behind by that much sees them as the others
# do. A moment that is further ahead is one of a clock that was put back since.
AHEAD_SECONDS = 15.0


def ago(at: float, now: float) -> float:
    """Seconds since a moment, to be compared: never less than nothing, and infinite for one that is still to come.

    Nobody knows how long ago that was. So it must be safe where this is asked that it was long ago.

    Args:
        at: when (epoch seconds).
        now: epoch seconds.
    """
    return math.inf if at - now > AHEAD_SECONDS else at_least(at, now)


def at_least(at: float, now: float) -> float:
    """Seconds that have passed since a moment at the least: none since one that is still to come.

    To be told, and where something is given up or removed only if it is certainly old.

    Args:
        at: when (epoch seconds).
        now: epoch seconds.
    """
    return max(0.0, now - at)
