"""The warehouse: an Iceberg table a view, holding its current state, changed by one MERGE a batch.

Exactly once: ``foreachBatch`` may run a batch again after a crash, so each commit carries the query's id and the
batch's number and offsets in its snapshot summary, and a batch that finds itself there does nothing. All three count:
a checkpoint that was put back from an older copy gives its next batches numbers that the table knows, of other records.
Rows also carry the position they came from, and an older one never replaces a newer one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from cdc.errors import Fenced, SinkRefused, SinkUnavailable
from cdc.join.expressions import quoted
from cdc.journal import about
from cdc.log import letters as deadletters
from cdc.view import View
from sinks.contract import UNVERSIONED
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.rows import VERSION_COLUMN
from sinks.iceberg.types import widens
from spark.brief import brief
from spark.checkpoint import batch_offsets
from spark.computed import FAILED, FIELD, WHERE, reason
from spark.entries import TALLY, Entry
from spark.expressions import PREFIX, entries_with_rows, entry_schema, without_tallies
from spark.flow import Flow, begin, changelog, map_in_arrow
from spark.guard import with_computed
from spark.lease import Lease
from spark.pulse import GROUP, MERGES
from spark.spec import FlowSpec
from spark.write import OWN, letter_of

# Of rows on their way: that there must be none; the entry that they came from; why they can't be computed.
GONE, ENTRY, LETTER = "_hw_gone", "_hw_entry", "_hw_letter"
GENERATION, LEASE = iceberg.GENERATION, iceberg.LEASE
_QUERY, _BATCH, _OFFSETS = "headwater.query-id", "headwater.batch-id", "headwater.offsets"


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
    """The view's chosen, renamed and computed columns, over a frame of rows."""
    return _chosen(view) + [F.expr(expression).alias(name) for name, expression in view.fields.items()]


def _chosen(view: View) -> list[Column]:
    return [F.col(f"`{source}`").alias(out) for source, out in view.columns]


def table_rows(entries: DataFrame, view: View, *more: Column) -> DataFrame:
    """Entries with their typed rows as the table has them; ``more`` columns, ``GONE`` and ``LETTER`` come last.

    Args:
        entries: of ``with_expressions``.
        view: the view.
        more: other columns over the entries.

    Returns:
        rows; ``GONE`` says that there must be none, ``LETTER`` why if an expression failed.
    """
    there = F.col(PREFIX + "document").isNotNull()
    if not view.needs_spark:
        return entries.select(*_chosen(view), *more, (~there).alias(GONE))
    gone = ~there | F.col(FAILED).isNotNull()
    if view.where:
        gone = gone | ~F.coalesce(F.col(WHERE), F.lit(False))
    fields = [F.col(quoted(FIELD + name)).alias(name) for name in view.fields]
    found = [*_chosen(view), *fields, *more, gone.alias(GONE), F.col(FAILED).alias(LETTER)]
    return entries.select(*found)


def with_expressions(entries: DataFrame, view: View) -> DataFrame:
    """Entries with their typed rows, and what Spark SQL makes of them, if the view has any."""
    return with_computed(entries, view, F.col(PREFIX + "document").isNotNull()) if view.needs_spark else entries


def create_namespace(spark: SparkSession, namespace: str) -> None:
    """Create a namespace if it is not there. Two flows that begin at once may both find it missing, and a catalogue in
    SQL refuses the second entry: whoever was later finds it at his second look."""
    make = f"CREATE NAMESPACE IF NOT EXISTS {namespace}"
    try:
        spark.sql(make)
    except Exception:
        spark.sql(make)


def create_table(spark: SparkSession, table: str, view: View, properties: Mapping[str, str] | None = None) -> None:
    """Create the namespace and the table if they are not there; ``properties`` are set in any case."""
    create_namespace(spark, table.rsplit(".", 1)[0])
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
    ours = ", ".join(f"'{name}'='{value}'" for name, value in (properties or {}).items())
    if ours:
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({ours})")
    follow_columns(spark, table, view, columns)


