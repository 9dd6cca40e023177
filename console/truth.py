"""What the sinks should hold: computed from Postgres itself, not from the log and not with the pipeline's own codec.

Every column is read as Postgres prints it; ``cdc.truth`` turns that text into the value a document must have. Views
with Spark SQL get their fields from Spark over the same rows, cast from text by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from psycopg import sql

from cdc import truth
from cdc.catalogue import Table
from cdc.pipeline import Source
from cdc.types import merge_fields
from cdc.view import View
from connectors.postgres import connect, explained
from console.compare import digest, parse
from console.typed import comparable_expected, evaluate, with_singles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows a round trip to the server, and rows Spark evaluates at once; bounds memory on both sides.
FETCH = 25_000

Row = dict[str, str | None]


def read_rows(source: Source, table: Table) -> Iterator[list[Row]]:
    """All rows of a table as text, ``FETCH`` at a time, from one snapshot.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    columns = ", ".join(truth.select_expression(column) for column in table.columns)
    # The expressions are quoted by cdc.truth; the table's name here.
    query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(columns), sql.Identifier(table.schema, table.name))
    names = [column.name for column in table.columns]
    with connect(source) as connection, explained(f"reading {table.qualified}"), connection.transaction():
        # The statement limit of our short catalogue queries would cut a long scan.
        for name, value in {"statement_timeout": "0", **truth.SESSION}.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
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
        computed: list[Mapping[str, Any] | None] = [{}] * len(rows)
        if view.needs_spark:
            assert spark is not None
            computed = evaluate(spark, view, rows)
        for row, fields in zip(rows, computed, strict=True):
            if fields is not None:
                identity, document = truth.expected_document(view, row)
                if warehouse:
                    document = orjson.dumps(comparable_expected(view, parse(document)))
                out[identity] = digest(with_singles(view, merge_fields(document, fields)))
    return out
