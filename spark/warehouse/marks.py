"""What the summary of an Iceberg commit says of its batch, by which a writer knows what it has applied.

Imported by who reads tables without Spark too (operations/query/tables.py): nothing here needs any.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from cdc.records.history import OFFSET, PARTITION

# With which the names of all marks begin.
OURS = "headwater."
# The streaming query's id, the batch's number, the offsets it ends at: of a fill its attempt, slice and offsets.
QUERY, BATCH, OFFSETS = OURS + "query-id", OURS + "batch-id", OURS + "offsets"
# That no record of the batch is left to a commit after this one. Who applies a batch in two passes can't say so in the
# first: whether there will be a second is known when the first has ended.
WHOLE = OURS + "whole"
# Who has told in the first pass what is left to the second (``NativeReader.fingerprint``): another one would tell it
# otherwise.
READER = OURS + "reader"


def offsets_text(offsets: Any) -> str:
    """What ``OFFSETS`` says: the same text for the same offsets, however they are ordered."""
    return json.dumps(offsets, separators=(",", ":"), sort_keys=True)


def same_offsets(said: str | None, text: str) -> bool:
    """Whether a commit's ``OFFSETS`` are these; earlier Headwaters wrote them in the order in which they came.

    Args:
        said: what the summary says, if it says any.
        text: of ``offsets_text``.
    """
    return said == text or (said is not None and json.loads(said) == json.loads(text))


def offsets_said(metadata: Mapping[str, Any]) -> dict[int, int]:
    """Up to where a table of history holds its topic, by what its snapshots say: partition -> next offset. Pure.

    Upkeep keeps the newest snapshot that says so. It may say it once more, of an older query even, in a commit of its
    own: the furthest counts, and not the youngest. Those that a rollback has left behind say nothing.

    Args:
        metadata: the table's, as Iceberg writes them.
    """
    snapshots, found = {one["snapshot-id"]: one for one in metadata.get("snapshots", ())}, dict[int, int]()
    left = _left_behind(metadata, snapshots)
    for number, snapshot in snapshots.items():
        said = snapshot.get("summary", {}).get(OFFSETS)
        if said is not None and number not in left:
            for part, at in json.loads(said).items():
                found[int(part)] = max(int(at), found.get(int(part), 0))
    return found


def says_less(there: Mapping[int, int], written: Mapping[int, int]) -> tuple[dict[int, int], str]:
    """From where on a table of history says less than what was written to it, and which of its rows deny that. Pure.

    A snapshot that says so is written before the place in the log is noted. One that says less may be all that is left
    where somebody has expired the others: then the table has rows of what they said.

    Args:
        there: ``offsets_said`` of the table.
        written: up to where: partition -> next offset.

    Returns:
        partition -> offset, empty if it says it all; and a condition on rows, for Spark and pyiceberg alike.
    """
    less = {part: at for part, at in there.items() if at < written.get(part, 0)}
    return less, " OR ".join(f"({PARTITION} = {part} AND {OFFSET} >= {at})" for part, at in less.items())


def _left_behind(metadata: Mapping[str, Any], snapshots: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Snapshots behind which the table was led back: an older one was the current one after them.

    Not all that are no ancestors: of those upkeep has expired some in between, and the line of parents ends there.
    """
    left, least = set[int](), math.inf
    for entry in reversed(metadata.get("snapshot-log", ())):
        if (number := entry["snapshot-id"]) in snapshots:
            made = snapshots[number].get("sequence-number", 0)
            if made > least:
                left.add(number)
            least = min(least, made)
    ancestor: Any = metadata.get("current-snapshot-id")
    while ancestor in snapshots:  # one may be led back to what was left
        left.discard(ancestor)
        ancestor = snapshots[ancestor].get("parent-snapshot-id")
    return left