def follow_columns(spark: SparkSession, table: str, view: View, columns: Sequence[tuple[str, str]]) -> None:
    """Bring a table to the view's columns, by Iceberg's own schema evolution: no row is written anew.

    A column that the source has gained is null until its rows are read; what it can't be in place (another type) is
    left to Iceberg, which refuses the first merge.

    Args:
        spark: the session.
        table: its name inside Spark.
        view: whose columns it is to have.
        columns: (name, Spark type) of these, our own version column included.
    """
    there = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    for former, present in view.table.renamed:
        if former in there and present not in there and present in dict(columns) and former not in dict(columns):
            spark.sql(f"ALTER TABLE {table} RENAME COLUMN {quoted(former)} TO {quoted(present)}")
            there[present] = there.pop(former)
    for name in there.keys() - dict(columns).keys():
        spark.sql(f"ALTER TABLE {table} DROP COLUMN {quoted(name)}")
    added = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns if name not in there)
    if added:
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({added})")
    for name, kind in columns:
        if there.get(name, kind) != kind and widens(there[name], kind):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} TYPE {kind}")


def standing(entries: DataFrame) -> DataFrame:
    """The one entry of each key that stands, over all Arrow batches that a micro-batch was cut into.

    That is the newest version, unless a delete without a version lies behind it in the log.
    """
    version, offset, row = F.col(PREFIX + "version"), F.col(PREFIX + "offset"), F.struct("*")
    plain = version == UNVERSIONED
    newest = F.max_by(row, F.when(~plain, F.struct(version, offset))).alias("newest")
    ended = F.max_by(row, F.when(plain, offset)).alias("ended")
    both = without_tallies(entries).groupBy(PREFIX + "id").agg(newest, ended)
    # Offsets of two partitions can't be compared: then the one whose position is known stands.
    behind = F.expr(
        f"ended.{PREFIX}partition = newest.{PREFIX}partition AND ended.{PREFIX}offset >= newest.{PREFIX}offset"
    )
    gone = F.col("ended").isNotNull() & (F.col("newest").isNull() | behind)
    return both.select(F.when(gone, F.col("ended")).otherwise(F.col("newest")).alias("r")).select("r.*")


