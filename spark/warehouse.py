"""The warehouse: an Iceberg table a view, holding its current state, changed by one MERGE a batch.

Exactly once: ``foreachBatch`` may run a batch again after a crash, so each commit carries the query's id and the
batch's number and offsets in its snapshot summary, and a batch that finds itself there does nothing. Rows also carry
the position they came from, and an older one never replaces a newer one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from cdc.view import View
from sinks.contract import UNVERSIONED
from spark.expressions import PREFIX, entries_with_rows, entry_schema
from spark.flow import Flow, changelog, map_in_arrow, with_trigger
from spark.state import batch_offsets

VERSION_COLUMN = "_hw_version"
_QUERY, _BATCH, _OFFSETS = "headwater.query-id", "headwater.batch-id", "headwater.offsets"
# One merge at a time: two at once would take every task slot (and twice the memory) from the cache's 10 ms tasks.
_ONE_MERGE = threading.Lock()


def catalog_settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark settings that make an Iceberg catalogue known; they must be there when the session is built."""
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **{f"{prefix}.{key}": v for key, v in properties.items()}}


def table_columns(spark: SparkSession, view: View) -> list[tuple[str, str]]:
    """(name, Spark type) of the view's warehouse table, without our own version column."""
    frame = spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name, kind in view.spark_schema()))
    selected = frame.select(*output_columns(view))
    return [(field.name, field.dataType.simpleString()) for field in selected.schema]


def output_columns(view: View) -> list[Column]:
    """The view's chosen, renamed and computed columns."""
    chosen = [F.col(f"`{source}`").alias(out) for source, out in view.columns]
    return chosen + [F.expr(expression).alias(name) for name, expression in view.fields.items()]


def create_table(spark: SparkSession, table: str, view: View, properties: Mapping[str, str] | None = None) -> None:
    """Create the namespace and the table if they are not there."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    columns = [*table_columns(spark, view), (VERSION_COLUMN, "bigint")]
    listed = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    settings = {
        "format-version": "2",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        # The metadata log grows by a file a commit; without this a table committed every few seconds fills its folder.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
        **(properties or {}),
    }
    quoted = ", ".join(f"'{name}'='{value}'" for name, value in settings.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({listed}) USING iceberg TBLPROPERTIES ({quoted})")
    known = {field.name for field in spark.table(table).schema}
    added = ", ".join(f"`{name}` {kind}" for name, kind in columns if name not in known)
    if added:  # a column that the source has gained; its values arrive with the rows' next changes
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({added})")


class Merger:
    """Applies one view's batches to its table; the function of ``foreachBatch``.

    Args:
        table: ``catalog.namespace.table``, each part quoted.
        view: the view.
        checkpoint: the flow's checkpoint, whose id and offsets go into the snapshot summary.
    """

    def __init__(self, table: str, view: View, checkpoint: Path) -> None:
        self.table, self.view, self.checkpoint = table, view, checkpoint

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Apply a batch once."""
        query_id = json.loads((self.checkpoint / "metadata").read_text())["id"]
        spark = batch.sparkSession
        with _ONE_MERGE:
            done, empty = self._history(spark, query_id)
            if done >= batch_id:
                return
            marks = {
                _QUERY: query_id,
                _BATCH: str(batch_id),
                _OFFSETS: json.dumps(batch_offsets(self.checkpoint, batch_id), separators=(",", ":")),
            }
            # Session settings, because MERGE takes no options of its own; this session belongs to this query alone.
            for name, value in marks.items():
                spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)
            if empty:
                self._source(batch).where("NOT _hw_gone").drop("_hw_gone").writeTo(self.table).append()
            else:
                self._merge(spark, self._source(batch))

    def _history(self, spark: SparkSession, query_id: str) -> tuple[int, bool]:
        """The newest batch of this query that the table's history holds (-1 for none), and whether there is any."""
        spark.catalog.refreshTable(self.table)
        of_query = F.when(F.col("summary")[_QUERY] == query_id, F.col("summary")[_BATCH].cast("bigint"))
        snapshots = spark.table(f"{self.table}.snapshots")
        newest, count = snapshots.agg(F.max(of_query), F.count("*")).collect()[0]
        return (-1 if newest is None else int(newest)), count == 0

    def _source(self, batch: DataFrame) -> DataFrame:
        """The newest row of each key; ``_hw_gone`` marks those that must not be in the table."""
        newest = F.max_by(F.struct("*"), F.struct(PREFIX + "version", PREFIX + "offset")).alias("r")
        rows = batch.groupBy(PREFIX + "id").agg(newest).select("r.*")
        gone = F.col(PREFIX + "document").isNull()
        if self.view.where:
            gone = gone | ~F.coalesce(F.expr(self.view.where), F.lit(False))
        version = F.col(PREFIX + "version").alias(VERSION_COLUMN)
        return rows.select(*output_columns(self.view), version, gone.alias("_hw_gone"))

    def _merge(self, spark: SparkSession, source: DataFrame) -> None:
        # MERGE reads its source more than once; without this the Python decoding would run as often.
        source = source.persist()
        try:
            source.createOrReplaceTempView("hw_changes")
            spark.sql(merge_statement(self.table, key_names(self.view), source.columns[:-1]))
        finally:
            source.unpersist()


def key_names(view: View) -> list[str]:
    """The key's column names as the table has them."""
    renamed = dict(view.columns)
    return [renamed.get(name, name) for name in view.key]


def merge_statement(table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """MERGE of ``hw_changes`` into ``table``: newer rows replace, gone rows leave, and an older change does nothing."""
    on = " AND ".join(f"t.`{name}` = s.`{name}`" for name in keys)
    newer = f"s.{VERSION_COLUMN} >= t.{VERSION_COLUMN}"
    sets = ", ".join(f"t.`{name}` = s.`{name}`" for name in columns)
    return (
        f"MERGE INTO {table} t USING hw_changes s ON {on} "  # noqa: S608 (names are quoted, no values)
        f"WHEN MATCHED AND s._hw_gone AND ({newer} OR s.{VERSION_COLUMN} = {UNVERSIONED}) THEN DELETE "
        f"WHEN MATCHED AND NOT s._hw_gone AND {newer} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s._hw_gone THEN INSERT ({', '.join(f'`{n}`' for n in columns)}) "
        f"VALUES ({', '.join(f's.`{n}`' for n in columns)})"
    )


def start_warehouse(spark: SparkSession, flow: Flow, catalog: str, namespace: str) -> StreamingQuery:
    """Start a flow that keeps one view's table."""
    flow.check()
    (view,) = flow.spec.views.values()
    table = f"`{catalog}`.`{namespace}`.`{view.name}`"
    create_table(spark, table, view)
    if flow.is_new and not spark.table(table).limit(1).isEmpty():
        flow.refuse_filled(view.name)
    packed = flow.spec.pack()
    typed = map_in_arrow(changelog(spark, flow), partial(entries_with_rows, packed), entry_schema(view))
    counted = typed.observe(
        "applied",
        F.count("*").alias("records"),
        F.count(PREFIX + "document").alias("written"),
        F.max(PREFIX + "version").alias("position"),
        F.max(PREFIX + "ts_ms").alias("ts_ms"),
    )
    writer = counted.writeStream.queryName(flow.title).foreachBatch(Merger(table, view, flow.checkpoint))
    return with_trigger(writer.option("checkpointLocation", str(flow.checkpoint)), flow).start()
