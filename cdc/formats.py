"""Numbers of the forms in which things outlive a process: each carries its number; who reads it looks at that first.

What has no number is of before there were any, and counts as 1. Something newer than what is known here is refused by
name: it would be misread. Something older is read, or refused by name with the command that mends it. A change that an
older Headwater would misread raises the number here, and says in docs/upgrade.md what becomes of what is there.
"""

from __future__ import annotations

import re
from typing import Any

from cdc.errors import NewerFormat

# Everything below <state_dir>/<pipeline>: registers, leases, definitions, identities, checkpoints' places, notes.
STATE = 1
# What a sink's generation was made of. From 2 on the ids of windows tell a group of NULL from one of the text `null`; a
# definition without windows of groups carries 1.
DEFINITION = 2
# The helper schema in the source database, and the topics that the connector fills as it says: names, keys, records.
SOURCE = 1
# A dead letter's record.
LETTER = 1
# The shapes that captured tables have had, and what is under way because of one.
SHAPES = 1
# How a joined view's rows lie in the row store. What has no number there is told apart by its keys: sinks/rowstore.
ROWS = 2

_COMMENT = re.compile(r"headwater format (\d+)\b")


def refuse_newer(what: str, found: Any, known: int) -> int:
    """The number that something carries.

    Args:
        what: how the error names it.
        found: its number; None for what has none.
        known: the newest that is known here.

    Raises:
        NewerFormat: it is a newer one, or no number (terminal; nothing was changed).
    """
    number = 1 if found is None else found
    if isinstance(number, int) and 0 < number <= known:
        return number
    raise NewerFormat(
        f"{what} was written by a newer Headwater (format {found}; this one knows {known})",
        means="it would be misread; nothing was changed",
        fix="use the newer Headwater here; what an older one can do with it is in docs/upgrade.md",
    )


def as_comment(number: int, what: str) -> str:
    """A number as the comment of a database's table."""
    return f"{what} (headwater format {number})"


def from_comment(comment: str | None) -> int | None:
    """The number that ``as_comment`` has put into a comment; None if there is none."""
    found = _COMMENT.search(comment or "")
    return int(found[1]) if found else None
