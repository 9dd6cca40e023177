"""Repair of a warehouse's rows: made again from the log, and put in the place of the wrong ones by one commit."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from cdc.errors import SinkUnavailable
from cdc.table_key import TableKey
from cdc.view import View
from operations.holding import TWICE, Holds
from operations.records.newest import Newest, Record, newest_records
from sinks.contract import UNREADABLE
from sinks.iceberg.catalogue import catalog_name
from sinks.iceberg.owners import GENERATION
from sinks.iceberg.rows import VERSION_COLUMN, held_keys
from sinks.iceberg.target import IcebergTarget
from spark.arrow import map_in_arrow
from spark.reading.expressions import PREFIX, entry_schema, without_tallies
from spark.reading.record import batch_of
from spark.warehouse.keyless import keyed_entries
from spark.warehouse.keys import float_keys, key_names, same_key
from spark.warehouse.merge import GONE, LETTER, set_and_insert, table_rows, with_expressions
from spark.warehouse.table import TablePlace, table_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from operations.verify.repair.work import Repair

# A commit of `headwater run` between our look at the table and our own commit makes ours fail; it is then made again.
ATTEMPTS = 5
PAUSE_SECONDS = 0.5
# Of the messages with which a commit fails that may succeed when it is made again.
PASSING = ("conflict", "uuid does not match", "cannot commit")
_ID, _SEEN, _ADDED, _CHANGES = "__id", "_hw_seen", "_hw_added", "hw_repair"


def own_columns() -> tuple[Column, Column]:
    """What rows made from entries have beside the table's columns: the key as text, and the version."""
    return F.col(PREFIX + "id").alias(_ID), F.col(PREFIX + "version").alias(VERSION_COLUMN)


def repair_rows(work: Repair, kinds: Mapping[str, str], newest: Mapping[str, Newest] | None = None) -> None:
    """Put rows right: wrong and missing ones come from their newest records, those that nobody knows go.

    Args:
        work: the view and its place.
        kinds: key -> how it differs.
        newest: their newest records, if they have been read.
    """
    held, table = work.holding.get(list(kinds)), f"{work.view.table.qualified}"
    if newest is None:
        newest = newest_records(work.build.pipeline, work.flow.spec, work.view, list(kinds))
        kinds = work.still(kinds, newest)
    records, gone, place = [], set(), TableKey.of(work.view)
    twice = {key for key, holds in held.items() if holds.digest == TWICE}
    for key, kind in kinds.items():
        found = newest.get(key)
        if kind == "extra":
            gone.add(key)
        elif found is None or found.entry.document is None:
            work.refused.add(key, f"the log does not have this row: `headwater resnapshot FILE {table}`")
        elif why := place.unheld(key):
            work.refused.add(key, why)
        else:
            records.append(found.record)
            # An update would leave as many rows as there are: all of them go, and one comes.
            gone |= {key} & twice
    parts = [_remade(work, records, held, twice)] if records else []
    parts += leaving(work, gone, held)
    if parts:
        merge(work, parts)


def _remade(work: Repair, records: Sequence[Record], held: Mapping[str, Holds], twice: Collection[str]) -> DataFrame:
    """Rows made from records, as the flow makes them, each with the version that was seen in its place; those that come
    in the place of several are marked to be added, whatever is there."""
    view = work.view
    frame = work.spark.createDataFrame(pa.Table.from_batches([batch_of(records)])).coalesce(1)
    typed = without_tallies(map_in_arrow(frame, partial(keyed_entries, work.flow.spec.pack()), entry_schema(view)))
    made = table_rows(with_expressions(typed, view), view, *own_columns()).drop(LETTER)
    return beside_seen(work, made, held, twice)


def beside_seen(work: Repair, made: DataFrame, held: Mapping[str, Holds], twice: Collection[str]) -> DataFrame:
    """Rows with the version that was seen in the place of each.

    Args:
        work: the view and its place.
        made: rows that have the columns of ``own_columns``.
        held: what was seen.
        twice: keys that the table has several times.
    """
    seen = pa.table(
        {
            _ID: pa.array(list(held), pa.string()),
            _SEEN: pa.array([holds.version for holds in held.values()], pa.int64()),
            _ADDED: pa.array([key in twice for key in held], pa.bool_()),
        }
    )
    return made.join(work.spark.createDataFrame(seen), _ID, "left").drop(_ID)


