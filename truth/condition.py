"""Documents whose root rows meet a condition that a person wrote in SQL; Postgres judges it, as whoever reads."""

from __future__ import annotations

from psycopg import sql

from cdc.view import View
from connectors.postgres import Connection
from truth.altered import stored
from truth.event_types import of_types
from truth.rows import identity_of
from truth.values import select_expression


def ids_where(connection: Connection, view: View, condition: str, most: int) -> list[str]:
    """The ids of some documents.

    Args:
        connection: of ``truth.rows.snapshot``: read only.
        view: the view; without its own ``where``.
        condition: SQL over the columns of the root's table.
        most: how many at the most.

    Raises:
        psycopg.Error: Postgres does not take the condition, or was not done with it in time.
    """
    columns = [stored(view.table, name) or view.table.by_name[name] for name in view.key]
    expressions = [sql.SQL(select_expression(column)) for column in columns]
    # On lines of its own, so that a remark in it ends with it.
    query = sql.SQL("SELECT {} FROM {} WHERE {} AND (\n{}\n) LIMIT {}").format(
        sql.SQL(", ").join(expressions),
        sql.Identifier(view.table.schema, view.table.name),
        of_types(view),
        sql.SQL(condition),
        sql.Literal(most),
    )
    named = identity_of(view)
    with connection.transaction():
        # Functions and operators of extensions are found as in anybody's session.
        connection.execute("SET LOCAL search_path TO DEFAULT")
        # Binary results go by the protocol that takes one statement and no second one.
        rows = connection.cursor(binary=True).execute(query).fetchall()
        connection.execute("SET LOCAL search_path TO pg_catalog, pg_temp")
    return list(dict.fromkeys(named(dict(zip(view.key, row, strict=True))) for row in rows))
