"""Rows of the source as text, for verification: all of them, or those of some keys (truth/sample.py: a random few).

Everything is read in one transaction that sees one state of the database, by plain SQL, a page at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import orjson
import psycopg
from psycopg import sql

from cdc.catalogue import Column, Table
from cdc.keys import document_id, split_id
from cdc.paging import PageSize, parts
from cdc.pipeline import Source
from cdc.types import type_key
from cdc.view import View
from connectors.postgres import Connection, connect, explained
from connectors.tables.partitions import estimated_rows
from connectors.tables.row_security import hides_rows
from truth import values as truth
from truth.altered import stored
from truth.event_types import ALL, of_types

# Rows a round trip to the server brings, and about how much text they may hold together; bounds memory. It begins with
# one row: a thousand of 3 MB, of which nothing was known yet, were 3 GB.
FETCH, FETCHED_CHARS = 5_000, 8 << 20
WHOLE = sql.SQL("")
# Keys that one look-up names, at the most.
LOOKED_UP = 5_000
# Key types whose canonical text is Postgres's own; a row with another key is found by reading all keys.
PLAIN = frozenset(
    ("int2", "int4", "int8", "oid", "numeric", "bool", "uuid", "text", "varchar", "name", "bpchar", "citext", "enum")
) | frozenset(("inet", "cidr", "macaddr", "macaddr8", "time"))
# Moments, whose canonical text Postgres reads as well, but for those before the year 1 and after 9999 and both ends of
# time. A partitioned table has its moments in its key.
_MOMENTS = frozenset(("date", "timestamp", "timestamptz"))
_FAR = re.compile(r"[-+]|0000-|infinity")
_WHOLE = frozenset(("int2", "int4", "int8"))
# Types of which a value may be written in several ways, and whose canonical text Postgres reads: rows of such a key are
# asked for by value where their own text is not known.
_BY_VALUE = PLAIN | {"float4", "float8", "interval", "jsonb", "numrange"}
# Types that are compared without what a column limits them to, a domain's rule included: a value that the column has no
# room for is then one that no row has, and no error. Of the others a name alone is another type (`bit` is `bit(1)`), or
# leads nowhere without its schema.
_UNLIMITED = frozenset(
    ("numeric", "bool", "uuid", "text", "varchar", "name", "timestamptz", "timestamp", "date", "time", "bytea")
) | frozenset(("varbit", "money", "inet", "cidr", "macaddr", "macaddr8"))

Row = dict[str, str | None]


@contextmanager
def snapshot(source: Source) -> Iterator[Connection]:
    """A connection inside a transaction that sees one state of the database, set to print as ``truth.values`` reads.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    denied = (
        f"GRANT SELECT on the tables (of a schema: USAGE, too) to {source.user}, who compares what sinks hold with them"
    )
    with (
        connect(source) as connection,
        explained(f"reading the tables as {source.user}", denied=denied),
        connection.transaction(),
    ):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # The statement limit of our short catalogue queries would cut a long scan; Spark's turns are idle time here.
        limits = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
        # A row that a policy hides would be taken for one that is not there, and a document that is right for one too
        # many: an error instead. Not where all policies show all, which Postgres, so set, would refuse as well.
        policies = {"row_security": "off" if hides_rows(connection, source.user) else "on"}
        for name, value in {**limits, **policies, **truth.SESSION}.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        # Texts are wanted as the server prints them; a plan for a handful of keys is no plan for a page of them.
        connection.prepare_threshold = None
        yield connection


def wal_position(connection: Connection) -> int:
    """How far the server's log has got, in bytes: everything that a snapshot sees was committed before.

    Call it when the snapshot has been taken (its first query makes it).
    """
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def read_rows(
    connection: Connection,
    table: Table,
    names: Sequence[str] | None = None,
    only: sql.Composable = ALL,
    part: sql.Composable = WHOLE,
) -> Iterator[list[Row]]:
    """All rows of a table, a page at a time, of about ``FETCH`` rows or ``FETCHED_CHARS``.

    Args:
        connection: of ``snapshot``.
        table: the table.
        names: the columns to read; None for all.
        only: see ``of_types``.
        part: ``TABLESAMPLE`` of the table; all of it.
    """
    wanted = _columns(table, names)
    heads = [column.name for column in wanted]
    # The expressions are quoted by truth.values; the table's name here.
    query = sql.SQL("SELECT {} FROM {}{} WHERE {}").format(_selected(table, wanted), _named(table), part, only)
    with connection.cursor(name=f"headwater_truth {table.qualified}") as cursor:
        cursor.execute(query)
        size = PageSize(FETCH, around=FETCHED_CHARS)

        def fetched() -> Iterator[list[Row]]:
            while rows := cursor.fetchmany(size.count):
                yield [dict(zip(heads, row, strict=True)) for row in rows]

        yield from _paged(fetched(), size)


