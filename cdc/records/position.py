"""Positions: where in the source's history a change stands, as one long that sinks use as a version.

``epoch << 52 | lsn``. The epoch grows when the source's identity changes (another system identifier or timeline, a
re-created slot), so that every position of the new history is newer than every one of the old. 52 bits of LSN are
4 PiB of WAL within one epoch; 11 bits of epoch are 2,047 changes of identity; the whole fits the signed 64-bit versions
of Elasticsearch, Redis scripts' string comparison and Iceberg. See docs/decisions/positions.md for which LSN it is.
"""

from __future__ import annotations

import re

from cdc.errors import StateError

# As Postgres reads it: a digit too many would be another position, a sign none.
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
LSN_BITS = 52
MAX_LSN = (1 << LSN_BITS) - 1
# A cluster's WAL begins with its second segment (initdb), and a segment has 1 MiB at the least: no change stands
# before. What a fill of joined documents counts, its slices, does (spark/join/engine.py says how many they may be).
FIRST_LSN = 1 << 20
MAX_EPOCH = (1 << (63 - LSN_BITS)) - 1


def pack(epoch: int, lsn: int) -> int:
    """One long for (epoch, lsn).

    Args:
        epoch: identity of the source's history, 0 … 2,047.
        lsn: WAL position in bytes, 0 … 2**52-1.

    Returns:
        0 … 2**63-1; order is by epoch, then by LSN.

    Raises:
        StateError: either does not fit (terminal): a silent overflow would make new changes look old.
    """
    if not 0 <= lsn <= MAX_LSN:
        raise StateError(
            f"LSN {lsn} does not fit the {LSN_BITS} bits of a position",
            means="a larger number would run into the epoch and make every later change look like another history",
            fix="dump and restore the database into a new cluster, whose WAL starts near 0, and raise the epoch",
        )
    if not 0 <= epoch <= MAX_EPOCH:
        raise StateError(
            f"epoch {epoch} is not within 0 … {MAX_EPOCH}", fix="rebuild the sinks under a new pipeline name"
        )
    return epoch << LSN_BITS | lsn


def unpack(position: int) -> tuple[int, int]:
    """(epoch, lsn) of a position.

    Raises:
        StateError: not a position (terminal).
    """
    if not 0 <= position < 1 << 63:
        raise StateError(f"{position} is not a position")
    return position >> LSN_BITS, position & MAX_LSN


def format_lsn(lsn: int) -> str:
    """Postgres's notation of an LSN in bytes."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_text(version: int) -> str | None:
    """The LSN that a version stands for, in Postgres's notation; None for one that is no position."""
    return format_lsn(version & MAX_LSN) if FIRST_LSN <= version < 1 << 63 else None


def parse_lsn(text: str) -> int:
    """Bytes of WAL, of the form in which Postgres prints a position.

    Raises:
        ValueError: it is none.
    """
    found = _LSN.fullmatch(text)
    if found is None:
        raise ValueError(f"not a position in the log: {text}")
    return (int(found[1], 16) << 32) + int(found[2], 16)
