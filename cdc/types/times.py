"""Dates and times: from Debezium's ISO text to canonical text, and to the whole numbers that Arrow holds.

Python's own ``datetime`` ends with year 9999 and knows no year before 1; Postgres goes from 4713 BC to 294276. Text
that ``datetime`` can't hold is taken apart here and becomes a count of microseconds or days, which Arrow and Spark take.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

_EPOCH_DAYS = 719_468
_DAY_US = 86_400_000_000
# Spark's and Arrow's 64-bit microseconds.
_MAX_US = (1 << 63) - 1
_DATE = re.compile(r"([+-]?\d{4,9})-(\d\d)-(\d\d)")
_STAMP = re.compile(r"([+-]?\d{4,9}-\d\d-\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?")
INFINITIES = frozenset(("infinity", "-infinity"))


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any (astronomical) year."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


def date_days(text: str) -> date | int | None:
    """A date for Arrow's date32: a ``date``, or days since 1970 where ``date`` can't, or None for ±infinity.

    Raises:
        ValueError: not a date.
    """
    text = text.removesuffix("Z")
    try:
        return date.fromisoformat(text)
    except ValueError:
        if text in INFINITIES:
            return None
        found = _DATE.fullmatch(text)
        if found is None:
            raise
        return days_of(*(int(part) for part in found.groups()))


def timestamp_us(text: str) -> datetime | int | None:
    """A timestamp for Arrow: a naive ``datetime`` (UTC, or no zone at all), or microseconds since 1970, or None for ±infinity.

    Raises:
        ValueError: not a timestamp.
    """
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        return _far_timestamp(text)
    return value.replace(tzinfo=None)


def _far_timestamp(text: str) -> int | None:
    if text in INFINITIES:
        return None
    found = _STAMP.fullmatch(text)
    if found is None or found[6] not in (None, "Z"):
        raise ValueError(f"{text!r} is not a timestamp")
    day = _DATE.fullmatch(found[1])
    assert day is not None
    seconds = int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4] or 0)
    micros = int(((found[5] or "") + "000000")[:6])
    total = days_of(*(int(part) for part in day.groups())) * _DAY_US + seconds * 1_000_000 + micros
    if abs(total) > _MAX_US:
        return None
    return total


def canonical_timestamptz(text: Any) -> str:
    """Canonical text of a timestamptz: UTC, ``Z``."""
    return str(text)


def canonical_timestamp(text: Any) -> str:
    """Canonical text of a timestamp: no zone."""
    return str(text).removesuffix("Z")


def canonical_date(text: Any) -> str:
    """Canonical text of a date."""
    return str(text).removesuffix("Z")


def canonical_time(text: Any) -> str:
    """Canonical text of a time of day: no zone."""
    return str(text).removesuffix("Z")
