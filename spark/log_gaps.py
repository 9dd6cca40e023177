"""Does the log still have what comes next? Looked at before a flow starts and while it runs: nobody says so later.

A flow that is further behind than the log remembers deletes (``delete.retention.ms``) may miss one for ever, whether
its process was away, its sink was, or one batch has waited all the time (spark/unread.py says how that is known).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from cdc.ages import ago, at_least
from cdc.errors import DiskFull, KafkaError, LogTruncated, StateError, TooLate
from cdc.log.ends import LogEnds, Offsets, removed
from cdc.repeating import Repeating
from spark.disk.checkpoint import committed_offsets
from spark.disk.files import write_atomic
from spark.disk.filling import load
from spark.disk.state import UNREAD, rebuild_command
from spark.flow import Flow
from spark.shorter import SHORTER_FIX, flow_bounds, furthest
from spark.unread import PARTS, Look, Mark, Unread

DAY = 86400.0
# How often the log's ends are looked at while flows run, and a smaller part of a short retention.
LOOK_SECONDS = 60.0
# Epoch seconds; not 0, which is not known.
LONG_AGO = 1.0


def look_seconds(retention: float) -> float:
    """Seconds between two looks at the log."""
    return min(LOOK_SECONDS, retention / PARTS)


def check_log(flow: Flow) -> None:
    """Compare a flow's place with the log.

    Raises:
        LogTruncated: the log begins after it, or ends before it (terminal).
        TooLate: changes from before the log's memory of deletes are not read yet, or were read too late (terminal).
        KafkaUnavailable: no answer (transient).
    """
    batch, committed = committed_offsets(flow.checkpoint)
    unread = read_unread(flow, batch)
    log = LogEnds(flow.reading.bootstrap, flow.reading.client)
    try:
        now = time.time()
        who, fix = f"sink {flow.spec.sink}: {flow.title}", SHORTER_FIX + rebuild_command(flow.spec.sink)
        ask, place = partial(log.bounds, committed or flow.spec.topics), furthest(flow, batch, committed)
        first, ends = flow_bounds(ask, flow, place, who, fix)
        _refuse_truncated(flow, first, committed)
        _refuse_passed(flow, unread, batch)
        unread = unread.after(batch, committed, Look(now, ends), flow.reading.tombstone_seconds / PARTS)
        if now - unread.since > flow.reading.tombstone_seconds:
            certain = log.written_since(ends, committed)
            unread = unread if certain is None else unread.known(batch, min(certain, now))
    finally:
        log.close()
    write_unread(flow, unread)
    away = now - unread.since
    if away > flow.reading.tombstone_seconds:
        raise _too_late(flow, f"{flow.title} has not caught up for {away / DAY:.1f} days")


def _refuse_truncated(flow: Flow, first: Offsets, committed: Offsets) -> None:
    if (found := removed(first, committed)) is not None:
        topic, part, at = found
        raise LogTruncated(
            f"sink {flow.spec.sink}: {topic}/{part} begins at {first[topic][part]}, {flow.title} is at {at}",
            means="records that it has not read were removed from the log; nothing was written past them",
            fix="`headwater apply FILE --wait` reads the rows of such a table into the log again, then "
            + rebuild_command(flow.spec.sink),
        )


def _refuse_passed(flow: Flow, unread: Unread, batch: int) -> None:
    if _passed(flow, unread, batch):
        away = ((_committed_at(flow.folder, batch) or 0.0) - unread.since) / DAY
        raise _too_late(flow, f"{flow.title} had not caught up for {away:.1f} days, and has read on since")


def _passed(flow: Flow, unread: Unread, batch: int) -> bool:
    """Whether a batch was committed when it was too late already: the whole machine slept, and woke up reading."""
    ended, most = _committed_at(flow.folder, batch), flow.reading.tombstone_seconds
    return ended is not None and ended > unread.since + most + look_seconds(most)


def _too_late(flow: Flow, what: str) -> TooLate:
    return TooLate(
        f"sink {flow.spec.sink}: {what}; the log remembers deletes for {flow.reading.tombstone_seconds / DAY:.1f}",
        means="rows deleted meanwhile might stay in the target for ever; nothing more was written",
        fix=rebuild_command(flow.spec.sink),
    )


# -- on disk -----------------------------------------------------------------------------------------------------------


def read_unread(flow: Flow, batch: int) -> Unread:
    """What is known of a flow whose newest committed batch is ``batch``.

    Without its file (an earlier version has run it), or with a checkpoint that was put back to before all that the file
    knows, the end of that batch has to do; a new flow has the whole log before it, and reads it from now on.
    """
    # A file of an earlier life says nothing: its target and checkpoint were removed.
    known = None if batch < 0 and flow.is_new else _noted(flow.folder, batch)
    if known is not None:
        return known
    since = _last_done(flow.folder, batch)
    return Unread((Mark(batch, time.time() if since is None else since),))


def unread_since(folder: Path) -> float | None:
    """Nothing that a flow has not read was written before this (epoch seconds), for others than the flow itself.

    Args:
        folder: the flow's.

    Returns:
        None if nothing there tells: it has not run on this machine.
    """
    batch, _ = committed_offsets(folder / "checkpoint")
    known = _noted(folder, batch)
    return _last_done(folder, batch) if known is None else known.since


def _noted(folder: Path, batch: int) -> Unread | None:
    try:
        known = Unread.from_json((folder / UNREAD).read_text()).put_back(batch)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return None if known is None else known.by(time.time())


def _last_done(folder: Path, batch: int) -> float | None:
    ended = _committed_at(folder, batch)
    return ended if ended is not None else _fill_begun(folder)


def write_unread(flow: Flow, unread: Unread) -> None:
    """Remember it."""
    write_atomic(flow.folder / UNREAD, unread.to_json())


def _committed_at(folder: Path, batch: int) -> float | None:
    try:
        ended = (folder / "checkpoint" / "commits" / str(batch)).stat().st_mtime
    except FileNotFoundError:
        return None
    return min(ended, time.time())  # under a clock that was ahead it ended in what is still to come


def _fill_begun(folder: Path) -> float | None:
    """A fill reads the log up to where it ended at its beginning; the live flow goes on from there.

    Of one that was begun in what is still to come nobody knows when that was: long ago, or it would never be too late.
    """
    try:
        fill = load(folder)
    except StateError:
        return None
    if fill is None:
        return None
    begun = fill.begun or fill.at
    return LONG_AGO if ago(begun, time.time()) == math.inf else begun or None


# -- while it runs -----------------------------------------------------------------------------------------------------


class Vigil:
    """Keeps what is known of one flow up to date while its query runs, and says when it is too late.

    Args:
        flow: the flow.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.since = 0.0  # see Unread.since; 0 before it is known
        self._looked = 0.0

    def reread(self, *, filling: bool) -> None:
        """Take in what a start of the flow has found out."""
        self._update(None, filling)

    def late(self, look: Look | None, *, filling: bool) -> bool:
        """Whether the query must not read on, because what it reads next may be older than the log remembers.

        Args:
            look: the newest look at the log; None if there was none.
            filling: the flow fills its sink: then its beginning counts, the log's end as it was then is its goal.
        """
        if not self.since or (look is not None and look.at != self._looked):  # the clock may have been put back
            self._update(look, filling)
        return bool(self.since) and at_least(self.since, time.time()) > self.flow.reading.tombstone_seconds

    def _update(self, look: Look | None, filling: bool) -> None:
        self._looked = look.at if look is not None else self._looked
        if filling:
            self.since = _fill_begun(self.flow.folder) or 0.0
            return
        batch, committed = committed_offsets(self.flow.checkpoint)
        unread = read_unread(self.flow, batch)
        if look is not None and not _passed(self.flow, unread, batch):
            ends = {topic: parts for topic, parts in look.ends.items() if topic in self.flow.spec.topics}
            apart = self.flow.reading.tombstone_seconds / PARTS
            unread = unread.after(batch, committed, Look(look.at, ends), apart)
            with suppress(OSError, DiskFull):  # the older note stays: who starts by it is the more careful
                write_unread(self.flow, unread)
        self.since = unread.since

    @property
    def warning(self) -> str | None:
        """What to say of a flow that is on its way to be too late: from the half of the log's memory on."""
        away, most = at_least(self.since, time.time()), self.flow.reading.tombstone_seconds
        if not self.since or away < most / 2:
            return None
        return (
            f"{self.flow.title} has not caught up for {away / DAY:.1f} days; in {max(0.0, most - away) / DAY:.1f} days"
            f" {self.flow.reading.late}"
        )


