"""What all flows with Spark's own state need: a folder that all machines see, and a store on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

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
