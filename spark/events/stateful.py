"""What all flows with Spark's own state need: a folder that all machines see, a store on disk, and a state of events
that count."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.errors import StateError
from spark.disk.checkpoint import batch_offsets, planned
from spark.disk.files import write_atomic
from spark.disk.notes import read_note
from spark.disk.state import rebuild_command
from spark.flow import Flow
from spark.machine import cluster

# `transformWithState` works on this one alone; timers lie in an index by time, so a batch looks at those that are due.
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what has changed, and not all of the store's files.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # When a watermark has moved and no event follows, what it makes due is done all the same
    # (spark/machine/settings.py).
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}


def check_reach(spark: SparkSession, flow: Flow) -> None:
    """Look whether all machines see a flow's folder: tasks keep the state and the partitions' clocks in it.

    Raises:
        ClusterError: an executor does not (terminal).
        ClusterUnavailable: there is none (transient).
    """
    if not cluster.is_local(str(spark.sparkContext.master)):
        cluster.check(spark, folders=[flow.folder])


# In a flow's folder: the position of the initial snapshot whose rows its state counts.
SNAPSHOT = "snapshot.json"


def refuse_other_attempt(flow: Flow) -> None:
    """Refuse to go on with a state of rows that an earlier attempt of the initial snapshot has read.

    They count no more, the last attempt's do (docs/decisions/fold.md); no state says which of its events were which.
    One of before this was noted is taken for one of the present attempt. Why there is another attempt is not seen from
    here: the earlier one was interrupted, or Kafka Connect has lost the offset (connectors/gaps/lost_offset.py).

    Raises:
        StateError: the snapshot has begun again since the flow has read something; or the note of that can't be read
            (terminal).
        DiskFull: there is no room for the note (transient).
    """
    path, now, fix = flow.folder / SNAPSHOT, flow.spec.snapshot_lsn, rebuild_command(flow.spec.sink)
    counted = read_note(path, lambda said: int(said["lsn"]), fix) if _has_read(flow) else None
    if counted not in (None, now):
        raise StateError(
            f"sink {flow.spec.sink}: {flow.title} has counted rows of an initial snapshot after which another was made",
            means="the first was interrupted, or Kafka Connect had lost how far the connector had read: the same rows"
            " come once more, and count as the last one has read them; nothing was written",
            fix=fix,
        )
    if counted is None:
        write_atomic(path, json.dumps({"lsn": now}))


def _has_read(flow: Flow) -> bool:
    """Whether a batch of a flow was begun that had a record."""
    if (batch := planned(flow.checkpoint)) < 0:
        return False
    return any(end > 0 for parts in batch_offsets(flow.checkpoint, batch).values() for end in parts.values())


# Flows are started several at a time, in one session: the one that ends first would take the settings away from the
# others, and what a query begins with is in its checkpoint for ever.
_STARTING = threading.Lock()


def begin_stateful(spark: SparkSession, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query whose state lies in RocksDB; it keeps the session's settings of this moment."""
    with _STARTING:
        before = {name: spark.conf.get(name, None) for name in _SETTINGS}
        try:
            for name, value in _SETTINGS.items():
                spark.conf.set(name, value)
            return start()
        finally:
            for name, was in before.items():
                if was is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, was)
