"""Canonical dates and moments as numbers, for verification: Python's own end with the year 9999."""

from __future__ import annotations

import re

from cdc.types.times import days_of

_MOMENT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?Z?)?")
# What 64 bits of microseconds count to: 294247-01-10. Postgres's moments end 29 years later.
_LAST = (1 << 63) - 1


def moment_number(text: str) -> int | None:
    """Days (a date) or microseconds (a timestamp) since 1970 of canonical text; None for ±infinity."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction = found.groups()
    days = days_of(int(year), int(month), int(day))
    if hour is None:
        return days
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    return seconds * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))


def is_beyond(text: str) -> bool:
    """Whether a canonical moment is one of the last that Postgres has, which no typed column holds (docs/types.md)."""
    return text[0] == "+" and (moment_number(text) or 0) > _LAST
