"""Notices that the log has become shorter than what somebody has read of it.

A broker's volume was put back to an older copy, or a replica that lacked records was made leader. Whoever goes on in
such a log skips what comes to stand in the lost places, as soon as it has grown past his own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from cdc.errors import DiskFull, LogTruncated
from cdc.log.ends import Offsets, lacking
from cdc.polling import poll
from spark.disk.checkpoint import batch_offsets, planned
from spark.disk.files import write_atomic
from spark.disk.notes import offsets_of_json, read_note
from spark.flow import Flow

# A broker that comes back from a crash, or has just become a leader, tells ends from before it has recovered them, or
# from before it has heard what its followers have: a log counts as shorter only when it is so for as long as this. What
# is noted stands until somebody removes it, so brokers that are started again one after the other must have ended that;
# a replica that lags is out of sync, and no leader, after `replica.lag.time.max.ms` (30 s).
SHORTER_SECONDS, AGAIN_SECONDS = 90.0, 1.0
# What goes before the rebuild where the log has lost its end.
SHORTER_FIX = "`headwater resnapshot FILE --all` reads into the log again what it has lost, then "
# In a flow's folder: where the log ended when it was seen to be shorter than the flow had read.
SHORTER = "shorter.json"

Bounds = tuple[Offsets, Offsets]
Lost = list[tuple[str, int, int, int]]


def whole_bounds(ask: Callable[[], Bounds], place: Offsets, who: str, fix: str) -> Bounds:
    """The log's first offsets and its ends, which are not before a place that somebody has read up to.

    Args:
        ask: asks for both.
        place: was read before.
        who: has read up to it.
        fix: the way out.

    Raises:
        LogTruncated: the log ends before the place, and not for a moment only (terminal).
        KafkaUnavailable: no answer (transient).
    """
    first, ends = _settled(ask, place)
    if lost := lacking(ends, place):
        raise _shorter(who, "ends", lost, fix)
    return first, ends


def flow_bounds(ask: Callable[[], Bounds], flow: Flow, place: Offsets, who: str, fix: str) -> Bounds:
    """As ``whole_bounds``, of a flow. That the log was shorter is written down: reading the tables again lets it grow
    past the flow's place, and the flow must not go on from there for that.

    Args:
        ask, place, who, fix: as ``whole_bounds``.
        flow: the flow.

    Raises:
        LogTruncated: the log ends before the place, or did when it was last looked at (terminal).
        StateError: what was written down can't be read (terminal).
        KafkaUnavailable: no answer (transient).
    """
    note = flow.folder / SHORTER
    fix = f"{fix}; or, where the data that was lost is back, remove {note}"
    if lost := lacking(read_note(note, offsets_of_json, fix) or {}, place):
        raise _shorter(who, "ended", lost, fix)
    first, ends = _settled(ask, place)
    if lost := lacking(ends, place):
        with suppress(OSError, DiskFull):  # it is refused all the same
            write_atomic(note, json.dumps({topic: ends[topic] for topic, _, _, _ in lost}))
        raise _shorter(who, "ends", lost, fix)
    return first, ends


def _settled(ask: Callable[[], Bounds], place: Offsets) -> Bounds:
    return poll(ask, lambda bounds: not lacking(bounds[1], place), SHORTER_SECONDS, AGAIN_SECONDS)


def _shorter(who: str, ends: str, lost: Lost, fix: str) -> LogTruncated:
    topic, part, at, end = lost[0]
    return LogTruncated(
        f"{who} has read {topic}/{part} up to {at}, and it {ends} at {end}",
        means="the log has become shorter: Kafka's data was put back to an older copy, or a replica that lacked"
        " records was made leader; what comes to stand there would be skipped, and nothing was written",
        fix=fix,
    )


def furthest(flow: Flow, batch: int, committed: Offsets) -> Offsets:
    """Up to where a flow has read its topics: a batch that was planned, and not committed, is replayed to its own end.

    Args:
        flow: the flow. A topic that it does not write any more may have been made anew.
        batch: the newest that is committed.
        committed: its ends.
    """
    newest, place = planned(flow.checkpoint), committed
    if newest > batch:
        with suppress(OSError, ValueError, IndexError, AttributeError):  # damaged: refused by name (check_checkpoint)
            place = batch_offsets(flow.checkpoint, newest)
    return {topic: parts for topic, parts in place.items() if topic in flow.spec.topics}
