"""Debezium's offset, as Kafka Connect keeps it: how far a connector has read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def in_snapshot(offset: Mapping[str, Any]) -> bool:
    """Whether the initial snapshot has not ended; when interrupted it begins again from nothing."""
    return "snapshot" in offset


def reached_lsn(offset: Mapping[str, Any]) -> int:
    """The position, in bytes of WAL; 0 where it has none.

    ``lsn`` alone is not it: the first record of a transaction may stand before the commit of the one before.
    """
    return max(int(offset.get(name) or 0) for name in ("lsn", "lsn_commit", "lsn_proc"))


def stored_lsn(offset: Mapping[str, Any] | None) -> int | None:
    """How far a connector has read of the log; None before streaming has begun."""
    return None if offset is None or in_snapshot(offset) else reached_lsn(offset)


def moved(offset: Mapping[str, Any], lsn: int, now: float) -> dict[str, Any]:
    """A connector's offset, as of everything before ``lsn`` being read.

    Incremental snapshots that were under way are forgotten: every table is asked for anew.
    """
    kept = {k: v for k, v in offset.items() if not k.startswith("incremental_snapshot") and "snapshot" not in k}
    kept.pop("lsn_events_processed", None)  # events of a transaction that was begun
    return {**kept, "lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn, "messageType": "COMMIT", "ts_usec": int(now * 1e6)}