def leaving(work: Repair, keys: Collection[str], held: Mapping[str, Holds]) -> list[DataFrame]:
    """Rows of the table that are to go, as they are there; one for each key, because a row may meet one only. (The text
    "null" and a row without a key have one id, and are two keys.)

    Args:
        work: the view and its place.
        keys: the rows'; one that was not seen, or is not there any more, has gone by itself.
        held: what was seen.

    Returns:
        a part of the commit; nothing if no row is left.
    """
    left, batches = held.keys() & set(keys), []
    met, names = set[tuple[str, tuple[bool, ...]]](), key_names(work.view)
    target = work.holding.target
    assert isinstance(target, IcebergTarget), "rows are repaired in tables"
    for batch in target.batches(work.view.name, sorted(left)):
        first = []
        lacking = zip(*(batch.column(name).is_null().to_pylist() for name in names), strict=True)
        for one in zip(held_keys([batch], names), lacking, strict=True):
            goes = one[0] in left and one not in met
            first.append(one[0] if goes else None)
            if goes:
                met.add(one)
        versions = pa.array([None if key is None else held[key].version for key in first], pa.int64())
        rows = pa.Table.from_batches([batch]).append_column(_SEEN, versions)
        batches.append(rows.filter(pa.array([key is not None for key in first], pa.bool_())))
    if not any(part.num_rows for part in batches):
        return []
    rows = work.spark.createDataFrame(pa.concat_tables(batches))
    return [rows.select("*", F.lit(True).alias(GONE), F.lit(False).alias(_ADDED))]


def merge(work: Repair, parts: Sequence[DataFrame]) -> None:
    """One commit of rows that are remade and rows that leave, made again when a commit of the flow comes between.

    Raises:
        SinkUnavailable: the flow commits too often (transient).
    """
    build, spark = work.build, work.spark
    place = TablePlace(
        build.pipeline.sinks[build.sink],
        catalog_name(build.sink),
        work.view.name,
        build.generation.number,
        build.token,
        build.owner,
    )
    # Of the table's columns ours alone: what somebody has added to it is not in what was remade.
    names = [name for name, _ in table_columns(spark, work.view)] + [VERSION_COLUMN]
    source = parts[0]
    for part in parts[1:]:
        source = source.unionByName(part, allowMissingColumns=True)
    source = source.persist()
    try:
        source.createOrReplaceTempView(_CHANGES)
        for _ in range(ATTEMPTS):
            table = place.find()
            place.check(spark, table)
            if _is_ours(work, table):
                there = {field.name for field in spark.table(table).schema}
                try:
                    spark.sql(statement(table, work.view, [name for name in names if name in there]))
                    return
                except PySparkException as error:
                    if not any(word in str(error).lower() for word in PASSING):
                        raise
            time.sleep(PAUSE_SECONDS)
        raise SinkUnavailable(f"table {table} is committed or promoted too often", fix="run it again")
    finally:
        source.unpersist()


def _is_ours(work: Repair, table: str) -> bool:
    """Whether a name leads to the generation's table at this moment."""
    found = work.spark.sql(f"SHOW TBLPROPERTIES {table}").where(F.col("key") == GENERATION).collect()
    return (int(found[0]["value"]) if found else 1) == work.build.generation.number


def statement(table: str, view: View, columns: Sequence[str]) -> str:
    """MERGE of what was remade; a row that somebody has changed since it was seen is left to the change.

    Args:
        table: its name, quoted.
        view: the view.
        columns: the table's that are ours.
    """
    keys = same_key(key_names(view), float_keys(view), "<=>")
    held = f"coalesce(t.{VERSION_COLUMN}, {UNREADABLE})"
    unchanged = f"{held} <= s.{_SEEN}"
    # What is added in the place of several rows is not, if one of them has been changed and so will stay.
    source = (
        f"(SELECT * FROM {_CHANGES} s WHERE NOT coalesce(s.{_ADDED}, false) OR NOT EXISTS "  # noqa: S608
        f"(SELECT 1 FROM {table} t WHERE {keys} AND {held} > s.{_SEEN}))"
    )
    sets, insert = set_and_insert(columns)
    return (
        f"MERGE INTO {table} t USING {source} s ON {keys} "
        f"AND NOT coalesce(s.{_ADDED}, false) "
        f"WHEN MATCHED AND s.{GONE} AND {unchanged} THEN DELETE "
        f"WHEN MATCHED AND NOT s.{GONE} AND (s.{VERSION_COLUMN} >= {held} OR {unchanged}) "
        f"THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{GONE} THEN {insert}"
    )
