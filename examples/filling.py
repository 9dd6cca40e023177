"""What the small examples share: a database is made, and filled if it is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from psycopg import sql

from cdc.errors import HeadwaterError
from examples.common import SETUP_LOCK, PostgresEndpoint, Server, connect, ensure_database

Row = tuple[object, ...]


def fill(
    endpoint: PostgresEndpoint,
    database: str,
    owner: str,
    schema: Path,
    rows: Callable[[], Iterable[tuple[str, list[Row]]]],
) -> str:
    """Create database, roles and tables, and fill the tables if the first of them is empty.

    Args:
        endpoint: the server.
        database: its name; created when missing.
        owner: role that owns the tables; created when missing.
        schema: file with the tables, safe to run again.
        rows: gives (table, its rows), in the order in which foreign keys allow them.

    Returns:
        the owner's connection string.

    Raises:
        SourceError: Postgres can't be reached.
    """
    info = ensure_database(endpoint, database, owner)
    with connect(info) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [SETUP_LOCK])
        conn.execute(schema.read_text(encoding="utf-8"))
        for number, (table, values) in enumerate(rows()):
            name = sql.Identifier(table)
            if number == 0 and conn.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(name)).fetchone() is not None:
                break
            with conn.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
                for row in values:
                    copy.write_row(row)
    return info


def command(name: str, load: Callable[[PostgresEndpoint, str], str], what: str, counts: str) -> click.Command:
    """The example's command line.

    Args:
        name: of its database, unless told otherwise.
        load: fills a database of that name.
        what: "the wiki".
        counts: what there is afterwards.
    """

    @click.command(help=f"Load {what} into Postgres (HEADWATER_POSTGRES_HOST, _PORT, …; default: the local stack).")
    @click.option("--database", default=name, show_default=True, help="Database; created when missing.")
    def main(database: str) -> None:
        try:
            load(Server.from_environment(), database)
        except HeadwaterError as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"{database}: {counts}")

    return main
