"""Sizes as people write them, ``10GiB``, ``512 MiB`` or plain bytes; sizes and spans of time in words."""

from __future__ import annotations

import re

# Powers of 1024 only: 10GB is 10 * 1000^3 to a disk's maker and 10 * 1024^3 to Postgres, so it is refused.
UNITS = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
SIZE = r"^[0-9]{1,15}(\.[0-9]{1,6})? ?([Bb]|[KMGTkmgt][Ii][Bb])?$"
_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")


def parse_size(text: str) -> int | None:
    """Bytes that a text stands for; None when it is no size. A part of a byte is left out."""
    if not re.fullmatch(SIZE, text):
        return None
    found = _PARTS.fullmatch(text)
    assert found is not None  # SIZE is the stricter of the two
    number, unit = found.groups()
    factor = UNITS[unit.upper() or "B"]
    whole, _, part = number.partition(".")
    # Not by float, which would lose bytes of a petabyte.
    return int(whole) * factor + (int(part) * factor // 10 ** len(part) if part else 0)


def size_words(size: float) -> str:
    """``12 MiB``, ``5.1 GiB``, ``less than 1 MiB``: as a line of a report shows bytes."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= factor:
            number = size / factor
            return f"{number:.1f} {unit}".replace(".0 ", " ") if number < 100 else f"{number:,.0f} {unit}"
    return "less than 1 MiB"


def span_words(seconds: float) -> str:
    """``90 s``, ``12 min``, ``3 h``, ``5 days``: as a line of a report shows a span of time."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
