"""Reads Postgres's notation of an LSN: only tests have to."""

from __future__ import annotations

from cdc.errors import StateError


def parse_lsn(text: str) -> int:
    """Bytes from Postgres's notation, ``16/B374D848``.

    Raises:
        StateError: not an LSN (terminal).
    """
    high, slash, low = text.partition("/")
    try:
        if not slash or len(high) > 8 or len(low) > 8:
            raise ValueError(text)
        return int(high, 16) << 32 | int(low, 16)
    except ValueError as error:
        raise StateError(f"{text!r} is not an LSN (expected two hexadecimal numbers, like 16/B374D848)") from error
