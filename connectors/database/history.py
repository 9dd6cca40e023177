"""Which history the database is in: its cluster, its timeline, how far its log goes, and what it knows of us.

A database that was put back to an older copy of itself has the same name, the same cluster and, when the files were
simply copied, the same timeline. Its log is shorter, but only until new work has filled it up again. So whoever wants
to notice leaves a *witness*: a number of its own in a table of ours, which it raises and remembers elsewhere. A copy
from before does not know the last number.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from connectors.database.life import read_life
from connectors.names import Names
from connectors.postgres import Connection, explained, has_table

# The row that tells one installation of our tables from the next one; no runner is called like this.
INSTALLATION = ""


@dataclass(frozen=True)
class Moment:
    """Where the database is now.

    Attributes:
        system_identifier: the cluster's, given by initdb; copies have the same.
        timeline: grows at a promotion and at a restore to a point in time.
        standby: it replays another server's log.
        wal_lsn: what is safely on disk, in bytes; nobody can have read more.
    """

    system_identifier: str
    timeline: int
    standby: bool
    wal_lsn: int


MOMENT = """
SELECT (pg_control_system()).system_identifier::text, (pg_control_checkpoint()).timeline_id, pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END - '0/0'::pg_lsn,
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
"""


def read_moment(connection: Connection) -> Moment:
    """Where the database is now."""
    with explained("reading the database's identity"):
        row = connection.execute(MOMENT).fetchone()
    assert row is not None
    system, timeline, standby, lsn, file = row
    # After a promotion the last checkpoint may still be of the timeline before.
    return Moment(str(system), int(file, 16) if file else int(timeline), bool(standby), int(lsn or 0))


def read_witness(connection: Connection, names: Names, runner: str) -> tuple[str, int] | None:
    """(the installation's token, the runner's number); None when the table is not there.

    Args:
        connection: as the replication role.
        names: the pipeline's.
        runner: whose number; 0 if it has none.
    """
    with explained("reading the witness table"):
        if not has_table(connection, names.schema, names.witness):
            return None
        select = sql.SQL("SELECT runner, token::text, count FROM {} WHERE runner IN (%s, %s)")
        rows = connection.execute(select.format(names.identifier(names.witness)), [INSTALLATION, runner]).fetchall()
    tokens = {name: token for name, token, _ in rows}
    counts = {name: int(count) for name, _, count in rows}
    return tokens.get(INSTALLATION, ""), counts.get(runner, 0)


def raise_witness(connection: Connection, names: Names, runner: str) -> int:
    """Raise the runner's number by one, and return it once it is safely on disk."""
    upsert = sql.SQL(
        "INSERT INTO {0} AS w (runner, count) VALUES (%s, 1)"
        " ON CONFLICT (runner) DO UPDATE SET count = w.count + 1, at = now() RETURNING count"
    ).format(names.identifier(names.witness))
    with explained("writing the witness table"), connection.transaction():
        # A number that a crash could take back would look like an older copy.
        connection.execute("SET LOCAL synchronous_commit = local")
        row = connection.execute(upsert, [runner]).fetchone()
    assert row is not None
    read_life(connection, names)  # after a crash applications get no tokens until somebody has been here
    return int(row[0])
