"""How old the oldest change may be that a flow has not read yet. Pure.

A compacted topic forgets a deleted key's tombstone some time after it was written (``delete.retention.ms``). A reader
that is further behind than that may never hear of the delete, and no gap in the offsets tells it so: it must know by
itself how old what it has not read may be. Neither of two simple measures does:

- *The newest commit.* A flow that is caught up commits nothing for weeks, and has missed nothing.
- *The age of the next record.* Compaction has removed the old ones: the next is one that is young enough to be there.

What does: now and then the ends of the log are looked at, and the moment is noted before. A flow that has come to the
ends of such a look has read everything written up to that moment; whatever it has not read is younger.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

from cdc.log.ends import Offsets, reached
from spark.disk.notes import offsets_of_json

# Looks that were not reached yet are kept this far apart: the answer is late by a hundredth of the retention at most.
PARTS = 100
# How many batches a checkpoint may be put back by, and a little more (spark.sql.streaming.minBatchesToRetain).
MARKS = 60


class Look(NamedTuple):
    """The log's ends, topic -> partition -> offset, as they were at a moment (epoch seconds) or after it."""

    at: float
    ends: Offsets


class Mark(NamedTuple):
    """Once ``batch`` is committed, nothing that was written before ``since`` (epoch seconds) is left to read."""

    batch: int
    since: float


@dataclass(frozen=True)
class Unread:
    """What a flow knows of what it has not read.

    Attributes:
        marks: by batch, the newest last; never empty. Older ones are for a checkpoint that is put back.
        looks: at the log, oldest first, whose ends the flow has not reached yet.
    """

    marks: tuple[Mark, ...]
    looks: tuple[Look, ...] = ()

    @property
    def since(self) -> float:
        """What has not been read was written after this moment (epoch seconds)."""
        return self.marks[-1].since

    def after(self, batch: int, committed: Offsets, look: Look, apart: float) -> Unread:
        """The same after another look at the log.

        Args:
            batch: the newest committed batch.
            committed: its end offsets.
            look: the new one.
            apart: seconds between looks that are kept.
        """
        reach = [seen.at for seen in (*self.looks, look) if reached(committed, seen.ends)]
        looks = tuple(seen for seen in self.looks if not reached(committed, seen.ends))
        if look.at not in reach and (not looks or look.at - looks[-1].at >= apart):
            looks = (*looks, look)
        return replace(self, looks=looks).known(batch, max(reach, default=0.0))

    def known(self, batch: int, since: float) -> Unread:
        """The same, when it is known that nothing from before ``since`` is unread after ``batch``."""
        newest = Mark(max(batch, self.marks[-1].batch), max(since, self.since))
        before = [mark for mark in self.marks if mark.batch < newest.batch]
        far = [mark for mark in before if mark.batch < newest.batch - MARKS]
        return replace(self, marks=(*far[-1:], *before[len(far) :], newest))

    def put_back(self, batch: int) -> Unread | None:
        """The same for a checkpoint whose newest committed batch is ``batch``; None if that is not remembered.

        A joined view's checkpoint is put back when its row store has lost writes (spark/join/health.py).
        """
        marks = tuple(mark for mark in self.marks if mark.batch <= batch)
        return self if len(marks) == len(self.marks) else Unread(marks) if marks else None

    def by(self, now: float) -> Unread:
        """The same without moments after ``now`` (epoch seconds).

        A clock that was ahead has written them. They are told of as now: nobody would be late before they have passed.
        """
        marks = tuple(mark._replace(since=min(mark.since, now)) for mark in self.marks)
        return Unread(marks, tuple(look._replace(at=min(look.at, now)) for look in self.looks))

    def to_json(self) -> str:
        """For the disk."""
        return json.dumps({"marks": self.marks, "looks": self.looks})

    @classmethod
    def from_json(cls, text: str) -> Unread:
        """What ``to_json`` wrote.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        found = json.loads(text)
        marks = tuple(Mark(int(batch), float(since)) for batch, since in found["marks"])
        if not marks:
            raise ValueError("no marks")
        return cls(marks, tuple(Look(float(at), offsets_of_json(ends)) for at, ends in found["looks"]))
