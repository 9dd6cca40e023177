"""A joined view's flow: filled once, then live; to the runner it looks like one streaming query.

A sink that is filled from offset 0 by the live way would write a document again for each of its rows that comes later.
So a new flow goes through three phases, and remembers in ``phase.json`` which one it is in, whenever it is killed:

    rows        all that the log holds now goes into the row store, no documents (a query that ends by itself)
    documents   every root's document is put together and written once (a batch job; killed, it is done again)
    live        the streaming query, from the same checkpoint
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from cdc.join.view import JoinedView
from sinks.rowstore.redis import RedisRowStore
from spark.apply import SUMMARY_DDL, apply_entries
from spark.expressions import compute, entry_schema
from spark.flow import Flow, changelog, map_in_arrow, observed, with_trigger
from spark.join import child_expressions, health
from spark.join.later import make_deferred
from spark.join.stage import apply_joined, build_joined, built_rows, joined_rows, load_joined, open_store, view_of
from spark.source import read_records
from spark.spec import FlowSpec
from spark.state import committed_offsets, write_atomic

Phase = Literal["rows", "documents", "live"]

# How often the row store is told through which batch it is complete.
NOTE_SECONDS = 1.0
# How often deferred documents are looked for.
LATER_SECONDS = 0.1


class JoinedQuery:
    """What the runner supervises: a thread that goes through the phases. Has what it needs of a ``StreamingQuery``.

    Args:
        spark: the session.
        flow: a flow with one joined view.
    """

    def __init__(self, spark: SparkSession, flow: Flow) -> None:
        self._spark, self._flow = spark, flow
        self._query: StreamingQuery | None = None
        self._error: Exception | None = None
        self.waiting = 0  # documents that a fan-out has deferred
        self._stop = threading.Event()
        self._pool = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
        self._thread = threading.Thread(target=self._run, name=flow.title, daemon=True)
        self._thread.start()

    # -- as a streaming query -----------------------------------------------------------------------------------------

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether it is at work."""
        return self._thread.is_alive()

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802 (Spark's name)
        """Spark's reports of the current phase."""
        return self._query.recentProgress if self._query is not None else []

    def exception(self) -> Exception | None:
        """Why it ended; None if it was stopped."""
        return self._error

    def stop(self) -> None:
        """Stop after the current batch, as far as Spark allows."""
        self._stop.set()
        if self._query is not None and self._query.isActive:
            self._query.stop()
        self._spark.sparkContext.cancelJobGroup(self._group)
        self._thread.join(timeout=30)

    # -- the phases ---------------------------------------------------------------------------------------------------

    @property
    def _group(self) -> str:
        return f"fill {self._flow.title}"

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._pool or "default")
            self._phases()
        except Exception as error:  # whatever it is, the runner decides by its text
            if not self._stop.is_set():
                self._error = error

    def _phases(self) -> None:
        spark, flow = self._spark, self._flow
        if read_phase(flow) == "rows":
            write_phase(flow, "rows")
            self._watch(start_rows(spark, flow))
            if not self._stop.is_set():
                write_phase(flow, "documents")
        if not self._stop.is_set() and read_phase(flow) == "documents":
            spark.sparkContext.setJobGroup(self._group, f"documents of {flow.title}", interruptOnCancel=True)
            build_documents(spark, flow)
            if not self._stop.is_set():
                write_phase(flow, "live")
        if not self._stop.is_set():
            self._watch(start_documents(spark, flow))

    def _watch(self, query: StreamingQuery) -> None:
        """Follow a query to its end, telling the row store through which batch it is complete."""
        self._query = query
        store = open_store(self._flow.spec)
        try:
            due = time.monotonic()
            while query.isActive and not self._stop.wait(LATER_SECONDS):
                if read_phase(self._flow) == "live":
                    self._make_deferred(store)
                if time.monotonic() >= due:
                    health.note(store, self._flow)
                    due = time.monotonic() + NOTE_SECONDS
            if self._stop.is_set() and query.isActive:
                query.stop()
            error = query.exception()
            if error is not None:
                raise error
            health.note(store, self._flow)
        finally:
            store.close()
            if query.isActive:  # a failure of ours: the runner starts the whole flow again
                query.stop()

    def _make_deferred(self, store: RedisRowStore) -> None:
        """Run the job of what fan-outs have deferred, if there is any; live batches go on meanwhile."""
        self.waiting = store.waiting()
        if self.waiting and (shards := store.claim()):
            # Another pool: within one pool the older job's tasks would all go first, and the live batches wait.
            context = self._spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", f"{self._pool or 'default'}-later")
            context.setJobGroup(self._group, f"deferred documents of {self._flow.title}", interruptOnCancel=True)
            make_deferred(self._spark, self._flow, shards)
            store.settle(shards)
            self.waiting = store.waiting()


