"""Whether records come into the log while the slot stands still, as those of one large transaction do.

Debezium confirms what it has brought into the log commit by commit, so that the slot says nothing of a transaction
before its end: ten million rows of one are minutes. A connector that hangs brings nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc.log.ends import Offsets

# How often that is looked for: it is a question for each topic, about a slot that stands still anyway.
LOOK_SECONDS = 5.0


class Streaming:
    """What is known of the topics' ends while the slot stands still. Used by one thread."""

    def __init__(self) -> None:
        self._ends: Offsets | None = None
        self._looked = float("-inf")

    def look(self, ask: Callable[[], Offsets], now: float) -> bool:
        """See how far the topics go, unless that was just done.

        Args:
            ask: gives the ends of what is written; its errors are passed on.
            now: seconds of a clock that is never put back.

        Returns:
            Whether records have come since the last look.
        """
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        before, self._ends = self._ends, None  # without an answer it begins anew
        self._ends = ask()
        return before is not None and before != self._ends

    def forget(self) -> None:
        """The slot moves: what comes into the log by then is of transactions that have ended."""
        self._ends = None
