"""The timeline that the pipeline follows, noted in the database; and the history of the server's own."""

from __future__ import annotations

from psycopg import sql

from cdc.pipeline import Source
from cdc.records.position import parse_lsn
from connectors.names import Names
from connectors.postgres import Connection, explained, has_table, replication_command
from connectors.timeline_gate import HERE, ROW


def noting(names: Names) -> sql.Composed:
    """What notes the timeline that the server is on, if none is noted; for the owner of the witness table."""
    insert = sql.SQL("INSERT INTO {} (runner, count) VALUES ({}, {}) ON CONFLICT DO NOTHING")
    return insert.format(names.identifier(names.witness), sql.Literal(ROW), sql.SQL(HERE))


def noted_timeline(connection: Connection, names: Names) -> int | None:
    """The timeline that is followed; None where an older version has applied the pipeline, or nothing is applied."""
    with explained("reading the witness table"):
        if not has_table(connection, names.schema, names.witness):
            return None
        select = sql.SQL("SELECT count FROM {} WHERE runner = %s").format(names.identifier(names.witness))
        row = connection.execute(select, [ROW]).fetchone()
    return int(row[0]) if row else None


def note_timeline(connection: Connection, names: Names, timeline: int) -> None:
    """Note that a timeline is followed now; on disk when this returns."""
    upsert = sql.SQL(
        "INSERT INTO {} (runner, count) VALUES (%s, %s)"
        " ON CONFLICT (runner) DO UPDATE SET count = excluded.count, at = now()"
    ).format(names.identifier(names.witness))
    with explained("writing the witness table"), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute(upsert, [ROW, timeline])


def read_history(source: Source, timeline: int) -> dict[int, int]:
    """Where each timeline before this one was left, in bytes of the log.

    Raises:
        SourceUnavailable: no answer (transient).
        psycopg.Error: there is no such timeline.
    """
    [(_, text)] = replication_command(source, f"TIMELINE_HISTORY {timeline}")
    return parse_history(text)


def parse_history(text: str | bytes) -> dict[int, int]:
    """A timeline's history file: a line for each timeline before it, with the position where it was left. Pure."""
    lines = (text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")).splitlines()
    fields = (line.split() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {int(number): parse_lsn(lsn) for number, lsn, *_ in fields}
