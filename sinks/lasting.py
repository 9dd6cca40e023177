"""How long a server is waited for that works by itself: as long as it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.saying import Say

# The first line comes after a moment, the others so long after each other.
FIRST_SECONDS, SAY_SECONDS = 2.0, 5.0


class Lasting:
    """Of work whose length is the server's size, what is bounded is only for how long nothing of it changes.

    Args:
        seconds: after so long without a change it is late.
        say: told now and then how far it is.
        clock: seconds, monotonic; replaced in unit tests.
    """

    def __init__(self, seconds: float, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._say, self._clock = seconds, say, clock
        self._seen: object = self
        self._until, self._next = clock() + seconds, clock() + FIRST_SECONDS

    def late(self, seen: object, words: str) -> bool:
        """Whether it has not gone on for too long.

        Args:
            seen: what is another while it goes on.
            words: how far it is.
        """
        now = self._clock()
        if seen != self._seen:
            self._seen, self._until = seen, now + self._seconds
        if now > self._next:
            self._say(words)
            self._next = now + SAY_SECONDS
        return now > self._until
