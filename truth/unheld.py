"""Whether the source has rows that a table can't tell from one: it has no place for the parts by which they differ."""

from __future__ import annotations

from contextlib import suppress

import psycopg
from psycopg import sql

from cdc.keys import split_id
from cdc.table_key import TableKey
from cdc.types import type_key
from cdc.view import View
from connectors.postgres import Connection
from truth.altered import stored
from truth.rows import by_value, equals

# The last microsecond of a moment with a zone that a table has a place for (cdc/types/times.py).
_LAST = "294247-01-10 04:00:54.775807+00"
_ENDS = ("infinity", "-infinity")


def has_sibling(connection: Connection, view: View, key: str) -> bool:
    """Whether there is another row whose key has the same parts as an id where a table has a place for them, and none
    where it has none. One row at most is read.

    Args:
        connection: of ``truth.rows.snapshot``.
        view: the view.
        key: a document's id.

    Raises:
        psycopg.Error: Postgres does not say.
    """
    lost = TableKey.of(view).without_place(key)
    if not lost:
        return False
    conditions, own = list[sql.Composable](), list[sql.Composable]()
    for name, text in zip(view.key, split_id(key, len(view.key)), strict=True):
        column = stored(view.table, name) or view.table.by_name[name]
        if name in lost:
            asked = sql.SQL("t.{}").format(sql.Identifier(column.name))
            numeric = type_key(column) == "numeric"
            among = sql.SQL(", ").join(map(sql.Literal, ("NaN",) if numeric else _ENDS))
            condition: sql.Composable = sql.SQL("{} IN ({})").format(asked, among)
            if type_key(column) == "timestamptz":
                condition = sql.SQL("({} OR {} > {})").format(condition, asked, sql.Literal(_LAST))
            conditions.append(condition)
            if text in (
                "NaN",
                *_ENDS,
            ):  # not far moments: Postgres does not read their text back, so the row itself counts
                own.append(sql.SQL("{} = {}").format(asked, sql.Literal(text)))
        elif by_value(column, text):  # others are not asked for: a row too many is said to be one of which nobody knows
            conditions.append(equals(column, text))
    if len(own) == len(lost):
        conditions.append(sql.SQL("NOT ({})").format(sql.SQL(" AND ").join(own)))
    query = sql.SQL("SELECT 1 FROM {} AS t WHERE {} LIMIT 1").format(
        sql.Identifier(view.table.schema, view.table.name), sql.SQL(" AND ").join(conditions)
    )
    with suppress(psycopg.DataError), connection.transaction():  # a part is no value of its column's type any more
        return connection.execute(query).fetchone() is not None
    return False