def _paged(pieces: Iterator[list[Row]], size: PageSize) -> Iterator[list[Row]]:
    """Pieces, each of as many rows as ``size`` said, as pages: to Spark each page is a job, however small it is."""
    page, length = list[Row](), 0
    for piece in pieces:
        lengths = [length_of(row) for row in piece]
        size.read(lengths or [0])
        page += piece
        length += sum(lengths)
        if len(page) >= FETCH or length >= FETCHED_CHARS:
            yield page
            page, length = [], 0
    if page:
        yield page


def length_of(row: Row) -> int:
    """How much text a row holds."""
    return sum(len(text) for text in row.values() if text)


def matching_rows(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    columns: Sequence[str],
    values: Sequence[tuple[str, ...]],
    only: sql.Composable = ALL,
) -> Iterator[Row]:
    """Rows whose columns have any of these values, and perhaps a few more: Postgres casts the texts to their types.

    What no row can have is no error where it has the type: a number that is too long, a text that a domain refuses.

    Args:
        connection: of ``snapshot``.
        table: the table.
        names: the columns to read.
        columns: the columns that are looked at.
        values: texts for ``columns``, each once.
        only: see ``of_types``; the table is called ``t``.

    Raises:
        psycopg.DataError: a text is none of its column's type; see ``looked_up``.
        psycopg.IntegrityError: the same, by the rule of a domain over a type that is not compared without it.
    """
    wanted = _columns(table, names)
    heads = [column.name for column in wanted]
    looked_at = [_present(table, name) for name in columns]
    parts = [sql.Identifier(f"k{at}") for at in range(len(columns))]
    for start in range(0, len(values), LOOKED_UP):
        piece = values[start : start + LOOKED_UP]
        # Literals, not parameters: the expressions, which truth.values quotes, hold signs of percent.
        arrays = [
            sql.SQL("{}::text[]").format(sql.Literal(_array([row[at] for row in piece]))) for at in range(len(columns))
        ]
        query = sql.SQL("SELECT {} FROM (SELECT {} FROM unnest({}) AS u({})) AS k JOIN {} AS t ON {} WHERE {}").format(
            _selected(table, wanted, "t"),
            sql.SQL(", ").join(
                sql.SQL("{} AS {}").format(_compared(column, part), part)
                for part, column in zip(parts, looked_at, strict=True)
            ),
            sql.SQL(", ").join(arrays),
            sql.SQL(", ").join(parts),
            _named(table),
            sql.SQL(" AND ").join(
                sql.SQL("t.{} = k.{}").format(sql.Identifier(column.name), part)
                for part, column in zip(parts, looked_at, strict=True)
            ),
            only,
        )
        for row in connection.execute(query):
            yield dict(zip(heads, row, strict=True))


def rows_of_ids(connection: Connection, view: View, names: Sequence[str], ids: Sequence[str]) -> Iterator[list[Row]]:
    """The root's rows of these documents, a page at a time; ids that have none, or one of another type, are left out.

    Args:
        connection: of ``snapshot``.
        view: the view.
        names: the columns to read; the key's are read too.
        ids: document ids, each once.
    """
    key = [_present(view.table, name) for name in view.key]
    wanted = [*names, *(name for name in view.key if name not in names)]
    split = {one: texts for one in ids if len(texts := tuple(split_id(one, len(key)))) == len(key)}
    by_key = [one for one, texts in split.items() if all(map(read_back, key, texts))]
    size = PageSize(LOOKED_UP, around=FETCHED_CHARS)

    def looked() -> Iterator[list[Row]]:
        for piece in parts(by_key, size):
            asked = set(piece)
            values = [split[one] for one in piece]
            rows = looked_up(connection, view.table, wanted, view.key, values, of_types(view, "t"))
            yield [row for row in rows if identity(view, row) in asked]

    yield from _paged(looked(), size)
    if others := split.keys() - set(by_key):
        for rows in read_rows(connection, view.table, wanted, of_types(view)):
            if found := [row for row in rows if identity(view, row) in others]:
                yield found


def equal_keys(connection: Connection, view: View, key: str) -> list[str]:
    """The ids of the rows whose key Postgres takes for equal to an id's: their own text may be another (1.0 and 1.00).

    Args:
        connection: of ``snapshot``.
        view: the view.
        key: a document's id.
    """
    columns = [_present(view.table, name) for name in view.key]
    texts = split_id(key, len(columns))
    if len(texts) != len(columns):
        return []
    asked = [by_value(column, text) for column, text in zip(columns, texts, strict=True)]
    conditions = [equals(column, text) for column, text, one in zip(columns, texts, asked, strict=True) if one]
    pages: Iterable[list[Row]]
    if conditions:
        pages = [_where(connection, view.table, view.key, sql.SQL(" AND ").join(conditions))]
    else:
        pages = read_rows(connection, view.table, view.key)
    ids = (identity(view, row) for page in pages for row in page)

    def same(one: str) -> bool:
        parts = zip(split_id(one, len(columns)), texts, asked, strict=True)
        return all(by_value or part == text for part, text, by_value in parts)

    return [one for one in ids if same(one)]


def by_value(column: Column, text: str) -> bool:
    """Whether Postgres can be asked which rows have a value equal to a key's text. Pure."""
    return read_back(column, text) or (not column.array and type_key(column) in _BY_VALUE)


