"""A view's table in the warehouse: where it is, its columns, and who may write to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.errors import Fenced, SinkRefused, SinkUnavailable
from cdc.join.columns import document_columns
from cdc.join.expressions import quoted
from cdc.stateful import StatefulView
from cdc.timed import TimedView
from cdc.types import spark_type
from cdc.view import View
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.numbers import NUMBERS, NUMBERS_OF, numbers_in
from sinks.iceberg.owners import GENERATION, MADE_BY, is_ours, made_by, not_ours
from sinks.iceberg.rows import ID_COLUMN, VERSION_COLUMN
from sinks.iceberg.types import widens
from spark.warehouse.commits import loaded
from spark.warehouse.whose import COMING, ids_noted, ids_there, refuse_taken, tell, to_note, whose

LEASE = iceberg.LEASE


def catalog_settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark settings that make an Iceberg catalogue known; they must be there when the session is built."""
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **{f"{prefix}.{key}": v for key, v in properties.items()}}


def table_columns(spark: SparkSession, view: View) -> list[tuple[str, str]]:
    """(name, Spark type) of the view's warehouse table, without our own version column."""
    if isinstance(view, StatefulView):
        return state_columns(view)
    frame = spark.createDataFrame([], ", ".join(f"{quoted(name)} {kind}" for name, kind in view.spark_schema()))
    selected = frame.select(*output_columns(view))
    return document_columns(view) + [(field.name, field.dataType.simpleString()) for field in selected.schema]


def state_columns(view: StatefulView) -> list[tuple[str, str]]:
    """The same of a view that keeps a state: a fold's key and its state; of windows and matches all that they say, and
    their ids."""
    by_name = view.table.by_name
    kinds = [(out, spark_type(by_name[source])) for source, out in view.columns] + list(view.state.items())
    return [*kinds, (ID_COLUMN, "string")] if isinstance(view, TimedView) else kinds


def output_columns(view: View) -> list[Column]:
    """The view's chosen, renamed and computed columns, over a frame of rows; of a joined view the computed ones."""
    return ([] if document_columns(view) else chosen_columns(view)) + [
        F.expr(expression).alias(name) for name, expression in view.fields.items()
    ]


def chosen_columns(view: View) -> list[Column]:
    """The view's chosen and renamed columns, over a frame of rows."""
    return [F.col(quoted(source)).alias(out) for source, out in view.columns]


def create_namespace(spark: SparkSession, namespace: str) -> None:
    """Create a namespace if it is not there. Two flows that begin at once may both find it missing, and a catalogue in
    SQL refuses the second entry: whoever was later finds it at his second look."""
    make = f"CREATE NAMESPACE IF NOT EXISTS {namespace}"
    try:
        spark.sql(make)
    except Exception:
        spark.sql(make)


# Readers share a file out by its row groups. With Iceberg's default of 128 MiB a compacted table of a million rows was
# one group, which DuckDB reads with one thread: 0.19 s on two cores, 0.08 s in groups of 150,000 rows.
ROW_GROUP = {"write.parquet.row-group-size-bytes": str(16 << 20)}
HOUSE = {
    # The metadata log grows by a file a commit; without this a table committed every few seconds fills its folder.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    **ROW_GROUP,
}


