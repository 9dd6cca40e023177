"""The timeline that the pipeline follows, noted in the database; and the history of the server's own."""

from __future__ import annotations

from uuid import UUID

from psycopg import sql

from cdc.errors import SourceError
from cdc.pipeline import Source
from cdc.records.position import parse_lsn
from connectors.names import Names
from connectors.postgres import Connection, explained, has_table, replication_command
from connectors.timeline_gate import HERE, ROW

# The row that says whether a runner has stopped the connector to follow, and for which timeline. That lies in the
# token: counts must not fall, for tokens of writes bear the greatest (``write_tokens.py``).
STOPPED = "stopped:"


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
    _write(connection, names, ROW, timeline, UUID(int=0))


def note_stop(connection: Connection, names: Names, timeline: int, *, stopped: bool) -> None:
    """Note that a runner stops the connector to follow a timeline, or has let it go on; on disk when this returns."""
    _write(connection, names, STOPPED, timeline, UUID(int=int(stopped)))


def is_our_stop(connection: Connection, names: Names) -> bool:
    """A runner has stopped the connector to follow, and has not let it go on: it is nobody's wish that it stands."""
    with explained("reading the witness table"):
        if not has_table(connection, names.schema, names.witness):
            return False
        select = sql.SQL("SELECT token FROM {} WHERE runner = %s").format(names.identifier(names.witness))
        row = connection.execute(select, [STOPPED]).fetchone()
    return row is not None and row[0] == UUID(int=1)


def _write(connection: Connection, names: Names, row: str, timeline: int, token: UUID) -> None:
    upsert = sql.SQL(
        "INSERT INTO {} (runner, count, token) VALUES (%s, %s, %s)"
        " ON CONFLICT (runner) DO UPDATE SET count = excluded.count, token = excluded.token, at = now()"
    ).format(names.identifier(names.witness))
    with explained("writing the witness table"), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute(upsert, [row, timeline, token])


def read_history(source: Source, timeline: int) -> dict[int, int]:
    """Where each timeline before this one was left, in bytes of the log.

    Raises:
        SourceUnavailable: no answer (transient).
        psycopg.Error: there is no such timeline.
    """
    [(_, text)] = replication_command(source, f"TIMELINE_HISTORY {timeline}")
    return parse_history(text)


def timelines_before(source: Source, timeline: int) -> tuple[int, ...]:
    """The timelines that a server's own comes from. None where that can't be told: somebody has removed the file.

    Raises:
        SourceUnavailable: no answer (transient).
    """
    if timeline == 1:
        return ()
    try:
        with explained("reading the timeline's history"):
            return tuple(sorted(read_history(source, timeline)))
    except SourceError as error:
        if error.transient:
            raise
        return ()


def parse_history(text: str | bytes) -> dict[int, int]:
    """A timeline's history file: a line for each timeline before it, with the position where it was left. Pure."""
    lines = (text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")).splitlines()
    fields = (line.split() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {int(number): parse_lsn(lsn) for number, lsn, *_ in fields}