def equals(column: Column, text: str) -> sql.Composable:
    """The condition that a row called ``t`` has such a value; of a text that is ``by_value``. Pure."""
    given = sql.SQL("{}::text").format(sql.Literal(text))
    name = sql.SQL("t.{}").format(sql.Identifier(column.name))
    if type_key(column) == "citext":  # whose own operator is not in our search path: the one of text would be taken
        return sql.SQL('lower({}::text COLLATE "default") = lower({} COLLATE "default")').format(name, given)
    return sql.SQL("{} = {}").format(name, _compared(column, given))


def _where(connection: Connection, table: Table, names: Sequence[str], condition: sql.Composable) -> list[Row]:
    """Rows that a condition lets through; none if a text in it is no value of its column's type."""
    wanted = _columns(table, names)
    heads = [column.name for column in wanted]
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(_selected(table, wanted, "t"), _named(table), condition)
    try:
        with connection.transaction():
            return [dict(zip(heads, row, strict=True)) for row in connection.execute(query)]
    except (psycopg.DataError, psycopg.IntegrityError):
        return []


def read_back(column: Column, text: str) -> bool:
    """Whether Postgres reads a key's canonical text as the value that it stands for. Pure."""
    kind = type_key(column)
    return not column.array and (kind in PLAIN or (kind in _MOMENTS and not _FAR.match(text)))


def looked_up(
    connection: Connection,
    table: Table,
    names: Sequence[str],
    columns: Sequence[str],
    values: Sequence[tuple[str, ...]],
    only: sql.Composable = ALL,
) -> list[Row]:
    """As ``matching_rows``; what is no value of its column's type has no row, and is found by halving."""
    if not values:
        return []
    try:
        with connection.transaction():
            return list(matching_rows(connection, table, names, columns, values, only))
    except (psycopg.DataError, psycopg.IntegrityError):  # `abc` is no integer; a domain has a rule
        if len(values) == 1:
            return []
        half = len(values) // 2
        return [
            *looked_up(connection, table, names, columns, values[:half], only),
            *looked_up(connection, table, names, columns, values[half:], only),
        ]


def identity(view: View, row: Row) -> str:
    """The document's id of a root row."""
    return identity_of(view)(row)


def identity_of(view: View) -> Callable[[Row], str]:
    """A function from a root row to its document's id."""
    columns = [(name, view.table.by_name[name]) for name in view.key]

    def made(row: Row) -> str:
        values = [truth.expected(column, row[name]) for name, column in columns]
        return document_id([orjson.dumps(one).decode() if isinstance(one, orjson.Fragment) else one for one in values])

    return made


def rows_of(connection: Connection, table: Table) -> int:
    """About how many rows a table has; see ``estimated_rows``."""
    return estimated_rows(connection, [table.qualified]).get(table.qualified, 0)


def is_small(connection: Connection, table: Table, most: int) -> int | None:
    """How many rows a table has, if not more than ``most``; counted, because statistics may be old or missing."""
    query = sql.SQL("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {}) AS few").format(
        _named(table), sql.Literal(most + 1)
    )
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0]) if row[0] <= most else None


def has_index(connection: Connection, table: Table, columns: Sequence[str]) -> bool:
    """Whether an index of the table begins with one of the columns, so that a look-up by them is no scan."""
    row = connection.execute(
        "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = to_regclass(%s) AND i.indisvalid AND i.indpred IS NULL AND a.attname = ANY(%s) LIMIT 1",
        (
            sql.Identifier(table.schema, table.name).as_string(connection),
            [_present(table, name).name for name in columns],
        ),
    ).fetchone()
    return row is not None


def _columns(table: Table, names: Sequence[str] | None) -> list[Column]:
    return [column for column in table.columns if names is None or column.name in names]


def _named(table: Table) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def _present(table: Table, name: str) -> Column:
    # One that is gone is looked for under the name that it had: whoever needs it has been refused (truth/altered.py).
    return stored(table, name) or table.by_name[name]


def _selected(table: Table, columns: Sequence[Column], alias: str = "") -> sql.Composable:
    # No column of our own has such a name, so an unqualified name is the table's.
    there = [stored(table, column.name) for column in columns]
    return sql.SQL(", ").join(
        [sql.SQL("NULL" if column is None else truth.select_expression(column, alias)) for column in there]
    )


def _compared(column: Column, text: sql.Composable) -> sql.Composable:
    """A text as the value that a column is compared with, by its index if it has one; NULL, which no row has, for a
    number that its type has no room for."""
    kind = type_key(column)
    if kind == "oid" and not column.array:
        return sql.SQL("CASE WHEN {0}::int8 BETWEEN 0 AND 4294967295 THEN {0}::int8::oid END").format(text)
    cast = "int8" if kind in _WHOLE else kind if kind in _UNLIMITED else column.type_name
    return sql.SQL("{}::{}").format(text, sql.SQL(column.type_name if column.array else cast))


def _array(texts: Sequence[str]) -> str:
    quoted = ['"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts]
    return "{" + ",".join(quoted) + "}"
