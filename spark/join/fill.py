"""Filling the empty sink of a joined view from the log: the driver's part (the workers' is in stage.py).

The live way would write a document again for each of its rows that comes after its root. A fill knows better: while it
makes documents, no row that they refer to changes. So each is made once, straight from its record and the rows around
it, those being kept ready as JSON; its version is 1 and no counter is kept for it, because whatever changes it later
has a greater position. See docs/decisions/fill.md.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from pyspark.sql import DataFrame, Row, SparkSession

from cdc.errors import SinkUnavailable, StateError
from cdc.log.ends import LogEnds
from sinks.factory import open_sink
from sinks.rowstore.contract import still_runs
from sinks.rowstore.redis import RedisRowStore
from spark.arrow import map_in_arrow
from spark.disk.applied import forget_applied
from spark.disk.batches import SUMMED
from spark.disk.files import write_atomic
from spark.disk.notes import read_note
from spark.disk.state import rebuild_command
from spark.flow import Flow
from spark.join import health
from spark.join.plans import documents, with_computed
from spark.join.slices import FillState, Slice
from spark.join.stage import fill_documents, fill_rows, load_joined, open_store, view_of
from spark.join.tables import JoinedTable
from spark.reading.source import read_slice
from spark.write import SUMMARY_DDL

# Offsets a slice: what a crash repeats, some seconds of work; a job costs about 0.3 s to begin.
SLICE = 100_000
LEAST_SLICE = 5_000


def load(flow: Flow) -> FillState | None:
    """The fill that a flow has begun, or ended; None if there is none.

    Raises:
        StateError: its note can't be read (terminal).
    """
    fix = f"restore it from a copy; or {rebuild_command(flow.spec.sink)}"
    return read_note(flow.folder / "fill.json", FillState.of, fix)


def _save(flow: Flow, state: FillState) -> None:
    write_atomic(flow.folder / "fill.json", state.to_json())


class Filled(Protocol):
    """What a fill asks of the target that it fills: a ``Sink``, or a table."""

    def setup(self) -> None:
        """See ``Sink``."""
        ...

    def scan(self, target: str) -> Iterator[Any]:
        """See ``Sink``; one thing is enough."""
        ...

    def empty(self, target: str) -> None:
        """See ``Sink``."""
        ...


def void(flow: Flow) -> None:
    """Note that what was made so far is gone: whoever prepares the fill begins it anew.

    To be called before the target is made anew, or a start that fails in between would leave an empty target in which
    the next one sees nothing missing.
    """
    state = load(flow)
    if state is not None:
        _save(flow, replace(state, server=""))


def begun(flow: Flow) -> bool:
    """Whether a flow has ever begun a fill, as far as its folder knows."""
    return load(flow) is not None or (flow.folder / "phase.json").exists()


def refuse_unknown(flow: Flow, sink: Filled) -> None:
    """A flow that has begun no fill must be a new one, and find its target empty; nothing is changed.

    Args:
        flow: for which ``begun`` says no.
        sink: its sink, whose target is there.

    Raises:
        StateError: it has run, and lost its state, or the target holds something (terminal).
    """
    if not flow.is_new:
        raise StateError(
            f"sink {flow.spec.sink}: {flow.folder}/phase.json is gone",
            means="whether the target was complete is not known any more; nothing was written",
            fix=rebuild_command(flow.spec.sink),
        )
    view = view_of(flow.spec).name
    if next(iter(sink.scan(view)), None) is not None:
        flow.refuse_filled(view)


def prepare(flow: Flow, sink: Filled, store: RedisRowStore) -> None:
    """Begin a flow's fill, or see to it that it can go on; it is begun anew when rows or documents may have been lost
    meanwhile.

    Args:
        flow: one that is not live.
        sink: its sink, made ready.
        store: its row store, made ready.

    Raises:
        StateError: a new flow finds its target filled, or one that has run has lost its state (terminal).
        KafkaUnavailable: transient.
    """
    state, server = load(flow), store.server()
    # From its beginning, not from its newest slice: a row of the first slice may have been deleted just after.
    young = state is not None and time.time() - (state.begun or state.at) < flow.reading.tombstone_seconds
    same = state is not None and still_runs(state.server, server) and store.noted().identity == state.attempt
    if state is not None and young and same:
        store.adopt(state.attempt)
        _save(flow, replace(state, server=server))
        return
    if not begun(flow):
        refuse_unknown(flow, sink)
    else:
        # Documents of rows that are gone meanwhile must not stay, and a part of the rows may be lost.
        sink.empty(view_of(flow.spec).name)
        sink.setup()
        shutil.rmtree(flow.checkpoint, ignore_errors=True)
        forget_applied(flow.folder)
    for name in ("rowstore.json", "layout.json"):
        (flow.folder / name).unlink(missing_ok=True)
    fresh = _begin(flow, server, state.slices if state is not None else 0)
    store.open(fresh.attempt)  # from here on nobody with an older token writes
    store.empty()  # rows of an earlier life: with an empty target nobody counts on them
    _save(flow, fresh)


def _begin(flow: Flow, server: str, slices: int) -> FillState:
    view, now = view_of(flow.spec), time.time()
    root = next(topic for topic, table in flow.spec.tables.items() if table.qualified == view.table.qualified)
    log = LogEnds(flow.reading.bootstrap, flow.reading.client)
    try:
        topics = sorted(flow.spec.topics)
        begins, ends = log.bounds(topics)
    finally:
        log.close()
    return FillState(server, secrets.token_hex(8), root, view.tree.once, begins, ends, slices=slices, at=now, begun=now)


class Fill:
    """Runs a fill that was prepared, to its end.

    Args:
        spark: the session.
        flow: a flow with one joined view.
        stop: ends it after the current slice.
        table: that is filled; None where documents are written by the tasks.
    """

    def __init__(
        self, spark: SparkSession, flow: Flow, stop: threading.Event, table: JoinedTable | None = None
    ) -> None:
        self._spark = spark if table is None else table.session
        self._flow, self._stop, self._table = flow, stop, table
        self._packed = flow.spec.pack()
        found = load(flow)
        assert found is not None
        self.state = found
        self.reports: list[Any] = []

    def run(self) -> None:
        """Slice after slice, then the mark that the row store is complete.

        Raises:
            SinkUnavailable: the row store's server was restarted (transient: the fill is begun anew).
        """
        store = open_store(self._flow.spec)
        try:
            refreshed = True
            while not self._stop.is_set() and (piece := self.state.next(self._size())) is not None:
                if piece.which == "documents" and refreshed:
                    self._bulk_load(on=True)
                    refreshed = False
                began = time.monotonic()
                summary = self._read(piece)
                self._same_server(store)
                self.state = self.state.after(piece, time.time())
                _save(self._flow, self.state)
                self._report(summary, time.monotonic() - began)
                if self._flow.throttle < 1:
                    self._stop.wait((time.monotonic() - began) * (1 / self._flow.throttle - 1))
            if not self._stop.is_set():
                self._bulk_load(on=False)
                store.note(filled=True)
                self._same_server(store)  # the mark comes after every write, and all of them went to one server
                health.remember_filled(self._flow, self.state.server)
        finally:
            store.close()

    def _size(self) -> int:
        size = min(self._flow.reading.max_offsets or SLICE, SLICE)
        return max(LEAST_SLICE, int(size * self._flow.throttle)) if self._flow.throttle < 1 else size

    def _read(self, piece: Slice) -> list[Row]:
        reading = self._flow.reading
        records = read_slice(
            self._spark,
            bootstrap=reading.bootstrap,
            client=reading.client,
            starts=piece.starts,
            ends=piece.ends,
            registry=self._flow.spec.registry,
        )
        if self._flow.throttle < 1:
            parts = sum(len(of) for of in piece.ends.values())
            records = records.coalesce(max(1, round(parts * self._flow.throttle)))
        summary: DataFrame
        if piece.which == "rows":
            records = with_computed(records, self._flow.spec, self._packed)
            summary = map_in_arrow(records, partial(load_joined, self.state.slices, self._packed), SUMMARY_DDL)
        else:
            how = (self.state.attempt, self.state.once, self.state.slices)
            if self._table is not None:
                return [self._table.slice(records, how, piece.ends)]
            plain, rows = partial(fill_documents, *how), partial(fill_rows, *how)
            summary = documents(records, self._flow.spec, self._packed, plain, rows)
        return summary.collect()

    def _same_server(self, store: RedisRowStore) -> None:
        server = store.server()
        if not still_runs(self.state.server, server):
            raise SinkUnavailable(
                f"the row store's server was restarted while {self._flow.title} was being filled",
                means="its newest writes may be lost; the sink is filled anew from offset 0",
            )
        self.state = replace(self.state, server=server)

    def _bulk_load(self, *, on: bool) -> None:
        """Let the target take a load from nothing more cheaply; its setup puts that right after a crash."""
        if self._table is not None:
            return
        sink = open_sink(dict(self._flow.spec.sink_config))
        try:
            bulk_load: Callable[[str, bool], None] | None = getattr(sink, "bulk_load", None)
            if bulk_load is not None:
                bulk_load(view_of(self._flow.spec).name, on)
        finally:
            sink.close()

    def _report(self, summary: Sequence[Row], seconds: float) -> None:
        """As Spark reports a micro-batch, for whoever adds these up."""
        totals = {name: sum(row[name] for row in summary) for name in SUMMED}
        ends = {name: max((row[name] for row in summary), default=0) for name in ("position", "ts_ms")}
        took = int(seconds * 1000) or 1
        report = SimpleNamespace(
            batchId=self.state.slices - 1,
            durationMs={"addBatch": took, "triggerExecution": took},
            observedMetrics={"applied": Row(**totals, **ends)},
        )
        self.reports = [*self.reports[-99:], report]
