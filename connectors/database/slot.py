"""The replication slot: Debezium creates it with the snapshot that belongs to it; we watch it and drop it."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.errors import SourceError
from cdc.polling import poll
from connectors.postgres import Connection, explained

# After a connector stops, the server notices its closed connection at once, a cut one after wal_sender_timeout (60 s).
INACTIVE_SECONDS = 75.0

# Why Postgres has invalidated a slot, and what keeps the next one from it.
LOST = {
    "wal_removed": ("the WAL it needs is gone", "raise max_slot_wal_keep_size or keep the connector running"),
    "idle_timeout": (
        "nobody read from it for longer than idle_replication_slot_timeout",
        "raise idle_replication_slot_timeout (0: no limit) or keep the connector running",
    ),
    "wal_level_insufficient": ("wal_level was not logical", "keep wal_level = logical"),
    "rows_removed": ("rows of the catalogue that it needs are gone", "turn hot_standby_feedback on"),
}


@dataclass(frozen=True)
class Slot:
    """A replication slot as it is.

    Attributes:
        plugin: ``pgoutput``.
        database: the one it decodes.
        active: a connection streams from it now.
        pid: that connection's backend; None when inactive or not told.
        confirmed_lsn: everything committed before is acknowledged in Kafka, in bytes.
        wal_status: ``reserved``, ``extended``, ``unreserved`` (about to be lost) or ``lost``.
        behind_bytes: WAL that it makes the server keep.
        safe_bytes: WAL that may still be written before it is lost; None when there is no limit.
        failover: it is copied to standbys; None where the server can't do that (before Postgres 17).
        synced: it is such a copy; stays true when its standby is promoted.
        invalidation: why it is lost, as Postgres calls it (``wal_removed``); None where it is not, or nobody says
            (before Postgres 17).
    """

    plugin: str
    database: str
    active: bool
    pid: int | None
    confirmed_lsn: int | None
    wal_status: str | None
    behind_bytes: int | None
    safe_bytes: int | None
    failover: bool | None = None
    synced: bool = False
    invalidation: str | None = None

    @property
    def why_lost(self) -> tuple[str, str]:
        """Of a slot that is lost: why, and what keeps the next one from it."""
        return LOST.get(self.invalidation or "wal_removed", (f"{self.invalidation}", "remove what did it"))


def read_slot(connection: Connection, name: str) -> Slot | None:
    """Read a slot; None if there is none."""
    with explained(f"reading slot {name}"):
        row = connection.execute(
            """
            SELECT plugin, database, active, active_pid,
                   confirmed_flush_lsn - '0/0'::pg_lsn, wal_status,
                   CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END
                       - restart_lsn,
                   safe_wal_size, (to_jsonb(s)->>'failover')::bool, coalesce((to_jsonb(s)->>'synced')::bool, false),
                   to_jsonb(s)->>'invalidation_reason'
            FROM pg_replication_slots s WHERE slot_name = %s
            """,
            [name],
        ).fetchone()
    if row is None:
        return None
    plugin, database, active, pid, confirmed, status, behind, safe, *last = row
    whole = [None if number is None else int(number) for number in (confirmed, behind, safe)]
    first = (str(plugin), str(database), active, pid, whole[0], status)
    return Slot(*first, whole[1], whole[2], *last)


def drop_slot(connection: Connection, name: str, seconds: float = INACTIVE_SECONDS) -> bool:
    """Wait until nobody streams from a slot, then drop it. The WAL it kept is released.

    Returns:
        Whether there was one.

    Raises:
        SourceError: it is still in use after ``seconds``.
    """
    slot = poll(lambda: read_slot(connection, name), lambda found: found is None or not found.active, seconds)
    if slot is None:
        return False
    if slot.active:
        raise SourceError(
            f"slot {name} is still in use by backend {slot.pid}",
            fix=f"stop what reads it, or SELECT pg_terminate_backend({slot.pid}), then run this again",
        )
    with explained(
        f"dropping slot {name}", fix=f"as a role with REPLICATION: SELECT pg_drop_replication_slot('{name}')"
    ):
        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
    return True


def drop_lost_slot(connection: Connection, name: str) -> bool:
    """Drop a slot that Postgres has invalidated; nobody can read from it. Leaves any other alone.

    To be done before a connector is stopped that waits for such a slot: Debezium 3.7 looks again and again, for half
    an hour, holds a lock meanwhile, and the whole Connect worker waits for that lock. Without the slot it fails.

    Returns:
        Whether there was one.
    """
    slot = read_slot(connection, name)
    return slot is not None and slot.wal_status == "lost" and drop_slot(connection, name)
