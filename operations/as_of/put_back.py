"""Cuts of a history that was put back: it lacks what was written to it, until `run` has read that again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.errors import BeyondFrontier
from cdc.records.history import OFFSET
from spark.warehouse.marks import OFFSETS, offsets_said, says_less

if TYPE_CHECKING:
    from pyiceberg.table import Table


def refuse_put_back(name: str, table: Table, written: Mapping[int, int]) -> None:
    """Refuse a cut through a table of history that was rolled back, or put back with its catalogue; as
    ``spark.warehouse.history.put_back.taken_back`` tells it.

    Args:
        name: the source's table.
        table: its history, loaded after ``written`` was asked for.
        written: up to where it was written: partition -> next offset.

    Raises:
        BeyondFrontier: it lacks what was written (transient).
    """
    less, beyond = says_less(_offsets(table), written)
    if less and not table.scan(row_filter=beyond, selected_fields=(OFFSET,), limit=1).to_arrow().num_rows:
        raise BeyondFrontier(
            f"the history of {name} was put back to an older state, and lacks what was written to it since",
            means="a cut would show rows as they were before; no cut was made",
            fix="start `headwater run` again: it reads from the log what is missing; then ask again",
        )


def _offsets(table: Table) -> dict[int, int]:
    held = table.metadata
    snapshots = [
        {
            "snapshot-id": one.snapshot_id,
            "parent-snapshot-id": one.parent_snapshot_id,
            "sequence-number": one.sequence_number or 0,
            "summary": {} if one.summary is None else {OFFSETS: one.summary.additional_properties.get(OFFSETS)},
        }
        for one in held.snapshots
    ]
    log = [{"snapshot-id": one.snapshot_id} for one in held.snapshot_log]
    return offsets_said({"snapshots": snapshots, "snapshot-log": log, "current-snapshot-id": held.current_snapshot_id})
