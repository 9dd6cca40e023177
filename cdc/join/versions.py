"""All versions of a row, and which of them was there at a moment.

Of a table that a view shows as it was, each change is a row of its own in the row store: it is written once and never
changed. When it began is the commit's time, to the millisecond. What was before the oldest version that is known is
taken for that version, unless it is the row's creation: the log begins with a snapshot, and it may have been compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cdc.join.layout import TableLayout
from cdc.records.change import Change, Op

# What a version is: the row as it was created, as it was read or changed, and its end.
CREATED, KNOWN, GONE = "c", "k", "d"

MICROS_OF_MS = 1000

# How the id of what a snapshot has read ends, and of a delete that was found out by reading. It is dated when it was
# told, which may be long after it happened: changes that were committed meanwhile have earlier times, and are newer all
# the same. Their positions say so.
READ_MARK = "r"


def version_id(key: str, position: int, offset: int, *, read: bool) -> str:
    """A version's id in the store: two changes of a row may share a position, and none shares both."""
    return f"{key}@{position:016x}{offset:010x}{READ_MARK if read else ''}"


def row_of(version: str) -> str:
    """The id of the row that a version is of."""
    return version[: version.rindex("@")]


def by_time(version: str) -> str:
    """What sorts versions of one row as they came to be, of their ids: position, then offset."""
    return version[version.rindex("@") :]


def told(change: Change) -> list[Any]:
    """What a version's row says behind its columns: when it began (microseconds since 1970), and what it is."""
    kind = GONE if change.after is None else CREATED if change.op is Op.CREATE else KNOWN
    return [change.ts_ms * MICROS_OF_MS, kind]


def since_of(layout: TableLayout) -> Callable[[Sequence[Any]], float]:
    """A function that gives when a stored version began."""
    at = len(layout.columns)
    return lambda row: float(row[at])


def shown(layout: TableLayout, versions: Sequence[list[Any]], moment: float) -> list[Any] | None:
    """The version that was there; None if the row was not.

    Args:
        layout: of the table.
        versions: those that began last before the moment, and behind what was read the one before that; or those
            that began first after it if none did; the newest last.
        moment: microseconds since 1970.
    """
    if not versions:
        return None
    at = len(layout.columns)
    row = versions[-1] if versions[-1][at] <= moment else versions[0]
    kind = row[at + 1]
    return None if kind == GONE or (kind == CREATED and row[at] > moment) else row
