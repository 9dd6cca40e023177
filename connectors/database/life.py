"""A number in an unlogged table: it is there for as long as the server loses nothing.

Postgres empties such a table after a crash, and a restored copy or a promoted standby begins without its rows. All of
them may have lost the newest transactions, and give out their ids again; nothing else in the database tells.
"""

from __future__ import annotations

from psycopg import sql

from connectors.names import Names
from connectors.postgres import Connection, explained, has_table


def living(names: Names) -> sql.Composed:
    """What puts a number there if there is none."""
    return sql.SQL("INSERT INTO {} (id) VALUES (1) ON CONFLICT DO NOTHING").format(names.identifier(names.life))


def read_life(connection: Connection, names: Names) -> str | None:
    """The first eight digits of the number; a new one after a loss. None if an older Headwater has applied it.

    Args:
        connection: to the primary, as the replication role: a standby has no such table.
        names: the pipeline's.
    """
    select = sql.SQL("SELECT left(replace(number::text, '-', ''), 8) FROM {}").format(names.identifier(names.life))
    with explained("reading the number of the server's life", fix="run `headwater apply FILE`"):
        if not has_table(connection, names.schema, names.life):
            return None
        row = connection.execute(select).fetchone()
        if row is None:
            connection.execute(living(names))
            row = connection.execute(select).fetchone()
    return None if row is None else str(row[0])
