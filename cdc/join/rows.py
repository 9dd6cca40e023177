"""A row as the row store holds it: one value of bytes that says where it came from, what it replaced, and what it is.

    position (16 hex) | offset (10 hex) | partition (4 hex) | length of the next part (6 hex) | replaced routes | row

The row is a JSON array in the order of its ``TableLayout``; nothing stands there for a deleted row. ``replaced routes``
are the foreign keys of rows that this one replaced and whose batch was not committed when it was written: after a crash
they tell a replay which former parents may still show the row (docs/decisions/row-store.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from cdc.errors import StateError

STAMP = 30
HEAD = STAMP + 6


class Stamp(NamedTuple):
    """Which change made a row; ordered by position, then offset."""

    position: int
    offset: int
    partition: int

    def pack(self) -> bytes:
        """30 bytes whose order is the stamps' order."""
        if self.offset >= 1 << 40 or self.partition >= 1 << 16:
            raise StateError(f"offset {self.offset} of partition {self.partition} is beyond what a row can say")
        return b"%016x%010x%04x" % (self.position, self.offset, self.partition)


class Replaced(NamedTuple):
    """Routes of a row that was replaced: the raw values of its layout's ``routes``, by the change at that offset."""

    partition: int
    offset: int
    routes: list[Any]


class Stored(NamedTuple):
    """A stored row, read.

    Attributes:
        stamp: of the change that wrote it.
        replaced: former routes that may not have been acted on yet.
        row: values in the layout's order; None for a deleted row.
        head: the bytes before the row: what a compare-and-set expects to find.
    """

    stamp: Stamp
    replaced: list[Replaced]
    row: list[Any] | None
    head: bytes


def read(value: bytes) -> Stored:
    """Take a stored value apart.

    Raises:
        StateError: it is not one (terminal).
    """
    try:
        stamp = Stamp(int(value[:16], 16), int(value[16:26], 16), int(value[26:30], 16))
        end = HEAD + int(value[STAMP:HEAD], 16)
        replaced = [Replaced(*item) for item in orjson.loads(value[HEAD:end])] if end > HEAD else []
        row = orjson.loads(value[end:]) if len(value) > end else None
    except (ValueError, TypeError) as error:
        raise StateError(f"the row store holds {value[:60]!r}, which is no row: {error}") from error
    return Stored(stamp, replaced, row, value[:end])


def read_row(value: bytes | None) -> list[Any] | None:
    """Only the row of a stored value: what putting documents together needs."""
    if value is None:
        return None
    end = HEAD if value[STAMP:HEAD] == b"000000" else HEAD + int(value[STAMP:HEAD], 16)
    found: list[Any] | None = orjson.loads(value[end:]) if len(value) > end else None
    return found


def write(stamp: Stamp, replaced: Sequence[Replaced], row: Sequence[Any] | None) -> bytes:
    """Put a stored value together."""
    undo = orjson.dumps([list(item) for item in replaced]) if replaced else b""
    body = b"" if row is None else orjson.dumps(row)
    return stamp.pack() + b"%06x" % len(undo) + undo + body
