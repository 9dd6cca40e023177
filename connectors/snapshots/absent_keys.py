"""Which keys of a topic are not in the table any more, asked in pages.

A key in a topic is JSON as Debezium writes it. It is turned into Postgres's text and cast to the column's own type
there, so that the table's index finds it and equal means what it means in SQL. Where equal values may have different
texts, both are compared as text besides: a row that is `Bob` now and was `bob` has another id. Only types whose values
come through Debezium unharmed are looked for: a key that was changed on the way would look deleted, and be deleted.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson
from psycopg import sql

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import SourceError
from cdc.join.comparable import respelled
from cdc.types import REFUSALS, json_converter, type_key, unsupported
from connectors.gaps.source_gaps import BEGIN_AGAIN
from connectors.names import identifier
from connectors.postgres import Connection, explained
from connectors.tables.row_security import see_all_rows

PAGE_ROWS = 2_000
_MOMENTS = ("date", "timestamp", "timestamptz")
# Debezium's snapshots read moments through Java's old calendar, which is another one before this day.
GREGORIAN = "1582-10-15"
# Not timetz, whose zone is lost; not varbit, which loses zeros; not money, whose text depends on the server's locale;
# no arrays, ranges, unknowns.
EXACT = frozenset(
    (
        *(
            "int2",
            "int4",
            "int8",
            "oid",
            "bool",
            "uuid",
            "enum",
            "numeric",
            "float4",
            "float8",
            "bytea",
            "bit",
        ),
        *("text", "varchar", "bpchar", "citext", "name", "char", "ltree", "jsonb"),
        *("date", "timestamp", "timestamptz", "time", "interval", "inet", "cidr", "macaddr", "macaddr8"),
    )
)
# The columns of a key: their types, and where the `=` is by which an index finds a value. An extension's lies in the
# extension's schema, where we don't look for names: without it citext is compared as text, and ltree not at all. No
# schema for types that use another one's (varchar, enums), which is Postgres's own.
COMPARED = """
WITH RECURSIVE part(name, shown, kind) AS (
    SELECT attname, format_type(atttypid, -1), atttypid FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attname = ANY(%s)
    UNION ALL
    SELECT name, shown, typbasetype FROM part JOIN pg_type t ON t.oid = kind AND typtype = 'd'
)
SELECT name, shown, nspname
FROM part JOIN pg_type t ON t.oid = kind AND typtype <> 'd'
LEFT JOIN pg_opclass c ON opcintype = kind AND opcdefault AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'btree')
LEFT JOIN pg_amop ON amopfamily = opcfamily AND amoplefttype = kind AND amoprighttype = kind AND amopstrategy = 3
LEFT JOIN pg_operator o ON o.oid = amopopr
LEFT JOIN pg_namespace n ON n.oid = oprnamespace
"""
NO_SWEEP = "leave missed deletes alone with --no-sweep, and look for them with `headwater verify FILE`"


def unsure(table: Table) -> str | None:
    """Why missed deletes of a table can't be looked for; None if they can. Pure."""
    if not table.primary_key:
        return "it has no key"
    for column in (table.by_name[name] for name in table.primary_key):
        if column.array or type_key(column) not in EXACT or unsupported(column) is not None:
            return (
                f"its key has the column {column.name} of type {column.type_name}, whose values may change on the way"
            )
    return None


def refuse_keys(catalogue: Catalogue, *, sweep: bool) -> set[str]:
    """Refuse tables that can't be read again, or, if they are to be, swept; those that can only be read. Pure.

    Raises:
        SourceError: names the tables and the columns (terminal).
    """
    for table in catalogue.tables.values():
        for column in (table.by_name[name] for name in table.primary_key):
            if column.array:
                raise SourceError(
                    f"table {table.qualified} can't be read again: its key has the array {column.name}, which Debezium"
                    " can't remember between two chunks",
                    means="nothing was asked for; asking would make the connector fail",
                    fix=f"after a gap, begin again: {BEGIN_AGAIN}",
                )
    reasons = {name: reason for name, table in catalogue.tables.items() if (reason := unsure(table)) is not None}
    if reasons and sweep:
        raise SourceError(
            f"missed deletes can't be looked for: {'; '.join(f'{name}: {why}' for name, why in reasons.items())}",
            means="nothing was asked for",
            fix=f"{NO_SWEEP}; after a gap, to be sure: {BEGIN_AGAIN}",
        )
    return set(reasons)


