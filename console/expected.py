"""One document as it must be, from Postgres by plain SQL: only the rows that it is made of are read.

The same second opinion as ``headwater verify`` has (``cdc.truth``, ``cdc.truth_joined``, Spark over canonical values),
for a single key: the root's row is looked up, and from there every row that the tree reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import psycopg
from psycopg import sql

from cdc import truth
from cdc.catalogue import Table
from cdc.join.tree import Node
from cdc.keys import document_id, split_id
from cdc.pipeline import Source
from cdc.truth_joined import documents, expressions, used_columns
from cdc.types import merge_fields
from cdc.view import View
from connectors.postgres import Connection
from console.assembled import document_of, marked, shape_of, spark_row
from console.evaluate import Shape, ask, canonical_rows, computed, table_shape, words
from console.truth import Row, read_rows, snapshot
from console.typed import tree_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Key types whose canonical text Postgres reads as the same value; a row with another key is found by reading all keys.
PLAIN = frozenset(
    ("int2", "int4", "int8", "smallint", "integer", "bigint", "oid", "numeric", "bool", "boolean", "uuid")
) | frozenset(("text", "varchar", "name", "bpchar", "character"))
# Values that one query names.
PIECE = 500


@dataclass(frozen=True)
class Wanted:
    """What a document must be.

    Attributes:
        document: None if there must be none.
        why: then, why not.
    """

    document: bytes | None
    why: str = ""


def expected_document(view: View, source: Source, key: str, spark: SparkSession | None) -> Wanted:
    """The document that a view must have under a key.

    Args:
        view: the view.
        source: where Postgres is.
        key: the document's id.
        spark: needed when ``console.truth.needs_spark``.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    said = [*view.fields.values(), *([view.where] if view.where else [])]
    tree = tree_of(view)
    with snapshot(source) as connection:
        if tree is None:
            row = _root_row(connection, view, key, [column.name for column in view.table.columns])
            if row is None:
                return _no_row(view)
            shape = table_shape(view.table, said)
            _, document = truth.expected_document(view, row)
            seen: Mapping[str, Any] = canonical_rows(view.table, shape, [row])[0]
        else:
            reach = _Reach(connection, view, marked(tree, said), spark)
            found = reach.document(key)
            if found is None:
                return _no_row(view)
            document = orjson.dumps(document_of(reach.tree, found))
            shape = shape_of(reach.tree, reach.kinds()) if view.needs_spark else Shape({})
            seen = spark_row(reach.tree, found)
    if not view.needs_spark:
        return Wanted(document)
    assert spark is not None
    fields = computed(spark, view, shape, [seen])[0]
    if fields is None:
        return Wanted(None, f"the condition of the view leaves it out: {view.where}")
    return Wanted(merge_fields(document, fields))


def _no_row(view: View) -> Wanted:
    return Wanted(None, f"{view.table.qualified} has no such row")


def _root_row(connection: Connection, view: View, key: str, names: Sequence[str]) -> Row | None:
    """The root's row with these columns; the key's are read too."""
    by_name, texts = view.table.by_name, split_id(key, len(view.key))
    if len(texts) != len(view.key):
        return None
    wanted = [*names, *(name for name in view.key if name not in names)]
    if all(by_name[name].base_type in PLAIN and not by_name[name].array for name in view.key):
        try:
            with connection.transaction():
                rows: Iterable[Row] = list(_matching(connection, view.table, wanted, view.key, [tuple(texts)]))
        except psycopg.DataError:  # `abc` is no integer: no row has that key
            return None
    else:
        rows = (row for piece in read_rows(connection, view.table, wanted) for row in piece)
    return next((row for row in rows if _identity(view, row) == key), None)


def _identity(view: View, row: Row) -> str:
    values = [truth.expected(view.table.by_name[name], row[name]) for name in view.key]
    return document_id([orjson.dumps(one).decode() if isinstance(one, orjson.Fragment) else one for one in values])


