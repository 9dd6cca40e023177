"""Debezium's sessions in the database: a task that is slow to end keeps them, and then DROP DATABASE is refused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cdc.polling import poll
from connectors.names import Names
from connectors.postgres import Connection, explained

# A task that ends in good order has closed its sessions when Connect says that the connector is gone.
GRACE_SECONDS = 5.0
SESSIONS = """
SELECT pid, coalesce(query, '') FROM pg_stat_activity
WHERE datname = current_database() AND usename = session_user AND application_name LIKE 'Debezium %'
"""


@dataclass(frozen=True)
class Session:
    """One session of a Debezium that logs in as this pipeline's role, into this database.

    Attributes:
        pid: of its backend.
        query: its last.
        own_slot: it streams from this pipeline's slot.
    """

    pid: int
    query: str
    own_slot: bool = False


def ours(sessions: Collection[Session], names: Names, *, others: bool) -> list[int]:
    """Backends that belong to this pipeline's connector. Pure.

    Args:
        sessions: that are open.
        names: the pipeline's.
        others: another slot of this database is read from: then sessions of no sure owner may be that connector's.
    """
    own = [names.heartbeat, names.signal, names.marker]
    return [s.pid for s in sessions if not others or s.own_slot or any(f'"{table}"' in s.query for table in own)]


def end_sessions(connection: Connection, names: Names, slot: str, seconds: float = GRACE_SECONDS) -> int:
    """End what is still open of a connector that was deleted; how many there were.

    Args:
        connection: as the replication role, which may end its own sessions.
        names: the pipeline's.
        slot: its slot.
        seconds: to wait for them to end by themselves.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    with explained("ending Debezium's sessions"):
        left = poll(lambda: _ours_now(connection, names, slot), lambda pids: not pids, seconds, 0.2)
        for pid in left:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
    return len(left)


def _ours_now(connection: Connection, names: Names, slot: str) -> list[int]:
    slots = connection.execute(
        "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = current_database() AND active"
    ).fetchall()
    reading = {pid for name, pid in slots if name == slot}
    sessions = [Session(pid, query, pid in reading) for pid, query in connection.execute(SESSIONS)]
    return ours(sessions, names, others=any(name != slot for name, _ in slots))
