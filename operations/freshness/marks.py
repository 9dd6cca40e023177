"""How old what readers see is: measured from the commits in Postgres, not from the log. Pure.

Now and then it is noted how far the source's log goes. Once the slot has confirmed that place, the topics' ends are
noted with it; a sink that has applied those has everything that was committed before the moment of the note. A
connector that is dead confirms nothing, so what readers see grows older, though no record waits for anybody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from cdc.token import History, differs
from connectors.ledger import LedgerEntry
from operations.freshness.log import Look

# Between two moments: while somebody waits the source is looked at far more often.
BETWEEN_SECONDS = 0.25
# For so long each moment is kept; of older ones those that lie in between two that are no further apart than this: who
# is that far behind is told an age that is too great by less than that, and never one that is too small.
RECENT_SECONDS, APART_SECONDS = 120.0, 10.0
# How often older ones are gone through.
THINNED_SECONDS = 60.0
# A sink that is further behind than this is as old as the oldest mark says, at least: more than an hour, also while
# somebody waits all the time.
KEPT = 1_200


@dataclass(frozen=True)
class Mark:
    """A moment.

    Attributes:
        at: epoch seconds; everything that was committed before it …
        lsn: … lies at or before this place of the source's log, in bytes, …
        entry: … and, once the slot has come there, below these ends of the topics.
    """

    at: float
    lsn: int
    entry: LedgerEntry | None = None


class Marks:
    """The moments of the last while, all of one history of the database.

    Attributes:
        history: whose places in the log these are; None while the database has not said it.
    """

    def __init__(self) -> None:
        self.history: History | None = None
        self._marks: deque[Mark] = deque(maxlen=KEPT)
        self._thinned = 0.0  # when (epoch seconds)

    def seen(self, look: Look) -> Marks:
        """These, with what a look at the source has found; others where the database is in another history by now.

        Places of the one mean nothing in the other: an address that leads to another cluster, whose log is longer and
        whose slot has come past such a place, would bind a moment of the former one at once. Whoever holds these still
        finds in them what was true.
        """
        if look.history is None:  # a standby: others commit meanwhile, and it does not say how far
            return self
        other = self.history is not None and differs(self.history, look.history)
        marks = Marks() if other else self
        marks.history = look.history
        marks.note(look.at, look.standing.insert_lsn)
        return marks

    def note(self, at: float, lsn: int) -> None:
        """Note how far the source's log went: ``at`` was read before ``lsn`` was asked for."""
        self.forget_after(at)
        newest = self._marks[-1] if self._marks else None
        if newest is not None and newest.lsn == lsn:
            # Nothing was written since: what has the earlier moment has this one.
            self._marks[-1] = replace(newest, at=at)
        elif newest is None or at - newest.at >= BETWEEN_SECONDS:
            self._marks.append(Mark(at, lsn))
            if abs(at - self._thinned) >= THINNED_SECONDS:
                self._thinned = at
                self._marks = deque(_thinned(self._marks, at), maxlen=KEPT)

    def forget_after(self, now: float) -> None:
        """Forget moments that are still to come: the clock was put back, and what is committed by then is not there."""
        if self._marks and self._marks[-1].at > now:
            self._marks = deque((mark for mark in self._marks if mark.at <= now), maxlen=KEPT)

    def wanting(self, confirmed_lsn: int) -> bool:
        """Whether a moment waits for the topics' ends, and the slot has come to it."""
        return any(mark.entry is None and mark.lsn <= confirmed_lsn for mark in self._marks)

    def confirm(self, entry: LedgerEntry) -> None:
        """Note the topics' ends with all moments that the slot has come to."""
        entry = _sharing(entry, self.last(), [mark.entry for mark in self._marks if mark.entry is not None])
        for at, mark in enumerate(self._marks):
            if mark.entry is None and mark.lsn <= entry.lsn:
                self._marks[at] = replace(mark, entry=entry)

    def newest(self, reached: Callable[[LedgerEntry], bool]) -> float | None:
        """The newest moment whose ends were reached (epoch seconds); None if none was.

        Args:
            reached: asked of some; who has reached one has reached all that are older.
        """
        # While a table is read again the entries do not tell of it, and those from before a topic was made anew are of
        # other offsets: by themselves, as those of before and after are, or a search that halves would end at one of
        # them and never see what is newer.
        alike: dict[Hashable, list[tuple[float, LedgerEntry]]] = {}
        for mark in list(self._marks):
            if mark.entry is not None:
                alike.setdefault(_kind(mark.entry), []).append((mark.at, mark.entry))
        ends = [(known, bisect_left(known, True, key=lambda one: not reached(one[1]))) for known in alike.values()]
        return max((known[end - 1][0] for known, end in ends if end), default=None)

    def since(self, at: float) -> Mark | None:
        """The oldest moment that is not before another one; None if there is none."""
        return next((mark for mark in list(self._marks) if mark.at >= at), None)

    def last(self) -> LedgerEntry | None:
        """The ends that were noted last."""
        return next((mark.entry for mark in reversed(list(self._marks)) if mark.entry is not None), None)

    @property
    def bound(self) -> float | None:
        """The newest moment whose ends were noted: what was committed before is in the log; None if none was."""
        return next((mark.at for mark in reversed(list(self._marks)) if mark.entry is not None), None)


def _thinned(marks: Iterable[Mark], now: float) -> list[Mark]:
    """All recent moments, and of older ones those that are far enough apart. Of each sort the last stays, so also the
    newest whose ends are known: what a flow lacks is measured by those, however long the slot stands."""
    sorts: dict[Hashable, list[Mark]] = {}
    for mark in marks:
        kept = sorts.setdefault(_sort(mark), [])
        if len(kept) > 1 and now - kept[-1].at > RECENT_SECONDS and mark.at - kept[-2].at <= APART_SECONDS:
            kept.pop()
        kept.append(mark)
    return sorted(chain.from_iterable(sorts.values()), key=lambda mark: mark.at)


def _sort(mark: Mark) -> Hashable:
    return None if mark.entry is None else _kind(mark.entry)


def _kind(entry: LedgerEntry) -> Hashable:
    """What entries have in common whose ends can be compared; ids that are equal are the same ones (``_sharing``)."""
    return frozenset(entry.silent), id(entry.ids)


def _sharing(entry: LedgerEntry, last: LedgerEntry | None, known: Iterable[LedgerEntry]) -> LedgerEntry:
    """The same entry, in which what has not changed is that of an earlier one: of hundreds of topics some are written
    at a time, and a thousand entries would hold the names, ids and ends of all the others a thousand times.

    Args:
        entry: the new one.
        last: the one before it.
        known: all: topics may go and come back, and their ids are again those of before.
    """
    if last is None:
        return entry
    ends = {topic: same if (same := last.offsets.get(topic)) == end else end for topic, end in entry.offsets.items()}
    different = {id(one.ids): one.ids for one in known}
    return replace(
        entry,
        offsets=last.offsets if last.offsets == ends else ends,
        silent=last.silent if last.silent == entry.silent else entry.silent,
        ids=next((ids for ids in different.values() if ids == entry.ids), entry.ids),
    )