def _matching(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    columns: Sequence[str],
    values: Sequence[tuple[str, ...]],
) -> Iterator[Row]:
    """Rows whose columns have any of these values; Postgres reads the texts as the columns' own types."""
    wanted = [column for column in table.columns if column.name in names]
    query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN ({})")
    comma = sql.SQL(", ")
    for start in range(0, len(values), PIECE):
        # Literals, not parameters: the expressions, which cdc.truth quotes, hold signs of percent.
        piece = [sql.SQL("({})").format(comma.join(map(sql.Literal, texts))) for texts in values[start : start + PIECE]]
        composed = query.format(
            comma.join([sql.SQL(truth.select_expression(column)) for column in wanted]),
            sql.Identifier(table.schema, table.name),
            comma.join([sql.Identifier(name) for name in columns]),
            comma.join(piece),
        )
        for row in connection.execute(composed):
            yield dict(zip([column.name for column in wanted], row, strict=True))


@dataclass
class _Reach:
    """The rows that one document is made of, read edge by edge from its root.

    Attributes:
        connection: of ``console.truth.snapshot``.
        view: the view.
        tree: its tree, marked with what Spark sees.
        spark: needed if the tree has aggregates with Spark SQL.
        rows: ``schema.table`` -> primary key's texts -> row.
    """

    connection: Connection
    view: View
    tree: Node
    spark: SparkSession | None
    rows: dict[str, dict[tuple[str | None, ...], Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tables, self._said = self.tree.tables(), expressions(self.tree)
        self._names = {name: self._needed(table) for name, table in self._tables.items()}
        self.rows = {name: {} for name in self._tables}

    def _needed(self, table: Table) -> list[str]:
        said = self._said.get(table.qualified, [])
        mentioned = words(said)
        names = {*used_columns(self.tree, self.view.key)[table.qualified], *table.primary_key}
        names |= {column.name for column in table.columns if column.name.lower() in mentioned}
        return [*names, *table_shape(table, said).columns]

    def document(self, key: str) -> dict[str, Any] | None:
        """The document, marked, without ``fields`` and ``where``; None if its root is not there."""
        root = _root_row(self.connection, self.view, key, self._names[self.view.table.qualified])
        if root is None:
            return None
        self._add(self.tree.table, [root])
        self._descend(self.tree, [root])
        given = {name: list(rows.values()) for name, rows in self.rows.items()}
        found = documents(self.tree, self.view.key, given, self._evaluate)
        return next((document for identity, document in found if identity == key), None)

    def kinds(self) -> dict[tuple[str, str], str]:
        """(table, expression) -> its Spark SQL type."""
        found: dict[tuple[str, str], str] = {}
        for name, said in self._said.items():
            assert self.spark is not None
            types = ask(self.spark, table_shape(self._tables[name], said), [], said).types
            found |= {(name, one): kind for one, kind in zip(said, types, strict=True)}
        return found

    def _descend(self, node: Node, above: Sequence[Row]) -> None:
        for below in node.nested:
            self._descend(below, self._fetch(below.table, below.on, above))
        for item in node.aggregates:
            self._fetch(item.table, item.on, above)

    def _fetch(self, table: Table, on: Sequence[tuple[str, str]], above: Sequence[Row]) -> list[Row]:
        texts = dict.fromkeys(tuple(row[left] for left, _ in on) for row in above)
        values = [tuple(str(text) for text in one) for one in texts if None not in one]
        columns = [right for _, right in on]
        rows = list(_matching(self.connection, table, self._names[table.qualified], columns, values))
        self._add(table, rows)
        return rows

    def _add(self, table: Table, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows[table.qualified].setdefault(tuple(row[name] for name in table.primary_key), row)

    def _evaluate(self, table: Table, wanted: Sequence[str]) -> Iterable[Sequence[Any]]:
        assert self.spark is not None
        shape = table_shape(table, wanted)
        rows = canonical_rows(table, shape, self.rows[table.qualified].values())
        return ask(self.spark, shape, rows, wanted).rows
