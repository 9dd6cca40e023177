"""A row as the row store holds it: one value of bytes that says where it came from, what it replaced, and what it is.

    position (16 hex) | offset (10) | partition (4) | era (4) | length of the next part (6) | replaced routes | row

    of a row after which a record was refused: {"replaced": routes, "refused": [position, offset, partition]} | row

The row is a JSON array in the order of its ``TableLayout``; nothing stands there for a deleted row. ``replaced routes``
are the foreign keys of rows that this one replaced while it was pending: after a crash they tell a replay which former
parents may still show the row (docs/decisions/row-store.md). The era says whether documents can be trusted to show the
row: one of an earlier era is acted on even where a change leaves it as it is. A refused record may have carried large
values that later ones leave out: they are not filled from the row any more, until one comes that leaves none out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from cdc.errors import StateError

STAMP = 30
LENGTH = STAMP + 4
HEAD = LENGTH + 6
# A length of seven digits would push what follows by one, and no reader would find the row again.
ROOM = 1 << 24


class Stamp(NamedTuple):
    """Which change made a row; ordered by position, then offset."""

    position: int
    offset: int
    partition: int

    def pack(self) -> bytes:
        """30 bytes whose order is the stamps' order.

        Raises:
            StateError: its offset or partition has no room in them (terminal).
        """
        if self.offset >= 1 << 40 or self.partition >= 1 << 16:
            raise StateError(f"offset {self.offset} of partition {self.partition} is beyond what a row can say")
        return b"%016x%010x%04x" % (self.position, self.offset, self.partition)


# Routes of a row that was replaced: the raw values of its layout's ``routes``.
Replaced = list[Any]


class Stored(NamedTuple):
    """A stored row, read.

    Attributes:
        stamp: of the change that wrote it.
        replaced: former routes that may not have been acted on yet.
        row: values in the layout's order; None for a deleted row.
        head: the bytes before the row: what a compare-and-set expects to find.
        body: those of the row; empty for a deleted one.
        era: see above.
        refused: the newest record that was refused since; None if there is none.
    """

    stamp: Stamp
    replaced: list[Replaced]
    row: list[Any] | None
    head: bytes
    body: bytes
    era: int
    refused: Stamp | None = None


def read(value: bytes) -> Stored:
    """Take a stored value apart.

    Raises:
        StateError: it is not one (terminal).
    """
    try:
        stamp = Stamp(int(value[:16], 16), int(value[16:26], 16), int(value[26:30], 16))
        era, end = int(value[STAMP:LENGTH], 16), HEAD + int(value[LENGTH:HEAD], 16)
        found = orjson.loads(value[HEAD:end]) if end > HEAD else []
        replaced, refused = (found["replaced"], Stamp(*found["refused"])) if type(found) is dict else (found, None)
        row = orjson.loads(value[end:]) if len(value) > end else None
    except (ValueError, TypeError, KeyError) as error:
        raise StateError(f"the row store holds {value[:60]!r}, which is no row: {error}") from error
    return Stored(stamp, replaced, row, value[:end], value[end:], era, refused)


def read_row(value: bytes | None) -> list[Any] | None:
    """Only the row of a stored value: what putting documents together needs."""
    if value is None:
        return None
    end = HEAD if value[LENGTH:HEAD] == b"000000" else HEAD + int(value[LENGTH:HEAD], 16)
    found: list[Any] | None = orjson.loads(value[end:]) if len(value) > end else None
    return found


def body_of(row: Sequence[Any] | None) -> bytes:
    """A row as it is stored: two rows are the same only if these bytes are (0.0 and -0.0 are not)."""
    return b"" if row is None else orjson.dumps(row)


def write(stamp: Stamp, replaced: Sequence[Replaced], body: bytes, era: int = 0, refused: Stamp | None = None) -> bytes:
    """Put a stored value together.

    Raises:
        StateError: what it has to say beside the row has no room in it (terminal).
    """
    undo = orjson.dumps(list(replaced)) if replaced else b""
    if refused is not None:
        undo = orjson.dumps({"replaced": list(replaced), "refused": list(refused)})
    if len(undo) >= ROOM:
        raise StateError(
            f"a row has no room for {len(undo):,} bytes of values that it was joined by before: {ROOM:,} are too many",
            fix="`headwater rebuild FILE SINK --auto` stores its rows anew, without them",
        )
    return stamp.pack() + b"%04x%06x" % (era & 0xFFFF, len(undo)) + undo + body