class LogWatch:
    """Looks at the ends of topics in the background, because a broker that is away takes seconds to say nothing."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._seconds, self._newest = LOOK_SECONDS, Look(0.0, {})
        self._log: LogEnds | None = None
        self._watching = Repeating("log watch", self._look, lambda: self._seconds, last=self._let_go)

    def look(self, flow: Flow) -> Look | None:
        """The newest look that has a flow's topics; None before there was one."""
        for topic in flow.spec.topics:
            self._topics[topic] = (flow.reading.bootstrap, flow.reading.client)
        self._seconds = min(self._seconds, look_seconds(flow.reading.tombstone_seconds))
        self._watching.start()
        return self._newest if set(flow.spec.topics) <= set(self._newest.ends) else None

    def close(self) -> None:
        """Look no more."""
        self._watching.stop()

    def _look(self) -> None:
        topics = dict(self._topics)
        now = time.time()
        self._log = self._log or LogEnds(*next(iter(topics.values())))
        with suppress(KafkaError):  # the flows say so themselves
            self._newest = Look(now, _ends(self._log, sorted(topics)))

    def _let_go(self) -> None:
        if self._log is not None:
            self._log.close()


def _ends(log: LogEnds, topics: Sequence[str]) -> dict[str, dict[int, int]]:
    try:
        return log.ends(topics)
    except KafkaError:  # one is not there: its flows fail, and the others' topics are looked at as ever
        if log.silence:
            raise
        return {} if len(topics) < 2 else {name: ends for one in topics for name, ends in _ends(log, [one]).items()}
