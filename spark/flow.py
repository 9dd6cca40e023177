"""A flow: one streaming query that keeps some views of one sink.

Views without Spark SQL share a flow whose whole work is one ``mapInArrow`` in the streaming plan itself
(spark/drain.py): ``foreachBatch`` would plan anew for every micro-batch, which costs more than the work
(docs/decisions/micro-batches.md). A view with Spark SQL fields has a flow of its own: decode in Python, expressions in
the JVM, write in Python, all in one stage. Warehouse views have a flow each as well (spark/warehouse/merge.py). Each
flow has its own checkpoint, so its own offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cdc.errors import CheckpointLost, SinkRefused, StateError
from cdc.join.view import JoinedView
from cdc.log.ends import Offsets
from cdc.pipeline import Pipeline
from cdc.pipeline.views import SHARED_FLOW
from cdc.view import View
from spark import replay
from spark.arrow import map_in_arrow
from spark.disk.applied import tell_applied
from spark.disk.checkpoint import check_checkpoint, committed_offsets, planned, trim
from spark.disk.filling import has_place
from spark.disk.state import folder_of, rebuild_command
from spark.disk.status import FlowStatus
from spark.drain import drained
from spark.reading.expressions import compute, entries_with_rows, entry_schema
from spark.reading.record import RECORD
from spark.reading.source import read_changelog
from spark.reading.spec import FlowSpec
from spark.reports import ReportingQuery
from spark.traces import observed_traces
from spark.wanted import refuse_unwanted
from spark.write import SUMMARY_DDL, apply_entries, apply_records


@dataclass(frozen=True)
class Reading:
    """How a flow reads the log.

    Attributes:
        bootstrap: Kafka brokers.
        client: librdkafka-style options, secrets included.
        max_offsets: records a micro-batch may hold at the most.
        tombstone_seconds: how long the log remembers deletes.
        trigger_ms: 0 for "as soon as there is something", else the least time between two batches.
        traces: whether spans are looked for in the records' headers.
        late: what happens to who has not read so long, for a warning.
        beats: topic of the heartbeat's row (spark/events/ticks.py); empty where there is none.
    """

    bootstrap: str
    client: Mapping[str, str]
    max_offsets: int | None
    trigger_ms: int = 0
    traces: bool = False
    tombstone_seconds: int = 7 * 86400
    late: str = "the log begins to forget deletes that it has not read, and the flow will be refused"
    beats: str = ""


@dataclass(frozen=True)
class Flow:
    """A flow, ready to start.

    Attributes:
        name: unique within its sink: ``main`` for plain views, else the view's name.
        spec: what its tasks do.
        reading: how it reads.
        folder: holds ``checkpoint`` and ``status.json``.
        rebuilding: it fills a generation that nobody reads yet.
        throttle: share of the time that it may be at work while it does, 0 < x <= 1.
    """

    name: str
    spec: FlowSpec
    reading: Reading
    folder: Path
    rebuilding: bool = False
    throttle: float = 1.0

    @property
    def title(self) -> str:
        """``sink/flow``, as status shows it; ``sink@generation/flow`` beside or after the first generation."""
        generation = self.spec.generation
        return f"{self.spec.sink}/{self.name}" if generation == 1 else f"{self.spec.sink}@{generation}/{self.name}"

    @property
    def about(self) -> dict[str, Any]:
        """What lines about it are about (cdc/journal.py)."""
        return {"sink": self.spec.sink, "generation": self.spec.generation, "flow": self.name}

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint of this flow."""
        return self.folder / "checkpoint"

    def check(self) -> None:
        """Refuse to start on a checkpoint that has lost its place.

        Raises:
            CheckpointLost: (terminal) with the way out.
        """
        fix = rebuild_command(self.spec.sink)
        check_checkpoint(self.checkpoint, fix)
        trim(self.checkpoint, fix)
        if self._has_run and not (self.checkpoint / "metadata").exists():
            raise CheckpointLost(
                f"sink {self.spec.sink}: the checkpoint of {self.title} is gone, but it has run before",
                means="starting at offset 0 over a living target would leave rows that were deleted meanwhile",
                fix=fix,
            )

    @property
    def _has_run(self) -> bool:
        """Whether a query of it ever came to run; one that failed before it began has written nothing."""
        if not (self.folder / "status.json").exists():
            return False
        status = FlowStatus.read(self.folder)
        if status is None or status.batch_id >= 0 or status.current_at:
            return True
        return status.state not in ("starting", "retrying", "failed", "stopped")

    @property
    def is_new(self) -> bool:
        """Whether the flow has never been started: Spark writes its metadata before the first batch."""
        return not (self.checkpoint / "metadata").exists()

    def refuse_gone(self, view: str) -> None:
        """A flow that goes on must find the target that it has written to: a new one would lack all earlier rows.

        Raises:
            SinkRefused: always (terminal).
        """
        raise SinkRefused(
            f"sink {self.spec.sink}: the target of {view} is gone, but {self.title} has written to it",
            means="it was deleted, or lost with its server's data; a new one would lack everything from before",
            fix=rebuild_command(self.spec.sink),
        )

    def refuse_filled(self, view: str) -> None:
        """A new flow must find an empty target: offset 0 replayed over a living one leaves ghosts.

        Raises:
            StateError: always; call it when the target of a new flow holds something.
        """
        raise StateError(
            f"sink {self.spec.sink}: the target of {view} holds rows, but nothing in {self.folder} says from where",
            means="its checkpoints are lost, or another pipeline fills it; rows deleted meanwhile would stay for ever",
            fix=f"point engine.state_dir at the old state; or {rebuild_command(self.spec.sink)}",
        )