def read_phase(flow: Flow) -> Phase:
    """The phase a flow is in; ``rows`` for a new one."""
    path = flow.folder / "phase.json"
    if not path.exists():
        return "rows"
    phase: Phase = json.loads(path.read_text())["phase"]
    return phase


def is_filling(flow: Flow) -> bool:
    """Whether documents may be missing because a joined view's sink is still being filled."""
    return any(isinstance(view, JoinedView) for view in flow.spec.views.values()) and read_phase(flow) != "live"


def write_phase(flow: Flow, phase: Phase) -> None:
    """Remember the phase."""
    write_atomic(flow.folder / "phase.json", json.dumps({"phase": phase}))


def _records(frame: DataFrame, spec: FlowSpec, packed: bytes) -> DataFrame:
    """Records with what Spark SQL computes for aggregates beside them, if any does."""
    view = view_of(spec)
    if not child_expressions.needed(view):
        return frame
    typed = map_in_arrow(frame, partial(child_expressions.with_structs, packed), child_expressions.record_schema(view))
    return typed.select(*child_expressions.computed_columns(view))


def start_rows(spark: SparkSession, flow: Flow) -> StreamingQuery:
    """Start the first phase; the query ends when it has read what the log held at its start."""
    packed = flow.spec.pack()
    records = _records(changelog(spark, flow), flow.spec, packed)
    summary = observed(map_in_arrow(records, partial(load_joined, packed), SUMMARY_DDL))
    writer = summary.writeStream.queryName(flow.title).format("noop")
    return writer.option("checkpointLocation", str(flow.checkpoint)).trigger(availableNow=True).start()


def build_documents(spark: SparkSession, flow: Flow) -> None:
    """The second phase: each root's document, once, from the rows in the store."""
    view, packed = view_of(flow.spec), flow.spec.pack()
    topic = next(t for t, table in flow.spec.tables.items() if table.qualified == view.table.qualified)
    _, ends = committed_offsets(flow.checkpoint)
    if not any(ends.get(topic, {}).values()):
        return
    records = read_records(
        spark,
        bootstrap=flow.reading.bootstrap,
        client=flow.reading.client,
        ends={topic: ends[topic]},
    )
    summary = _documents(records, flow.spec, packed, build_joined, built_rows)
    summary.agg(F.sum("written")).collect()


def start_documents(spark: SparkSession, flow: Flow) -> StreamingQuery:
    """Start the live phase."""
    packed = flow.spec.pack()
    records = _records(changelog(spark, flow), flow.spec, packed)
    summary = observed(_documents(records, flow.spec, packed, apply_joined, joined_rows))
    writer = summary.writeStream.queryName(flow.title).format("noop")
    writer = writer.option("checkpointLocation", str(flow.checkpoint))
    return with_trigger(writer, flow).start()


def _documents(
    records: DataFrame, spec: FlowSpec, packed: bytes, plain: Callable[..., Any], rows: Callable[..., Any]
) -> DataFrame:
    """Records to written documents, by way of Spark SQL if the view has fields or a condition."""
    view = view_of(spec)
    if not view.needs_spark:
        return map_in_arrow(records, partial(plain, packed), SUMMARY_DDL)
    typed = map_in_arrow(records, partial(rows, packed), entry_schema(view))
    finish = partial(apply_entries, packed, tuple(view.fields))
    return map_in_arrow(compute(typed, view), finish, SUMMARY_DDL)
