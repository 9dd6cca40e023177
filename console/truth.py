"""What the sinks should hold: computed from Postgres itself, not from the log and not with the pipeline's own codec.

Every column is read as Postgres prints it; ``cdc.truth`` turns that text into the value a document must have. Views with
Spark SQL get their fields from Spark over the same rows, cast from text by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from psycopg import sql

from cdc import truth
from cdc.catalogue import Column, Table
from cdc.keys import document_id
from cdc.pipeline import Source
from cdc.types import merge_fields, spark_type
from cdc.view import View
from connectors.postgres import connect, explained
from console.compare import digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows a round trip to the server; bounds memory on both sides.
FETCH = 10_000

Row = dict[str, str | None]


def read_rows(source: Source, table: Table) -> Iterator[list[Row]]:
    """All rows of a table as text, ``FETCH`` at a time, from one snapshot.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c.name)) for c in table.columns)
    query = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table.schema, table.name))
    names = [column.name for column in table.columns]
    with connect(source) as connection, explained(f"reading {table.qualified}"), connection.transaction():
        # The statement limit of our short catalogue queries would cut a long scan.
        for setting in ("statement_timeout = 0", *truth.SESSION):
            connection.execute(f"SET LOCAL {setting}".encode())
        with connection.cursor(name="headwater_truth") as cursor:
            cursor.itersize = FETCH
            cursor.execute(query)
            while rows := cursor.fetchmany(FETCH):
                yield [dict(zip(names, row, strict=True)) for row in rows]


def expected_digests(
    view: View, source: Source, spark: SparkSession | None, *, warehouse: bool = False
) -> dict[str, bytes]:
    """Key -> digest of what a sink must hold for a view.

    Args:
        view: the view.
        source: where Postgres is.
        spark: needed when the view has fields or a condition.
        warehouse: as a row of typed columns rather than a JSON document.
    """
    out: dict[str, bytes] = {}
    for rows in read_rows(source, view.table):
        computed = _computed(spark, view, rows) if view.needs_spark else [{}] * len(rows)
        for row, fields in zip(rows, computed, strict=True):
            if fields is not None:
                out[_key(view, row)] = digest(_document(view, row, fields, warehouse=warehouse))
    return out


def _key(view: View, row: Row) -> str:
    by_name = view.table.by_name
    return document_id([truth.expected(by_name[name], row[name]) for name in view.key])


def _document(view: View, row: Row, fields: Mapping[str, Any], *, warehouse: bool) -> Any:
    by_name = view.table.by_name
    values = {out: truth.expected(by_name[source], row[source]) for source, out in view.columns}
    if warehouse:
        values = {out: typed_value(by_name[source], values[out]) for source, out in view.columns}
    base: bytes = orjson.dumps(values)
    return merge_fields(base, fields)


def typed_value(column: Column, value: Any) -> Any:
    """The canonical value as a typed column can hold it (docs/types.md): no NaN in decimals, no infinite dates."""
    kind = spark_type(column)
    if value is None:
        return None
    if isinstance(value, list) and kind.startswith("array<"):
        return [typed_value(truth.element(column), item) for item in value]
    if kind.startswith("decimal"):
        return None if value in ("NaN", "Infinity", "-Infinity") else value
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return None if truth.beyond_typed(column, value) else value
    if kind == "string" and not isinstance(value, str):
        return value if isinstance(value, dict | list) else orjson.loads(orjson.dumps(value))
    return value


def _computed(spark: SparkSession | None, view: View, rows: list[Row]) -> list[dict[str, Any] | None]:
    """The view's fields for each row in order; None where the condition does not hold."""
    from console.expected import evaluate

    assert spark is not None
    return evaluate(spark, view, rows)
