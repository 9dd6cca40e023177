"""Looks at the WAL that the slot keeps, and at what holds it: one look, a few queries."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.database.slot import Slot, read_slot
from connectors.postgres import Connection, explained
from connectors.wal.pins import Pin, read_pins

# The server keeps the larger of the two for a slot, whatever the slot needs.
LIMIT = """
SELECT max(setting::bigint) << 20, min(setting::bigint) FROM pg_settings
WHERE name IN ('max_slot_wal_keep_size', 'wal_keep_size')
  AND (SELECT setting::bigint > 0 FROM pg_settings WHERE name = 'max_slot_wal_keep_size')
"""


@dataclass(frozen=True)
class Look:
    """What was seen.

    Attributes:
        slot: as it is; None if there is none.
        limit_bytes: WAL that the server keeps for a slot at the most; None without a limit.
        pins: every open transaction that has written, the oldest first, and standbys that the slot waits for.
    """

    slot: Slot | None
    limit_bytes: int | None
    pins: tuple[Pin, ...]

    @property
    def retained_bytes(self) -> int | None:
        """WAL that the slot makes the server keep; None when there is no slot, or it is lost."""
        return None if self.slot is None else self.slot.behind_bytes


def look(connection: Connection, name: str) -> Look:
    """Look once.

    Args:
        connection: any role that may connect; ``pg_monitor`` sees more of what holds the slot.
        name: the slot's.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    slot = read_slot(connection, name)
    with explained("reading max_slot_wal_keep_size"):
        row = connection.execute(LIMIT).fetchone()
    pins = read_pins(connection, standbys=bool(slot and slot.failover))
    return Look(slot, int(row[0]) if row and row[0] is not None else None, tuple(pins))
