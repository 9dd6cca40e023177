"""A row's key as its table writes it: another spelling of it would be found nowhere, and called erased.

Postgres spells each part, by its column's type. Where a type has several spellings that it can't bring into one (a row
that is gone is not asked for its own), the person is told that the key must be the row's own to the letter.
"""

from __future__ import annotations

import re
from dataclasses import replace

import psycopg
from psycopg import sql

from cdc.catalogue import Column, Table
from cdc.errors import ConfigError
from cdc.join.comparable import spelled_otherwise
from cdc.keys import document_id, split_id
from cdc.pipeline import Source
from cdc.saying import Say
from cdc.types.rules import type_key
from connectors.postgres import Connection
from truth.rows import snapshot
from truth.values import expected, select_expression

_WHOLE = frozenset(("int2", "int4", "int8"))
_TIMES = frozenset(("timestamptz", "timestamp", "date", "time", "timetz", "interval"))
_TEXTS = frozenset(("text", "varchar", "bpchar", "name", "enum"))
# Types whose canonical text Postgres reads as the same value, and has one text of.
_SPELLED = frozenset(("oid", "numeric", "bool", "uuid", "float4", "float8", "inet", "cidr", "macaddr", "macaddr8"))
_FLOATS = frozenset(("float4", "float8"))
_ASKED = _WHOLE | _TIMES | _TEXTS | _SPELLED
# Those that a cast may cut or round to what fits: a type of the same values that has room for all.
_ROOMY = {one: one for one in ("varchar", "bpchar", "numeric", *_TIMES)} | {"name": "text", "date": "timestamp"}
# Days before the year 0 and after 9999, as documents write them and Postgres does not read them.
_FAR = re.compile(r"[+-]\d{4,}-\d\d-\d\d(T.*)?")
_PART = "part"


def spelled(source: Source, table: Table, key: str, say: Say) -> str:
    """The key of a row as its table writes it.

    Args:
        source: where Postgres is.
        table: the row's.
        key: as somebody typed it.
        say: told where it was another, and where nobody can tell.

    Raises:
        ConfigError: no row of the table can have such a key (terminal).
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    columns, parts = _split(table, key)
    with snapshot(source) as connection:
        values = [_spelled(connection, table, one, text) for one, text in zip(columns, parts, strict=True)]
    found = document_id(values)
    if found != key:
        say(f"the table writes that key as {found}")
    for column, value in zip(columns, values, strict=True):
        if (why := _unsure(column, value)) is not None:
            say(f"{table.qualified}.{column.name} is {column.type_name}: {why}, so give it just as documents have it")
    return found


def _split(table: Table, key: str) -> tuple[list[Column], list[str]]:
    if not table.primary_key:
        raise ConfigError(f"{table.qualified} has no primary key", fix="its rows can't be told apart")
    parts = split_id(key, len(table.primary_key))
    if len(parts) != len(table.primary_key):
        columns = "|".join(table.primary_key)
        raise ConfigError(
            f"the key of {table.qualified} has {len(table.primary_key)} parts, {len(parts)} were given",
            means="nothing was looked for",
            fix=f"join the values with | in this order: {columns} (a | in a value is written \\|)",
        )
    found = [table.by_name[name] for name in table.primary_key]
    for column, text in zip(found, parts, strict=True):
        # Of such as 0x10 or 1_000 it depends on the server's version whether they are numbers.
        if not column.array and type_key(column) in _WHOLE and not text.removeprefix("-").isdecimal():
            raise _no_key(table, column, "which the given key is not")
    return found, parts


def _no_key(table: Table, column: Column, why: str) -> ConfigError:
    return ConfigError(
        f"{table.qualified}.{column.name} is {column.type_name}, {why}",
        means="nothing was looked for",
        fix="give the row's primary key",
    )


def _spelled(connection: Connection, table: Table, column: Column, text: str) -> object:
    """A part of the key as documents have it; what Postgres can't be asked about as it was given."""
    kind = type_key(column)
    if column.array or kind not in _ASKED or (kind in _TIMES and _FAR.fullmatch(text)):
        return text
    roomy: sql.Composable = sql.SQL("TRUE")
    if kind in _ROOMY:
        roomy = sql.SQL("{0} = given::pg_catalog.{1}").format(sql.Identifier(_PART), sql.Identifier(_ROOMY[kind]))
    # A literal, and no parameter: the expression holds signs of percent.
    query = sql.SQL("SELECT {}, {} FROM (SELECT given, given::{} AS {} FROM (SELECT {}::text AS given) AS g) AS p")
    try:
        row = connection.execute(
            query.format(
                sql.SQL(select_expression(replace(column, name=_PART))),
                roomy,
                sql.SQL(column.type_name),
                sql.Identifier(_PART),
                sql.Literal(text),
            )
        ).fetchone()
    except (psycopg.DataError, psycopg.IntegrityError, UnicodeError) as error:  # the second of a domain's rule
        raise _no_key(table, column, f"which the given key is not: {str(error).splitlines()[0]}") from error
    assert row is not None
    if not row[1]:
        raise _no_key(table, column, "in which the given key has no room: it would be cut or rounded to another row's")
    return expected(column, str(row[0]))


def _unsure(column: Column, value: object) -> str | None:
    """Why nobody can tell how the row wrote its value; None where it can be told."""
    kind = type_key(column)
    if column.array or kind not in _ASKED:
        return "nobody can tell whether the given value is spelled as the row's"
    if column.collated:
        return "texts that differ may be equal in it"
    if kind == "numeric" and column.scale is None:
        return "values that are equal may be spelled otherwise in it (1.0 and 1.00)"
    if kind in _FLOATS and value != 0:
        return None
    return spelled_otherwise(column)
