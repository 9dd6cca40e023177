"""A view with a state as a table of a warehouse: what a batch has changed is merged by the driver, in one commit.

    the stateful step ─► handed (mapInArrow: ids, dead letters) ─► kept in memory ─► newest of each key ─► MERGE

A process that is killed between the state's commit and the table's repeats the batch from the state before it, and so
merges the same rows; one that is killed after the table's commit merges them once more, under the same versions. A
repeated batch is never passed over, as a plain table's is: it brings Spark's state on in any case, and what the clock
on the wall has decided (that a partition is silent) may be another thing the second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cdc.fold import FoldView
from cdc.log import letters as deadletters
from cdc.stateful import StatefulView
from cdc.types import spark_type
from sinks.iceberg.rows import ID_COLUMN, VERSION_COLUMN
from spark.arrow import map_in_arrow
from spark.disk.lease import Lease
from spark.events.kept import Telling
from spark.flow import Flow
from spark.pulse import MERGING
from spark.reading.entries import TALLY
from spark.reading.spec import unpack
from spark.running import Query
from spark.warehouse.brief import brief
from spark.warehouse.commits import History
from spark.warehouse.counted import CountedQuery, Counts
from spark.warehouse.large_merge import SMALL_RECORDS
from spark.warehouse.merge import GONE, Merger, ready_place
from spark.warehouse.upkeep.upkeep import Upkeep, policy_of

# What is handed to the driver beside the state; of a tally ``offset`` records and ``version`` dead letters.
_OWN = {"view": "string", "id": "string", "version": "bigint", "offset": "bigint", "ts_ms": "bigint"}


def handed(telling: Telling, packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Last stage: what has changed in, rows for the driver out, dead letters sent (a ``mapInArrow`` function).

    Args:
        telling: says which documents these are.
        packed: the flow's spec, of one view.
        batches: of the stateful step.
    """
    spec = unpack(packed)
    for batch in batches:
        if not batch.num_rows:
            continue
        told = telling(spec, batch)
        deadletters.send(spec.dead_letters, told.decoded.letters)
        entries = [*told.decoded.entries, told.decoded.tally()]
        state = batch.column("state").take(pa.array([*told.at, None], pa.int64()))
        own = [
            pa.array([getattr(entry, name) for entry in entries], pa.string() if kind == "string" else pa.int64())
            for name, kind in _OWN.items()
        ]
        gone = pa.array([entry.document is None for entry in entries], pa.bool_())
        yield pa.RecordBatch.from_arrays([*own, gone, state], [*_OWN, "gone", "state"])


def _schema(kept: DataFrame) -> T.StructType:
    own = ", ".join(f"`{name}` {kind}" for name, kind in _OWN.items())
    made = cast(T.StructType, T.StructType.fromDDL(f"{own}, gone boolean"))
    return T.StructType([*made.fields, T.StructField("state", kept.schema["state"].dataType)])


class StateMerger(Merger):
    """Applies what a batch of the stateful step has changed; see ``Merger``."""

    def _marked(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        # Once: making the rows brings Spark's state on, and a MERGE, or a second attempt, reads its source more often.
        held = batch.persist()
        try:
            super()._marked(held, batch_id, query_id)
        finally:
            held.unpersist()

    def _apply(self, batch: DataFrame, history: History, marks: Mapping[str, str]) -> Counts:
        tally = F.col("view") == TALLY

        def total(value: Column) -> Column:
            return F.sum(F.when(tally, value))

        found = (
            batch.agg(
                total(F.col("offset")).alias("records"),
                total(F.col("version")).alias("rejected"),
                F.count(F.when(~tally & ~F.col("gone"), 1)).alias("written"),
                F.count(F.when(~tally & F.col("gone"), 1)).alias("deleted"),
                F.max(F.when(~tally, F.col("version"))).alias("position"),
                F.max("ts_ms").alias("ts_ms"),
                F.count(F.when(~tally, 1)).alias("rows"),
            )
            .collect()[0]
            .asDict()
        )
        changed = found["rows"]
        if changed:
            self._small = changed <= SMALL_RECORDS
            view = self.view
            assert isinstance(view, StatefulView)
            self._write(state_rows(batch.where(~tally), view), empty=history.is_empty)
        return Counts.of(found)


def state_rows(entries: DataFrame, view: StatefulView) -> DataFrame:
    """What was handed over as the table has it: the newest of each key; ``GONE`` comes last.

    Args:
        entries: of ``handed``, without tallies.
        view: its fields' types are known.
    """
    newest = entries.groupBy("id").agg(F.max_by(F.struct("*"), F.struct("version", "offset")).alias("r")).select("r.*")
    columns = [F.col("state").getField(name).alias(name) for name in view.state]
    columns = [*_key(view), *columns] if isinstance(view, FoldView) else [*columns, F.col("id").alias(ID_COLUMN)]
    return newest.select(*columns, F.col("version").alias(VERSION_COLUMN), F.col("gone").alias(GONE))


def _key(view: FoldView) -> Iterator[Column]:
    """The aggregate's id, which a deleted document has as well, out of the text that it is in the document's id."""
    for source, out in view.columns:
        kind, text = spark_type(view.table.by_name[source]), F.col("id")
        value = F.try_to_binary(text, F.lit("base64")) if kind == "binary" else text.try_cast(kind)
        yield value.alias(out)


class StateTable:
    """A generation's table of one view with a state, as a ``spark.events.kept.Place``.

    Args:
        spark: the session.
        flow: of the view.
        sink: the sink's part of the pipeline file.
        catalog: the catalogue's name inside Spark.
        lease: of the generation.
        owner: ``<pipeline>/<sink>``, whose the table is.

    Raises:
        StateError: the table has gone, or is filled already (terminal).
        SinkRefused: another generation's table stands in its place, or another one's (terminal).
    """

    turns = MERGING

    def __init__(self, spark: SparkSession, flow: Flow, sink: Any, catalog: str, lease: Lease, owner: str) -> None:
        view = flow.spec.view
        assert isinstance(view, StatefulView)
        place = ready_place(spark, flow, sink, catalog, lease, owner)
        upkeep = Upkeep(policy_of(sink), flow.folder.parent)
        self._merger = StateMerger(place, flow.spec, flow.checkpoint, lease, upkeep)

    def writer(self, flow: Flow, kept: DataFrame, telling: Telling) -> DataStreamWriter:
        """See ``spark.events.kept.Place``."""
        rows = map_in_arrow(kept, partial(handed, telling, flow.spec.pack()), _schema(kept))
        return rows.writeStream.outputMode("update").foreachBatch(brief(self._merger))

    def query(self, started: StreamingQuery) -> Query:
        """See ``spark.events.kept.Place``."""
        return CountedQuery(started, self._merger.counts)