class Merger:
    """Applies one view's batches to its table; the function of ``foreachBatch``.

    Args:
        place: finds the table, whose name changes with a promotion, and whose property names the holder of the lease.
        spec: the flow's work: one view.
        checkpoint: the flow's checkpoint, whose id and offsets go into the snapshot summary.
        lease: of the generation.
    """

    def __init__(self, place: TablePlace, spec: FlowSpec, checkpoint: Path, lease: Lease) -> None:
        (self.view,) = spec.views.values()
        self.about = {"sink": spec.sink, "generation": spec.generation, "flow": self.view.name}
        self.place, self.spec, self.checkpoint, self.lease = place, spec, checkpoint, lease
        self.table = ""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Apply a batch once.

        Raises:
            Fenced: another process has taken the generation over (terminal).
        """
        query_id = json.loads((self.checkpoint / "metadata").read_text())["id"]
        spark = batch.sparkSession
        group = spark.sparkContext.getLocalProperty(GROUP) or query_id
        with about(**self.about, batch=batch_id), MERGES.turn(group):
            self.table = self.place.find()
            self.lease.check()
            self.place.check(spark, self.table)
            marks = {
                _QUERY: query_id,
                _BATCH: str(batch_id),
                _OFFSETS: json.dumps(batch_offsets(self.checkpoint, batch_id), separators=(",", ":")),
            }
            done, empty = self._history(spark, marks)
            if done:
                return
            # Session settings, because MERGE takes no options of its own; this session belongs to this query alone.
            for name, value in marks.items():
                spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)
            self._apply(spark, self._source(batch), empty=empty)

    def _history(self, spark: SparkSession, marks: Mapping[str, str]) -> tuple[bool, bool]:
        """Whether the table's history holds the very batch with these marks, and whether it holds nothing at all."""
        this = reduce(
            and_, (F.coalesce(F.col("summary")[name] == value, F.lit(False)) for name, value in marks.items())
        )
        snapshots = spark.table(f"{self.table}.snapshots")
        found, count = snapshots.agg(F.max(this), F.count("*")).collect()[0]
        return bool(found), count == 0

    def _source(self, batch: DataFrame) -> DataFrame:
        """The newest row of each key, as ``table_rows`` gives them."""
        more = [F.col(PREFIX + "version").alias(VERSION_COLUMN)]
        if self.view.needs_spark:
            more.append(F.struct(*(F.col(PREFIX + name).alias(name) for name in OWN)).alias(ENTRY))
        return table_rows(standing(batch), self.view, *more)

    def _apply(self, spark: SparkSession, source: DataFrame, *, empty: bool) -> None:
        # MERGE reads its source more than once, and letters are looked for before; the Python decoding runs once.
        once = not empty or self.view.needs_spark
        source = source.persist() if once else source
        try:
            if self.view.needs_spark:
                self._send_letters(source)
            rows = source.drop(ENTRY, LETTER)
            if empty:
                rows.where(f"NOT {GONE}").drop(GONE).writeTo(self.table).append()
                return
            rows.createOrReplaceTempView("hw_changes")
            spark.sql(merge_statement(self.table, key_names(self.view), rows.columns[:-1]))
        finally:
            if once:
                source.unpersist()

    def _send_letters(self, source: DataFrame) -> None:
        """Rows that can't be computed become dead letters before their batch is committed."""
        letters = []
        for row in source.where(F.col(LETTER).isNotNull()).select(ENTRY, LETTER).collect():
            entry, failed = Entry(*(row[ENTRY][name] for name in OWN)), row[LETTER]
            letters.append(letter_of(self.spec, entry, reason(self.view, failed["columns"], failed["seen"])))
        deadletters.send(self.spec.dead_letters, letters)


def key_names(view: View) -> list[str]:
    """The key's column names as the table has them."""
    renamed = dict(view.columns)
    return [renamed.get(name, name) for name in view.key]


def set_and_insert(columns: Sequence[str]) -> tuple[str, str]:
    """What a MERGE writes of a source called ``s``: the assignments of its UPDATE of ``t``, and its INSERT."""
    sets = ", ".join(f"t.`{name}` = s.`{name}`" for name in columns)
    listed, values = ", ".join(f"`{name}`" for name in columns), ", ".join(f"s.`{name}`" for name in columns)
    return sets, f"INSERT ({listed}) VALUES ({values})"  # noqa: S608 (names are quoted, no values)