def create_table(spark: SparkSession, table: str, view: View, properties: Mapping[str, str], *, version: int) -> None:
    """Create the namespace and the table if they are not there; ``properties`` are set in any case.

    Args:
        spark: the session.
        table: its name inside Spark.
        view: whose columns it is to have.
        properties: of ours.
        version: of Iceberg's format, of a table that is made. With 3 a data file has at most one deletion vector, which
            each merge writes anew; with 2 each merge adds a file of deletes to be read by every reader.
    """
    create_namespace(spark, table.rsplit(".", 1)[0])
    columns = [*table_columns(spark, view), (VERSION_COLUMN, "bigint")]
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    settings = {
        "format-version": str(version),
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        **HOUSE,
        **properties,
    }
    said = ", ".join(f"'{name}'='{value}'" for name, value in settings.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({listed}) USING iceberg TBLPROPERTIES ({said})")
    there = loaded(spark, table).properties()
    later = {name: value for name, value in ROW_GROUP.items() if not there.containsKey(name)}  # of one made before
    ours = ", ".join(f"'{name}'='{value}'" for name, value in {**later, **properties}.items())
    if ours:
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({ours})")
    follow_columns(spark, table, view, columns)


def spelled(name: str, there: Iterable[str]) -> str | None:
    """As what a table has a column of this name: Spark ignores letter case. None if it has none. Pure."""
    return next((one for one in there if one.lower() == name.lower()), None)


def rename_column(spark: SparkSession, table: str, name: str, other: str) -> None:
    """Rename a table's column, in one commit. One that changes only in letter case is there already to Spark, and
    refused by it; Iceberg takes it for another name."""
    if name.lower() != other.lower():
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN {quoted(name)} TO {quoted(other)}")
        return
    loaded(spark, table).updateSchema().renameColumn(name, other).commit()
    spark.catalog.refreshTable(table)


def follow_columns(spark: SparkSession, table: str, view: View, columns: Sequence[tuple[str, str]]) -> None:
    """Bring a table to the view's columns, by Iceberg's own schema evolution: no row is written anew.

    A column that the source has gained is null until its rows are read; what it can't be in place (another type) is
    left to Iceberg, which refuses the first merge. One that somebody has renamed is renamed back, and one that somebody
    has added is left alone.

    Args:
        spark: the session.
        table: its name inside Spark.
        view: whose columns it is to have.
        columns: (name, Spark type) of these, our own version column included.

    Raises:
        SinkRefused: somebody has added a column under the name of one of them (terminal).
    """
    wanted, handle = dict(columns), loaded(spark, table)
    kinds = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    now, said, ids = view.numbers, handle.properties(), ids_there(handle)
    formers = [former for former, _ in view.table.renamed]
    found = whose(ids, ids_noted(said), json.loads(said.get(NUMBERS) or "{}"), [*wanted, *formers])
    refuse_taken(table, found.others, wanted)
    tell(table, found, wanted)
    own = list(found.ours.values())
    names, dropped = moves(own, numbers_in(said, view.table), now, list(wanted), view.table.renamed)
    # As they are called there, what they are to be called.
    called = {name: names.get(mine, mine) for name, mine in found.ours.items() if mine not in dropped}
    leaving = [name for name in found.ours if name not in called]
    known = {called[name]: ids[name] for name in called}
    properties = {**to_note({name: known.get(name, COMING) for name in wanted}, now), NUMBERS_OF: str(view.table.oid)}
    others = {name: other for name, other in called.items() if name != other}
    if others or leaving or any(said.get(name) != value for name, value in properties.items()):
        # In one commit: of columns that swap their names, a half would be taken for the whole at the next start.
        transaction = handle.newTransaction()
        if others or leaving:
            update = transaction.updateSchema()
            for name in leaving:
                update.deleteColumn(name)
            for name, other in others.items():
                update.renameColumn(name, other)
            update.commit()
        _note(transaction.updateProperties(), properties)
        transaction.commitTransaction()
        spark.catalog.refreshTable(table)
    there = {other: kinds[name] for name, other in called.items()}
    added = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns if name not in there)
    if added:
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({added})")
        spark.catalog.refreshTable(table)
        handle = loaded(spark, table)
        ids = ids_there(handle)
        _note(handle.updateProperties(), to_note({name: ids[name] for name in wanted}, now))
        spark.catalog.refreshTable(table)
    for name, kind in columns:
        if there.get(name, kind) != kind and widens(there[name], kind):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} TYPE {kind}")


def _note(update: Any, properties: Mapping[str, str]) -> None:
    """Set properties of a table, by Iceberg's own change of them."""
    for name, value in properties.items():
        update.set(name, value)
    update.commit()


def moves(
    there: Sequence[str],
    numbers: Mapping[str, int],
    now: Mapping[str, int],
    wanted: Sequence[str],
    renamed: Iterable[tuple[str, str]],
) -> tuple[dict[str, str], list[str]]:
    """What a table's columns are to be called, and which go: by the numbers of those of which they are known. By names
    a table that has missed a step (its sink was paused) would keep one column's values as another's. Pure.

    Args:
        there: names of the columns of ours that it has.
        numbers: name -> number in the source, of those that are known to be one of the source's.
        now: the same of those that it is to have.
        wanted: names of all that it is to have.
        renamed: (former name, present name), by which the others go.

    Returns:
        name -> name of those that get another, and names of those that go.
    """
    numbered = {name: numbers[name] for name in there if name in numbers} if now else {}
    kept = {name for name, number in numbered.items() if name in wanted and now.get(name) == number}
    names = dict[str, str]()
    for name, number in numbered.items():
        places = [out for out in wanted if now.get(out) == number and out not in {*kept, *names.values()}]
        if name not in kept and places:
            names[name] = places[0]
    others = [name for name in there if name not in numbered]
    kept |= {name for name in others if name in wanted and name not in names.values()}
    for former, present in renamed:
        free = present in wanted and present not in {*kept, *names.values()}
        if free and former in others and former not in wanted and former not in names:
            names[former] = present
    return names, [name for name in there if name not in kept and name not in names]


