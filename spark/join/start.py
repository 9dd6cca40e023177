"""Starting a joined view's flow: its sink and row store are made ready and looked over first."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from sinks.factory import open_sink
from sinks.rowstore.contract import RowStore
from spark.disk.checkpoint import committed_offsets
from spark.disk.filling import load, was_begun
from spark.flow import Flow
from spark.join import health
from spark.join.fill import prepare, refuse_unknown, void
from spark.join.query import JoinedQuery, counted, went_live
from spark.join.stage import open_store, view_of
from spark.join.tables import Open
from spark.log_gaps import check_log
from spark.wanted import refuse_unwanted

# The runner waits for all starts of a round, and begins them again by itself: a row store that is away must neither
# keep other flows from being looked at, nor be kept out of `status` and the log for the minute that a batch waits.
START_SECONDS = 3.0


def start_joined(spark: SparkSession, flow: Flow, tabled: Open | None = None) -> JoinedQuery:
    """Start, or go on with, a flow of one joined view.

    Args:
        spark: the session.
        flow: the flow.
        tabled: opens the table that it keeps; None if it writes documents.

    Raises:
        SinkUnavailable: the sink or the row store does not answer (transient).
        SinkRefused: the row store may evict keys, or the target is not as it must be, or is gone.
        TooLate, LogTruncated: the checkpoint was put back, and the log does not have all that comes then (terminal).
        StateError: the checkpoint or the row store has lost its place, or a new flow finds its target filled.
    """
    live, batch = went_live(flow), committed_offsets(flow.checkpoint)[0]
    table = None if tabled is None else tabled(spark, flow)
    sink, store = table or open_sink(dict(flow.spec.sink_config)), open_store(flow.spec, START_SECONDS)
    try:
        refuse_unwanted()
        store.setup()
        if not sink.there(view_of(flow.spec).name):  # asked before it is made ready, which makes it anew
            if live:
                flow.refuse_gone(view_of(flow.spec).name)
            void(flow)
        elif table is not None and not was_begun(flow.folder):
            # Before it is made ready: that claims it and drops columns, and it may be somebody else's.
            refuse_unknown(flow, table)
        refuse_unwanted()
        sink.setup()
        if not live:
            prepare(flow, sink, store)
        layout = view_of(flow.spec).layout
        health.check_layout(layout, flow)
        epoch = take_over(store, flow) if live else 0
        if committed_offsets(flow.checkpoint)[0] < batch:
            check_log(flow)  # what it reads once more may be older than the log remembers deletes
    finally:
        sink.close()
        store.close()
    spec = replace(flow.spec, version_epoch=epoch, arranged=health.arranged(layout, flow))
    flow = replace(flow, spec=spec)
    refuse_unwanted()
    if table is not None:
        table.follow(flow)
    return JoinedQuery(spark, flow, table)


def take_over(store: RowStore, flow: Flow) -> int:
    """Go on with a live flow's row store, as found by ``health.check``; returns the version epoch."""
    filled = load(flow.folder)
    identity = filled.attempt if filled is not None else ""
    epoch = health.check(store, counted(flow), identity, flow.spec.compaction_lag_seconds)
    return epoch
