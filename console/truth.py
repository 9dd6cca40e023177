"""What the sinks should hold: computed from Postgres itself, not from the log and not with the pipeline's own codec.

Every column is read as Postgres prints it; ``cdc.truth`` turns that text into the value a document must have, and
``cdc.truth_joined`` joins the tables of a view of several. Views with Spark SQL get their fields from Spark over the
same rows, cast from text by Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import orjson
from psycopg import sql

from cdc import truth
from cdc.catalogue import Table
from cdc.join.tree import Node
from cdc.pipeline import Source
from cdc.truth_joined import documents, expressions, used_columns
from cdc.types import merge_fields
from cdc.view import View
from connectors.postgres import Connection, connect, explained
from console.assembled import document_of, marked, shape_of, spark_row
from console.compare import digest
from console.evaluate import ask, canonical_rows, computed, table_shape, words
from console.typed import comparable_expected, tree_of, with_singles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows a round trip to the server, and rows Spark evaluates at once; bounds memory on both sides.
FETCH = 25_000
# The same for documents of several tables, each of which may hold many rows.
ASSEMBLED = 5_000

Row = dict[str, str | None]
# How sinks hold a view: as JSON documents, or as typed columns of a warehouse's table.
Form = Literal["document", "columns"]
# (id, document without Spark's fields, these fields or None if the condition leaves the row out)
Expected = tuple[str, bytes, Mapping[str, Any] | None]


def needs_spark(view: View) -> bool:
    """Whether Spark has to evaluate anything to know what a view must hold."""
    tree = tree_of(view)
    return view.needs_spark or (tree is not None and bool(expressions(tree)))


def expected_digests(
    view: View, source: Source, spark: SparkSession | None, forms: Collection[Form]
) -> dict[Form, dict[str, bytes]]:
    """What a sink must hold for a view: for each form, key -> digest.

    All tables are read in one transaction that sees one state of the database.

    Args:
        view: the view.
        source: where Postgres is.
        spark: needed when ``needs_spark``.
        forms: what the sinks that hold it need; they are made from one reading.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    out: dict[Form, dict[str, bytes]] = {form: {} for form in forms}
    tree = tree_of(view)
    with snapshot(source) as connection:
        found = _rows(view, connection, spark) if tree is None else _joined(view, tree, connection, spark)
        for identity, document, fields in found:
            if fields is None:
                continue
            for form in forms:
                held = orjson.dumps(comparable_expected(view, truth.parse(document))) if form == "columns" else document
                out[form][identity] = digest(with_singles(view, merge_fields(held, fields)))
    return out


@contextmanager
def snapshot(source: Source) -> Iterator[Connection]:
    """A connection inside a transaction that sees one state of the database, set to print as ``cdc.truth`` reads.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    with connect(source) as connection, explained("reading the tables"), connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # The statement limit of our short catalogue queries would cut a long scan; Spark's turns are idle time here.
        limits = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
        for name, value in {**limits, **truth.SESSION}.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        yield connection


def read_rows(connection: Connection, table: Table, names: Sequence[str] | None = None) -> Iterator[list[Row]]:
    """All rows of a table as text, ``FETCH`` at a time.

    Args:
        connection: of ``snapshot``.
        table: the table.
        names: the columns to read; None for all.
    """
    wanted = [column for column in table.columns if names is None or column.name in names]
    columns = ", ".join(truth.select_expression(column) for column in wanted)
    # The expressions are quoted by cdc.truth; the table's name here.
    query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(columns), sql.Identifier(table.schema, table.name))
    with connection.cursor(name=f"headwater_truth {table.qualified}") as cursor:
        cursor.itersize = FETCH
        cursor.execute(query)
        while rows := cursor.fetchmany(FETCH):
            yield [dict(zip([column.name for column in wanted], row, strict=True)) for row in rows]


def _rows(view: View, connection: Connection, spark: SparkSession | None) -> Iterator[Expected]:
    shape = table_shape(view.table, _said(view))
    for rows in read_rows(connection, view.table):
        fields: list[Mapping[str, Any] | None] = [{}] * len(rows)
        if view.needs_spark:
            assert spark is not None
            fields = computed(spark, view, shape, canonical_rows(view.table, shape, rows))
        for row, its in zip(rows, fields, strict=True):
            yield (*truth.expected_document(view, row), its)


def _joined(view: View, tree: Node, connection: Connection, spark: SparkSession | None) -> Iterator[Expected]:
    tables = _Tables(connection, marked(tree, _said(view)), view.key, spark)
    shape = shape_of(tables.tree, tables.kinds)
    found = documents(tables.tree, view.key, tables.rows, tables.evaluate)
    while batch := list(islice(found, ASSEMBLED)):
        fields: list[Mapping[str, Any] | None] = [{}] * len(batch)
        if view.needs_spark:
            assert spark is not None
            fields = computed(spark, view, shape, [spark_row(tables.tree, row) for _, row in batch])
        for (identity, row), its in zip(batch, fields, strict=True):
            yield identity, orjson.dumps(document_of(tables.tree, row)), its


def _said(view: View) -> list[str]:
    return [*view.fields.values(), *([view.where] if view.where else [])]


class _Tables:
    """The tables of a tree as ``documents`` takes them; Spark's part is evaluated while they are read.

    Args:
        connection: of ``snapshot``.
        tree: the tree.
        key: of the root.
        spark: needed if the tree has aggregates with Spark SQL.
    """

    def __init__(self, connection: Connection, tree: Node, key: Sequence[str], spark: SparkSession | None) -> None:
        self.tree, self._connection, self._spark = tree, connection, spark
        self._said, self._used = expressions(tree), used_columns(tree, key)
        self._answers: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self._said}
        self.rows = {name: chain.from_iterable(self._read(name, table)) for name, table in tree.tables().items()}
        self.kinds: dict[tuple[str, str], str] = {}
        for name, said in self._said.items():
            assert spark is not None
            types = ask(spark, table_shape(tree.tables()[name], said), [], said).types
            self.kinds |= {(name, one): kind for one, kind in zip(said, types, strict=True)}

    def evaluate(self, table: Table, wanted: Sequence[str]) -> Iterable[Sequence[Any]]:
        """The values of a table's expressions, row by row; the table was read before."""
        assert list(wanted) == self._said[table.qualified]
        return self._answers.pop(table.qualified)

    def _read(self, name: str, table: Table) -> Iterator[list[Row]]:
        said = self._said.get(name, [])
        mentioned = words(said)
        names = [c.name for c in table.columns if c.name in self._used[name] or c.name.lower() in mentioned]
        shape = table_shape(table, said)
        for rows in read_rows(self._connection, table, [*names, *shape.columns]):
            if said:
                assert self._spark is not None
                self._answers[name] += ask(self._spark, shape, canonical_rows(table, shape, rows), said).rows
            yield rows
