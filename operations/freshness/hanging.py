"""Transactions in the log that do not end: who reads committed records sees nothing that is written behind them.

Such a partition has records above the end of what may be read, and that end stands still. A producer that died without
a word leaves one for a minute (its ``transaction.timeout.ms``); one that the brokers have lost sight of (KIP-890) for
good, until somebody aborts it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdc.log.ends import Offsets

# A partition whose end stands for so long (seconds) holds a transaction that hangs; and how often that is looked for.
STANDS_SECONDS, LOOK_SECONDS = 90.0, 10.0


class Hanging:
    """What is known of partitions whose transactions are under way. Used by one thread, and read by others."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], tuple[int, float]] = {}
        self._looked = self._answered = float("-inf")

    def look(self, ask: Callable[[], tuple[Offsets, Offsets]], now: float) -> None:
        """See how the partitions are, unless that was just done.

        Args:
            ask: gives the ends of what is written, and then those of what may be read; its errors are passed on.
            now: seconds of a clock that is never put back.
        """
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        written, readable = ask()
        # Whether it stood while brokers gave no answer nobody has seen: that is no time of its standing. What lies
        # between two looks is, as ever: else one would never stand where brokers answer only now and then.
        gap = now - self._answered
        unseen = gap - LOOK_SECONDS if gap > 2 * LOOK_SECONDS else 0.0
        found = {}
        for topic, parts in readable.items():
            for part, end in parts.items():
                if end < written.get(topic, {}).get(part, 0):
                    before, since = self._since.get((topic, part), (end, now))
                    found[topic, part] = (end, min(since + unseen, now) if before == end else now)
        self._since, self._answered = found, now

    def forget(self) -> None:
        """All flows get on: nothing hides anything from them."""
        self._since = {}

    def of(self, topics: Collection[str], now: float) -> str | None:
        """Where one of these topics is hidden by a transaction that hangs, as ``topic, partition N``; None nowhere."""
        known, seen = sorted(self._since.items()), min(self._answered, now)  # brokers that are silent end nothing
        stuck = (place for place, (_, since) in known if place[0] in topics and seen - since >= STANDS_SECONDS)
        return next((f"{topic}, partition {part}" for topic, part in stuck), None)


def hidden(place: str) -> tuple[str, str]:
    """In words what a transaction that hangs does, and what to do about it. Pure."""
    topic, _, part = place.rpartition(", partition ")
    there = f"--topic {topic} --partition {part}"
    return (
        f"a transaction in the log does not end, and hides all that was written after it: topic {place}",
        f"`kafka-transactions.sh --bootstrap-server … find-hanging {there}` shows it, and `… abort {there}"
        " --start-offset N` ends it; what is behind it is read then by itself",
    )
