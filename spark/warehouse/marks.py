"""What the summary of an Iceberg commit says of its batch, by which a writer knows what it has applied.

Imported by who reads tables without Spark too (operations/query/tables.py): nothing here needs any.
"""

from __future__ import annotations

import json
from typing import Any

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