def plan_flows(spec: FlowSpec, reading: Reading, folder: Path, *, separate: bool = False) -> list[Flow]:
    """Cut a sink's views into flows.

    Args:
        spec: the sink's whole work.
        reading: how to read.
        folder: the generation's folder.
        separate: a flow for every view (the warehouse).
    """
    plain = [view for view in spec.views.values() if not _alone(view, separate=separate)]
    groups = ([(SHARED_FLOW, plain)] if plain else []) + [
        (view.name, [view]) for view in spec.views.values() if _alone(view, separate=separate)
    ]
    return [Flow(name, _part(spec, views), reading, folder_of(folder, name)) for name, views in groups]


def has_set_up(folder: Path) -> bool:
    """Whether the flow of a folder came so far as to have made its targets ready: Spark's metadata, and a fill's place,
    are written after that."""
    return (folder / "checkpoint" / "metadata").exists() or has_place(folder)


def flow_name(view: View, *, separate: bool) -> str:
    """The flow that keeps a view: plain views share one, and a view that needs more has one of its own name.

    Args:
        view: the view.
        separate: a flow for every view (the warehouse).
    """
    return view.name if _alone(view, separate=separate) else SHARED_FLOW


def flow_of(pipeline: Pipeline, sink: str, view: str) -> str:
    """As ``flow_name``, of a view by its name: when the tables are not to be asked for."""
    part = pipeline.sinks[sink]
    model = pipeline.views.get(view) if part.view_names else None
    own = model is not None and model.alone
    return view if own or part.form == "columns" else SHARED_FLOW


def _alone(view: View, *, separate: bool) -> bool:
    return separate or view.needs_spark or isinstance(view, JoinedView)


def _part(spec: FlowSpec, views: list[View]) -> FlowSpec:
    names = {view.name for view in views}
    topics = {topic: tuple(n for n in of if n in names) for topic, of in spec.topics.items()}
    topics = {topic: of for topic, of in topics.items() if of}
    return replace(
        spec,
        views={view.name: view for view in views},
        topics=topics,
        tables={topic: spec.tables[topic] for topic in topics},
        sink_config=_config_of(spec.sink_config, names),
    )


def _config_of(config: Mapping[str, Any], names: set[str]) -> Mapping[str, Any]:
    """The sink's settings with the targets of these views alone: a flow makes only its own ready."""
    part = dict(config)
    if "targets" in part:
        part["targets"] = {name: target for name, target in part["targets"].items() if name in names}
    if "views" in part:
        part["views"] = [name for name in part["views"] if name in names]
    return part


def changelog(spark: SparkSession, flow: Flow, starts: Offsets | None = None, turns: str = "") -> DataFrame:
    """The flow's records, from offset 0, or from ``starts``, where it has no checkpoint yet; ``turns`` as in
    ``read_changelog``."""
    reading = flow.reading
    records = read_changelog(
        spark,
        bootstrap=reading.bootstrap,
        topics=sorted(flow.spec.topics),
        client=reading.client,
        max_offsets=reading.max_offsets,
        starts=starts,
        traces=reading.traces,
        turns=turns,
        registry=flow.spec.registry,
    )
    return observed_traces(records).select(*RECORD.names) if reading.traces else records


def start_live(spark: SparkSession, flow: Flow) -> StreamingQuery:
    """Start a flow that writes documents (Elasticsearch, Redis)."""
    packed = flow.spec.pack()
    records = changelog(spark, flow)
    views = list(flow.spec.views.values())
    if len(views) == 1 and (views[0].fields or views[0].where):
        typed = map_in_arrow(records, partial(entries_with_rows, packed), entry_schema(views[0]))
        finish = partial(apply_entries, packed)
        summary = map_in_arrow(compute(typed, views[0]), finish, SUMMARY_DDL)
    else:
        summary = map_in_arrow(records, partial(apply_records, packed), SUMMARY_DDL)
    writer = drained(summary).queryName(flow.title)
    writer = writer.option("checkpointLocation", str(flow.checkpoint))
    return begin(writer, flow)


def begin(writer: DataStreamWriter, flow: Flow) -> StreamingQuery:
    """Start a flow's query with its trigger; one that has a batch to replay survives that (spark/replay.py)."""
    if flow.reading.trigger_ms:
        writer = writer.trigger(processingTime=f"{flow.reading.trigger_ms} milliseconds")
    refuse_unwanted()
    replays = planned(flow.checkpoint) > committed_offsets(flow.checkpoint)[0]
    tell_applied(writer._spark, flow.title, flow.folder, flow.about)
    query = ReportingQuery(writer.start())
    if replays:
        replay.spare(query)
    return query