class KeyCheck:
    """Asks whether rows with given keys are there, written as they are in the topic.

    Args:
        connection: as a role that sees every row: the owner.
        table: with its key.

    Raises:
        SourceError: its key can't be looked for.
    """

    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection, self.table = connection, table
        self.columns = [table.by_name[name] for name in table.primary_key]
        if reason := unsure(table):
            raise SourceError(f"missed deletes of {table.qualified} can't be looked for: {reason}", fix=NO_SWEEP)
        self.query = self._query()

    def _query(self) -> sql.Composed:
        # Without a length: a key that is too long for the column must not be cut until it fits a row.
        with explained(f"reading the key of {self.table.qualified}"):
            name = identifier(self.table.qualified).as_string(self.connection)
            rows = self.connection.execute(COMPARED, [name, list(self.table.primary_key)])
            found = {str(column): (str(kind), str(schema or "pg_catalog")) for column, kind, schema in rows}
        names = [sql.Identifier(f"k{number}") for number in range(len(self.columns))]
        row = sql.SQL("SELECT FROM {} t WHERE {}").format(
            identifier(self.table.qualified),
            sql.SQL(" AND ").join(
                # The type's name is Postgres's own text, quoted where it must be.
                _same(column, schema, name, kind)
                for column, name in zip(self.columns, names, strict=True)
                for kind, schema in [found[column.name]]
            ),
        )
        # In a query that has parameters a sign of percent in a name is taken for one of them, unless it is doubled.
        there = _raw(row.as_string(self.connection).replace("%", "%%"))
        return sql.SQL(
            "SELECT k.nth FROM unnest({arrays}) WITH ORDINALITY AS k({names}, nth) WHERE NOT EXISTS ({there})"
        ).format(
            arrays=sql.SQL(", ").join([sql.SQL("%s::text[]")] * len(names)),
            names=sql.SQL(", ").join(names),
            there=there,
        )

    def absent(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of some keys, as they are in the topic, that the table does not have; none that can't be told.

        Raises:
            SourceError: a key is not one of this table, or Postgres refused (terminal).
            SourceUnavailable: the connection broke (transient).
        """
        out = []
        for at in range(0, len(keys), PAGE_ROWS):
            told = [(key, texts) for key in keys[at : at + PAGE_ROWS] if (texts := self._texts(key)) is not None]
            page = [key for key, _ in told]
            arrays = [[row[number] for _, row in told] for number in range(len(self.columns))]
            with explained(f"looking for rows of {self.table.qualified}"), self.connection.transaction():
                # A policy that hides rows would make them look deleted: an error instead. And by the index: the
                # planner may not read a large table whole for every page.
                see_all_rows(self.connection, self.table.qualified)
                self.connection.execute("SET LOCAL enable_hashjoin = off")
                self.connection.execute("SET LOCAL enable_mergejoin = off")
                rows = self.connection.execute(self.query, arrays).fetchall()
            out += [page[int(nth) - 1] for (nth,) in rows]
        return out

    def any_row(self) -> bool:
        """Whether the table has a row at all."""
        with explained(f"looking for rows of {self.table.qualified}"), self.connection.transaction():
            see_all_rows(self.connection, self.table.qualified)
            select = sql.SQL("SELECT FROM {} LIMIT 1").format(identifier(self.table.qualified))
            return self.connection.execute(select).fetchone() is not None

    def _texts(self, key: bytes) -> list[str] | None:
        try:
            found = orjson.loads(key)
            texts = [key_text(column, found[column.name]) for column in self.columns]
            return None if any(map(ancient, self.columns, texts)) else texts
        except REFUSALS as error:
            raise SourceError(
                f"the topic of {self.table.qualified} has the key {key.decode(errors='replace')[:200]}, which does not"
                f" fit the table's key ({', '.join(self.table.primary_key)}): {error}",
                means="the table's key was changed since; it can't be told which rows are gone",
                fix=NO_SWEEP,
            ) from error


def _same(column: Column, schema: str, name: sql.Identifier, kind: str) -> sql.Composable:
    """Whether a row has a key's value: equal, and written alike."""
    held, asked = sql.SQL("t.{}").format(sql.Identifier(column.name)), sql.SQL("k.{}::{}").format(name, _raw(kind))
    equal = sql.SQL("{} OPERATOR({}.=) {}").format(held, sql.Identifier(schema), asked)
    if not respelled(column):
        return equal
    # By concat, for a cast of a bpchar to text takes its blanks away.
    alike = sql.SQL('concat({}) COLLATE "C" OPERATOR(pg_catalog.=) concat({})').format(held, asked)
    return sql.SQL("{} AND {}").format(equal, alike)


def _raw(text: str) -> sql.Composable:
    return sql.SQL(text)  # from the catalogue


def key_text(column: Column, raw: Any) -> str:
    """A key's value as Postgres's input function takes it. Pure.

    Args:
        column: of the key.
        raw: as Debezium's JSON has it.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: not a value of that type.
    """
    if raw is None:
        raise ValueError(f"{column.name} is null")
    convert = json_converter(column)
    value = raw if convert is None else convert(raw)
    kind = type_key(column)
    if isinstance(value, bool):  # which is what Debezium makes of bit(1), too
        return ("1" if value else "0") if kind == "bit" else "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, orjson.Fragment):
        return orjson.dumps(value).decode()
    if not isinstance(value, str):
        raise TypeError(f"a key of type {column.type_name} can't be looked for")
    if kind == "bytea":
        return "\\x" + base64.b64decode(value, validate=True).hex()
    return _era(value) if kind in _MOMENTS else value


def ancient(column: Column, text: str) -> bool:
    """Whether a key's value is a moment from before the calendar that Java and Postgres agree on. Pure."""
    if type_key(column) not in _MOMENTS or text == "infinity":
        return False
    year = text.partition("-")[0]
    return text == "-infinity" or text.endswith("BC") or (len(year) == 4 and text[:10] < GREGORIAN)


def _era(text: str) -> str:
    """ISO's astronomical year as Postgres writes it: years before 1 with BC, none with a plus."""
    if text in ("infinity", "-infinity"):
        return text
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    year, dash, rest = digits.partition("-")
    number = -int(year) if sign == "-" else int(year)
    return f"{year}{dash}{rest}" if number > 0 else f"{1 - number:04d}{dash}{rest} BC"