def merge_statement(table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """MERGE of ``hw_changes`` into ``table``: newer rows replace, gone rows leave, and an older change does nothing."""
    on = " AND ".join(f"t.`{name}` = s.`{name}`" for name in keys)
    newer = f"s.{VERSION_COLUMN} >= t.{VERSION_COLUMN}"
    sets, insert = set_and_insert(columns)
    return (
        f"MERGE INTO {table} t USING hw_changes s ON {on} "
        f"WHEN MATCHED AND s.{GONE} AND ({newer} OR s.{VERSION_COLUMN} = {UNVERSIONED}) THEN DELETE "
        f"WHEN MATCHED AND NOT s.{GONE} AND {newer} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{GONE} THEN {insert}"
    )


@dataclass(frozen=True)
class TablePlace:
    """Where a generation's table is.

    Attributes:
        sink: the sink's part of the pipeline file.
        catalog: the catalogue's name inside Spark.
        view: the view's name.
        generation: which one.
        token: of the lease under which this process writes.
    """

    sink: Any
    catalog: str
    view: str
    generation: int
    token: int

    def find(self) -> str:
        """``catalog.namespace.table``, each part quoted; promotions change the name."""
        namespace, table = iceberg.find_table(self.sink, self.catalog, self.view, self.generation)
        return f"`{self.catalog}`.`{namespace}`.`{table}`"

    def there(self) -> bool:
        """Whether the generation has a table."""
        try:
            return bool(self.find())
        except SinkRefused:
            return False

    def make(self, spark: SparkSession, view: View) -> str:
        """The table, which is created when the generation has none yet.

        Raises:
            SinkRefused: another generation's table stands in its place (terminal).
        """
        try:
            table = self.find()
            self.check(spark, table)
        except SinkRefused as error:
            namespace, name = iceberg.table_name(self.sink, self.view, self.generation)
            table = f"`{self.catalog}`.`{namespace}`.`{name}`"
            if spark.catalog.tableExists(table):
                raise SinkRefused(
                    f"table {namespace}.{name} is there, but it is not generation {self.generation}'s",
                    means="nothing was written",
                    fix="`headwater generations FILE` shows which there are; `headwater rebuild` makes a new one",
                ) from error
        create_table(spark, table, view, {GENERATION: str(self.generation), LEASE: str(self.token)})
        return table

    def check(self, spark: SparkSession, table: str) -> None:
        """Raise if the table is not this generation's, or if a later holder of the lease has claimed it.

        The table is loaded anew here, and from here to the commit not again: if a promotion swaps the names meanwhile,
        the commit finds another table's metadata in its place, and fails. (A flow that starts again after a promotion
        would else see for ever what its name meant before.)

        Raises:
            SinkUnavailable: a promotion has just given the name to another generation (transient).
            Fenced: somebody else has claimed it (terminal).
        """
        spark.catalog.refreshTable(table)
        found = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
        if int(found.get(GENERATION, "1")) != self.generation:
            raise SinkUnavailable(f"table {table} was given to another generation just now")
        if int(found.get(LEASE, "0")) > self.token:
            raise Fenced(
                f"table {table} was claimed by another process",
                means="it goes on from the same place; this one has stopped writing, nothing is lost",
                fix="nothing, if the other process is meant to run; else stop that one first",
            )


def start_warehouse(spark: SparkSession, flow: Flow, sink: Any, catalog: str, lease: Lease) -> StreamingQuery:
    """Start a flow that keeps one view's table.

    Args:
        spark: the session.
        flow: its flow.
        sink: the sink's part of the pipeline file.
        catalog: the catalogue's name inside Spark.
        lease: of the generation.
    """
    (view,) = flow.spec.views.values()
    place = TablePlace(sink, catalog, view.name, flow.spec.generation, lease.token)
    lease.check()
    if not flow.is_new and not place.there():
        flow.refuse_gone(view.name)
    table = place.make(spark, view)
    if flow.is_new and not spark.table(table).limit(1).isEmpty():
        flow.refuse_filled(view.name)
    packed = flow.spec.pack()
    typed = map_in_arrow(changelog(spark, flow), partial(entries_with_rows, packed), entry_schema(view))
    typed, tally = with_expressions(typed, view), F.col(PREFIX + "view") == TALLY
    sent = F.when(tally, F.col(PREFIX + "version"))
    if view.needs_spark:
        sent = sent.otherwise(F.col(FAILED).isNotNull().cast("bigint"))
    counted = typed.observe(
        "applied",
        F.sum(F.when(tally, F.col(PREFIX + "offset"))).alias("records"),
        F.sum(sent).alias("rejected"),
        F.count(PREFIX + "document").alias("written"),
        F.max(F.when(~tally, F.col(PREFIX + "version"))).alias("position"),
        F.max(PREFIX + "ts_ms").alias("ts_ms"),
    )
    merger = Merger(place, flow.spec, flow.checkpoint, lease)
    writer = counted.writeStream.queryName(flow.title).foreachBatch(brief(merger))
    return begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow)
