"""A source whose log grows, a slot and a sink that follow it: what is promised of them is held against the commits."""

from __future__ import annotations

from connectors.ledger import LedgerEntry
from operations.freshness.marks import Marks


class GrowingLog:
    """One topic ``t`` of one partition; its offsets are LSNs.

    Attributes:
        now: epoch seconds; a step takes one.
        applied: up to which offset the sink has the topic.
        marks: what is known of the moments.
    """

    def __init__(self) -> None:
        self.now, self.lsn, self.confirmed, self.applied = 1_000.0, 100, 0, 0
        self.commits = [(self.now, self.lsn)]
        self.marks = Marks()

    def step(self, *what: str) -> None:
        """Let all of this happen within a second; other words than these mean nothing here."""
        self.now += 1
        for one in what:
            if one == "commit":
                self.lsn += 10
                self.commits.append((self.now, self.lsn))
            elif one == "look":
                self.marks.note(self.now, self.lsn)
            elif one == "confirm":
                self.confirmed = self.lsn
            elif one == "bound" and self.marks.wanting(self.confirmed):
                self.marks.confirm(LedgerEntry(self.confirmed, {"t": {0: self.confirmed}}))
            elif one == "apply":
                self.applied = self.confirmed
            elif one == "back":  # the clock is put back, and whoever keeps the moments sees that before he looks again
                self.now -= 5
                self.marks.forget_after(self.now)

    def assert_nothing_is_missing(self, as_of: float | None) -> None:
        """All that was committed before a moment, if it is known, has been applied."""
        assert as_of is None or all(lsn <= self.applied for when, lsn in self.commits if when < as_of)