@dataclass(frozen=True)
class TablePlace:
    """Where a generation's table is.

    Attributes:
        sink: the sink's part of the pipeline file.
        catalog: the catalogue's name inside Spark.
        view: the view's name.
        generation: which one.
        token: of the lease under which this process writes.
        owner: ``<pipeline>/<sink>``, whose it is.
    """

    sink: Any
    catalog: str
    view: str
    generation: int
    token: int
    owner: str

    def find(self) -> str:
        """``catalog.namespace.table``, each part quoted; promotions change the name."""
        namespace, table = iceberg.find_table(self.sink, self.catalog, self.view, self.generation)
        return f"`{self.catalog}`.`{namespace}`.`{table}`"

    def there(self) -> bool:
        """Whether the generation has a table.

        Raises:
            SinkRefused: the catalogue does not let us in. SinkUnavailable: it does not open (transient).
        """
        return iceberg.there(self.sink, self.catalog, self.view, self.generation)

    def filled(self, spark: SparkSession) -> bool:
        """Whether the generation's table, which is there, has rows; nothing is changed.

        Raises:
            as ``check``.
        """
        table = self.find()
        self.check(spark, table)
        return not spark.table(table).limit(1).isEmpty()

    def make(self, spark: SparkSession, view: View) -> str:
        """The table, which is created when the generation has none yet.

        Raises:
            SinkRefused: another generation's table stands in its place, or another one's (terminal).
        """
        if self.there():
            table = self.find()
            self.check(spark, table)
        else:
            namespace, name = iceberg.table_name(self.sink, self.view, self.generation)
            table = f"`{self.catalog}`.`{namespace}`.`{name}`"
            if spark.catalog.tableExists(table):
                raise SinkRefused(
                    f"table {namespace}.{name} is there, but it is not generation {self.generation}'s",
                    means="nothing was written",
                    fix="`headwater generations FILE` shows which there are; `headwater rebuild` makes a new one",
                )
        iceberg.check_files(self.sink)
        whose = made_by(self.owner, self.view)
        properties = {GENERATION: str(self.generation), LEASE: str(self.token), MADE_BY: whose}
        create_table(spark, table, view, properties, version=self.sink.format_version)
        return table

    def claimed_table(self, spark: SparkSession, known: str) -> str:
        """The table to write to, loaded anew.

        Args:
            spark: the session.
            known: under which name it was last; the catalogue's database is asked only where that leads elsewhere, or
                where it is empty, the first time.

        Raises:
            SinkRefused: there is none. SinkUnavailable: it was just promoted (transient).
            Fenced: somebody else has claimed it (terminal).
        """
        if known:
            with suppress(SinkUnavailable, AnalysisException):
                self.check(spark, known)
                return known
        table = self.find()
        self.check(spark, table)
        return table

    def check(self, spark: SparkSession, table: str) -> None:
        """Raise if the table is another's, or not this generation's, or if a later holder of the lease has claimed it.

        The table is loaded anew here, and from here to the commit not again: if a promotion swaps the names meanwhile,
        the commit finds another table's metadata in its place, and fails. (A flow that starts again after a promotion
        would else see for ever what its name meant before.)

        Raises:
            SinkRefused: another pipeline, sink or tool has made it (terminal).
            SinkUnavailable: a promotion has just given the name to another generation (transient).
            Fenced: somebody else has claimed it (terminal).
        """
        spark.catalog.refreshTable(table)
        found = loaded(spark, table).properties()
        if not is_ours(found, self.owner, self.view):
            raise not_ours(table, found, self.owner, self.view)
        if int(found.get(GENERATION) or 1) != self.generation:
            raise SinkUnavailable(f"table {table} was given to another generation just now")
        if int(found.get(LEASE) or 0) > self.token:
            raise Fenced(
                f"table {table} was claimed by another process",
                means="it goes on from the same place; this one has stopped writing, nothing is lost",
                fix="nothing, if the other process is meant to run; else stop that one first",
            )
