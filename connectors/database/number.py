"""The number of the form in which a pipeline's list of captured tables is, and the topics that are made as it says."""

from __future__ import annotations

from psycopg import sql

from cdc.formats import SOURCE, as_comment, from_comment, refuse_newer
from connectors.names import Names
from connectors.postgres import Connection


def check_number(connection: Connection, names: Names) -> int | None:
    """The number that the list carries for itself and for the topics; None before there were numbers.

    Raises:
        NewerFormat: a newer Headwater has applied this pipeline (terminal).
    """
    found = connection.execute(
        "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        [names.schema, names.captured],
    ).fetchone()
    number = from_comment(found[0]) if found else None
    refuse_newer(f"the capture of pipeline {names.name} ({names.qualified(names.captured)})", number, SOURCE)
    return number


def numbered(names: Names) -> sql.Composed:
    """What gives the list its number."""
    comment = sql.Literal(as_comment(SOURCE, "what Headwater captures, and how its topics are made"))
    return sql.SQL("COMMENT ON TABLE {} IS {}").format(names.identifier(names.captured), comment)
