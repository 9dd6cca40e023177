"""A table and the tail of its topic as one: what the table would be after its next merges. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from cdc.view import View
from operations.query.duck import quoted
from sinks.contract import MAX_VERSION, UNVERSIONED
from sinks.iceberg.numbers import numbers_in
from sinks.iceberg.rows import VERSION_COLUMN
from spark.reading.entries import Entry

# Of a row of the tail: that there must be none; over which versions of the table it wins.
GONE, WINS = "_hw_gone", "_hw_wins"


def tail_table(
    view: View, entries: Sequence[Entry], columns: Sequence[str], said: Mapping[str, str] | None = None
) -> pa.Table:
    """Entries as rows of a view's table, of gone ones the key alone, with our own columns behind.

    Args:
        view: of one table, without Spark SQL.
        entries: with typed rows.
        columns: of the table as it was committed: a column that the view has gained is the table's with its next merge.
        said: the table's properties.
    """
    schema = view.arrow_schema()
    transposed = list(zip(*(entry.row or () for entry in entries), strict=True)) or [()] * len(schema)
    arrays = {field.name: pa.array(values, field.type) for field, values in zip(schema, transposed, strict=True)}
    made: dict[str, pa.Array] = {}
    for source, out in view.columns:
        name = _present(view, out, columns, said or {})
        if name is not None:
            made[name] = arrays[source]
    made[VERSION_COLUMN] = pa.array([entry.version for entry in entries], pa.int64())
    made[WINS] = pa.array(
        [MAX_VERSION if entry.version == UNVERSIONED else entry.version for entry in entries], pa.int64()
    )
    made[GONE] = pa.array([entry.document is None for entry in entries], pa.bool_())
    return pa.table(made)


def key_columns(view: View, columns: Sequence[str], said: Mapping[str, str] | None = None) -> list[str]:
    """The key's columns as the table, of these columns and properties, has them."""
    shown = [dict(view.columns).get(name, name) for name in view.key]
    return [_present(view, name, columns, said or {}) or name for name in shown]


def _present(view: View, name: str, columns: Sequence[str], said: Mapping[str, str]) -> str | None:
    """A column's name in a table that may not have followed a new one yet; None where it is not there. What has the
    name there may be another column, which is called otherwise by now, or gone."""
    numbers, number = numbers_in(said, view.table), view.numbers.get(name)
    same = [column for column in columns if column in numbers and numbers[column] == number]
    if same:
        return name if name in same else same[0]
    former = {present: before for before, present in view.table.renamed}
    found = name if name in columns else former.get(name)
    return found if found in columns and (number is None or found not in numbers) else None


def united(committed: str, tail: str, keys: Sequence[str], columns: Sequence[str], floats: Collection[str] = ()) -> str:
    """SQL of a table and its tail, as ``merge_statement`` of ``spark.warehouse.merge`` would leave them.

    Newer rows of the tail replace, gone ones leave, and an older one does nothing. The table is named twice, so that
    what a query asks of it reaches its files: a full join of it with the tail would read all of it.

    Args:
        committed: what stands for the table behind FROM.
        tail: the same of the tail.
        keys: the key's columns.
        columns: of the tail that the table has.
        floats: those of the keys that are floats: 0.0 and -0.0 are two rows, and one number.
    """
    # Names that no column has: DuckDB takes "s.id" for a part of a column "s", if there is one.
    table, other = "_hw_table", "_hw_tail"
    pairs = [(f"{table}.{quoted(name)}", f"{other}.{quoted(name)}", name in floats) for name in keys]
    equal = [f"{one} = {its}" for one, its, _ in pairs]
    alike = [f"CAST({one} AS VARCHAR) = CAST({its} AS VARCHAR)" for one, its, is_float in pairs if is_float]
    same = " AND ".join([*equal, *alike])
    # A row without a version is somebody else's: nothing but a delete without one touches it.
    version = f"coalesce({table}.{quoted(VERSION_COLUMN)}, {MAX_VERSION})"
    listed = ", ".join(f"{other}.{quoted(name)}" for name in columns)
    return (
        f"SELECT {table}.* FROM {committed} {table} WHERE NOT EXISTS"  # noqa: S608 (names are quoted, no values)
        f" (SELECT 1 FROM {tail} {other} WHERE {same} AND {other}.{WINS} >= {version})"
        f" UNION ALL BY NAME SELECT {listed} FROM {tail} {other} WHERE NOT {other}.{GONE} AND NOT EXISTS"
        f" (SELECT 1 FROM {committed} {table} WHERE {same} AND {other}.{WINS} < {version})"
    )
