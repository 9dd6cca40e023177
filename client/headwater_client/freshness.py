"""How fresh a read must be: the reader's choice, request by request.

fresh = at_least_as_fresh(current())          # what I wrote myself
fresh = max_staleness(5)                      # at most five seconds old
fresh = whatever                              # as it is
answer = fresh.wait(headwater, sinks=["search"], timeout=1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater_client.waiting import Answer, Headwater


@dataclass(frozen=True)
class Freshness:
    """A choice; made by the functions below.

    Attributes:
        tokens: writes that must be visible.
        seconds: how old what is read may be; None for any age.
    """

    tokens: Sequence[str] = ()
    seconds: float | None = None

    def wait(self, headwater: Headwater, sinks: Sequence[str] = (), **more: Any) -> Answer:
        """Wait until a read is as fresh as that; arguments as ``Headwater.wait``."""
        if self.seconds is not None:
            return headwater.wait_for_age(self.seconds, sinks, **more)
        return headwater.wait(self.tokens, sinks, **more)


def at_least_as_fresh(token: str | Sequence[str] | None) -> Freshness:
    """A read that shows these writes, and everything that was committed before them."""
    if token is None:
        return whatever
    return Freshness((token,) if isinstance(token, str) else tuple(token))


def max_staleness(seconds: float) -> Freshness:
    """A read of what is at most so many seconds old."""
    return Freshness(seconds=seconds)


whatever = Freshness()
