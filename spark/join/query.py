"""A joined view's flow: filled once, then live; to the runner it looks like one streaming query.

A new flow is filled first (spark/join/fill.py), slice by slice; what it has done is in ``fill.json``. Then the
streaming query begins where the fill ended, and ``phase.json`` says so. Killed at any point, it goes on from there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.errors import SinkUnavailable
from cdc.join.view import JoinedView
from cdc.journal import about
from sinks.rowstore.contract import still_runs
from sinks.rowstore.redis import RedisRowStore
from spark.disk.checkpoint import committed_offsets
from spark.disk.filling import is_live, load, write_live
from spark.drain import drained
from spark.flow import Flow, begin, changelog
from spark.join import health
from spark.join.fill import Fill
from spark.join.later import make_deferred
from spark.join.noting import Noting
from spark.join.plans import documents, with_computed
from spark.join.stage import apply_joined, joined_rows, open_store, view_of
from spark.join.tables import JoinedTable
from spark.join.tables import observed as counted_entries
from spark.pulse import MERGES
from spark.warehouse.brief import brief

# "rows" and "documents" are the passes of a fill.
Phase = Literal["rows", "documents", "live"]

# How often deferred documents are looked for.
LATER_SECONDS = 0.1


class JoinedQuery:
    """What the runner supervises: a thread that goes through the phases. Has what it needs of a ``StreamingQuery``.

    Args:
        spark: the session.
        flow: a flow with one joined view.
        table: that it keeps; None where its tasks write documents.
    """

    def __init__(self, spark: SparkSession, flow: Flow, table: JoinedTable | None = None) -> None:
        self._spark, self._flow, self._table = spark, flow, table
        self._later = 0  # jobs of what fan-outs have deferred
        self._query: StreamingQuery | None = None
        self._fill: Fill | None = None
        self._before = 0  # slices of the fill: they count as batches, so that batches have one sequence of numbers
        self._error: Exception | None = None
        self.waiting: int | None = None  # documents that a fan-out has deferred; None while nobody has looked
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
        """The fill's reports, then Spark's: whoever asks now and then must not miss the end of a fill."""
        filled = self._fill.reports if self._fill is not None else []
        query = self._query
        return filled if query is None else [*filled, *(_numbered(one, self._before) for one in query.recentProgress)]

    @property
    def status(self) -> Mapping[str, Any]:
        """As a streaming query tells it: what it is at."""
        if self._query is not None:
            return dict(self._query.status)
        return {"message": "Filling" if self._fill is not None else "Initializing"}

    @property
    def groups(self) -> Sequence[str]:
        """By which names its jobs are known to Spark."""
        query = self._query
        return [self._group] if query is None else [self._group, str(query.runId)]

    def progress(self) -> tuple[Phase, int, int]:
        """The phase, and how many records of how many the fill has gone through in both of its passes."""
        if self._fill is None:
            return "live", 0, 0
        phase, done, total = self._fill.state.progress()
        return ("live" if self._query is not None else phase), done, total

    def exception(self) -> Exception | None:
        """Why it ended; None if it was stopped."""
        return self._error

    def stop(self) -> None:
        """Stop after the current batch, as far as Spark allows."""
        self._stop.set()
        self._spark.sparkContext.cancelJobGroup(self._group)  # a batch may wait for such a job to end
        if self._query is not None and self._query.isActive:
            MERGES.give_up(self._query)
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
            with about(**self._flow.about):
                self._phases()
        except Exception as error:  # whatever it is, the runner decides by its text
            if not self._stop.is_set():
                self._error = error
        finally:
            if self._table is not None:
                self._table.close()

    def _phases(self) -> None:
        spark, flow = self._spark, self._flow
        if not is_live(flow.folder):
            self._fill = Fill(spark, flow, self._stop, self._table)
            spark.sparkContext.setJobGroup(self._group, f"fill of {flow.title}", interruptOnCancel=True)
            self._fill.run()
        if not self._stop.is_set():
            flow = self._flow = counted(flow)
            query = start_documents(spark, flow, self._table)
            write_live(flow.folder)
            self._watch(query)

    def _watch(self, query: StreamingQuery) -> None:
        """Follow a query to its end, telling the row store through which batch it is complete."""
        self._before, self._query = self._flow.spec.batches_before, query
        store = open_store(self._flow.spec)
        try:
            with Noting(self._flow) as noting:
                while query.isActive and not self._stop.wait(LATER_SECONDS):
                    self._make_deferred(store)
                    noting.check()
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
        """Run the job of what fan-outs have deferred, if there is any; live batches go on meanwhile.

        Raises:
            SinkUnavailable: the row store's server was restarted meanwhile (transient).
        """
        self.waiting = store.waiting()
        if not self.waiting:
            return
        server = store.server()
        if shards := store.claim():
            # Another pool: within one pool the older job's tasks would all go first, and the live batches wait.
            context = self._spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", f"{self._pool or 'default'}-later")
            context.setJobGroup(self._group, f"deferred documents of {self._flow.title}", interruptOnCancel=True)
            if self._table is None:
                make_deferred(self._spark, self._flow, shards)
            else:
                self._later += 1
                self._table.deferred(shards, self._later)
            if not still_runs(server, store.server()):
                # It may have come back without its newest writes, so without some of what was claimed.
                raise SinkUnavailable(
                    f"the row store's server of {self._flow.title} was restarted while deferred documents were made",
                    means="what was deferred stays claimed; the flow starts again and makes all of it once more",
                )
            store.settle(shards)
            self.waiting = store.waiting()


def _numbered(report: Any, before: int) -> Any:
    """A report under its number in the flow's whole sequence of batches."""
    return SimpleNamespace(
        batchId=report.batchId + before,
        durationMs=report.durationMs,
        observedMetrics=report.observedMetrics,
        timestamp=report.timestamp,
    )


def is_joined(flow: Flow) -> bool:
    """Whether a flow keeps a joined view."""
    return any(isinstance(view, JoinedView) for view in flow.spec.views.values())


def is_filling(flow: Flow) -> bool:
    """Whether documents may be missing because a joined view's sink is still being filled."""
    return is_joined(flow) and not is_live(flow.folder)


def went_live(flow: Flow) -> bool:
    """Whether a flow is live; one that was killed before it could say so is one that says so now."""
    if is_live(flow.folder):
        return True
    filled = load(flow.folder)
    if filled is None or not filled.done or committed_offsets(flow.checkpoint)[0] < 0:
        return False
    write_live(flow.folder)
    return True


def counted(flow: Flow) -> Flow:
    """A live flow that counts its batches on from the slices of its fill."""
    filled = load(flow.folder)
    before = filled.slices if filled is not None else 0
    return replace(flow, spec=replace(flow.spec, batches_before=before))


def start_documents(spark: SparkSession, flow: Flow, table: JoinedTable | None = None) -> StreamingQuery:
    """Start the live phase, where the fill ended if it is the first time."""
    packed, filled = flow.spec.pack(), load(flow.folder)
    records = changelog(spark, flow, starts=None if filled is None else filled.ends)
    if table is not None:
        table.follow(flow)
        entries = counted_entries(table.live(records), view_of(flow.spec))
        taking = entries.writeStream.queryName(flow.title).foreachBatch(brief(table.batch))
        return begin(taking.option("checkpointLocation", str(flow.checkpoint)), flow)
    records = with_computed(records, flow.spec, packed)
    writer = drained(documents(records, flow.spec, packed, apply_joined, joined_rows)).queryName(flow.title)
    writer = writer.option("checkpointLocation", str(flow.checkpoint))
    return begin(writer, flow)
