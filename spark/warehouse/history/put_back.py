"""Up to where a table of history holds its topic; and histories that were put back, by a rollback to an older snapshot,
or with their catalogue to an older copy.

What was lost is read from the log once more: the newest of each row is there, and without it every later cut would
show such a row as it was before. What compaction may have taken since is noted as a gap.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from cdc.errors import LogTruncated
from cdc.log.ends import LogEnds, Offsets, removed
from spark.disk.applied import forget_applied
from spark.disk.checkpoint import committed_offsets, forget_topics
from spark.flow import Flow
from spark.shorter import SHORTER_FIX, Bounds, flow_bounds, furthest
from spark.warehouse.commits import loaded
from spark.warehouse.history.tables import HistoryPlace
from spark.warehouse.marks import offsets_said, says_less

_log = logging.getLogger(__name__)


def read_lost(spark: SparkSession, flow: Flow, place: HistoryPlace) -> None:
    """Read those topics on from what their tables hold whose tables hold less than what was written to them.

    Args:
        spark: the session.
        flow: with the topics that it is to write.
        place: where the tables are, which are there.

    Raises:
        LogTruncated: the log has lost records of that, or has become shorter (terminal).
        KafkaUnavailable: no answer (transient).
    """
    if flow.is_new:
        return
    batch, committed = committed_offsets(flow.checkpoint)
    read = {topic: names for topic, names in flow.spec.topics.items() if topic in committed}
    names = {topic: place.name(flow.spec.views[name]) for topic, (name,) in read.items()}
    found = {topic: taken_back(spark, name, committed[topic]) for topic, name in names.items()}
    lost = {topic: parts for topic, parts in found.items() if parts}
    if not lost:
        return
    log = LogEnds(flow.reading.bootstrap, flow.reading.client)
    try:
        # By the place that is forgotten below: a log that was put back with the table goes further than that stands.
        first, _ = whole_log(flow, log, batch, committed)
    finally:
        log.close()
    refuse_removed(flow, first, lost)
    topics = ", ".join(sorted(lost))
    why = f"the table was put back to an older state, and the log may have been compacted since: {topics}"
    # As of one that was away: what is read now is read before compaction comes as far as this.
    kept, now = flow.reading.tombstone_seconds, time.time()
    place.note_gap(spark, flow.spec.sink, (0.0, now - kept / 2), lost, why)
    for topic in sorted(lost):
        said = f"{names[topic]} was put back to an older state: what it lacks is read from the log again"
        _log.warning("history of sink %s: %s", flow.spec.sink, said)
    forget_applied(flow.folder)  # first: done again after a kill, it finds the topics in the checkpoint alone
    forget_topics(flow.checkpoint, lost)


def whole_log(flow: Flow, log: LogEnds, batch: int, committed: Offsets) -> Bounds:
    """The log's first offsets and its ends, between which a history's place lies.

    Args:
        flow: of the history.
        log: is asked.
        batch: the newest that is committed.
        committed: its ends.

    Raises:
        LogTruncated: the log begins after its place: records were removed, and not only superseded ones; or it ends
            before it (terminal).
        KafkaUnavailable: no answer (transient).
    """
    who, anew = f"history of sink {flow.spec.sink}", "give the sink another namespace, where history begins anew"
    fix = f"{SHORTER_FIX}{anew}; the old one stays readable"
    ask = partial(log.bounds, committed or flow.spec.topics)
    first, ends = flow_bounds(ask, flow, furthest(flow, batch, committed), who, fix)
    refuse_removed(flow, first, committed)
    return first, ends


def refuse_removed(flow: Flow, first: Offsets, places: Offsets) -> None:
    """Refuse to read on where the log has nothing left.

    Args:
        flow: of the history.
        first: the first offsets that the log still has.
        places: where is read on.

    Raises:
        LogTruncated: it begins after one (terminal).
    """
    if (found := removed(first, places)) is None:
        return
    topic, part, at = found
    raise LogTruncated(
        f"history of sink {flow.spec.sink}: {topic}/{part} begins at {first[topic][part]}, it is at {at}",
        means="records that it has not read were removed from the log",
        fix="give the sink another namespace, where history begins anew; the old one stays readable",
    )


def taken_back(spark: SparkSession, table: str, written: Mapping[int, int]) -> dict[int, int]:
    """From where on a table lacks what was written to it (``marks.says_less``): partition -> offset; empty if it lacks
    nothing, or says nothing of it.

    Args:
        spark: the session.
        table: ``catalog.namespace.table``, each part quoted.
        written: up to where: partition -> next offset.
    """
    less, beyond = says_less(offsets_there(spark, table), written)
    return less if less and spark.table(table).where(beyond).limit(1).isEmpty() else {}


def offsets_there(spark: SparkSession, table: str) -> dict[int, int]:
    """Up to where a table holds its topic, by what its snapshots say: partition -> next offset."""
    jvm: Any = spark._jvm
    metadata = loaded(spark, table).operations().current()
    return offsets_said(json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)))


def current_snapshot(spark: SparkSession, table: str) -> int | None:
    """The number of a table's newest snapshot, as far as the session knows; None while it has none."""
    snapshot = loaded(spark, table).currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())
