"""Dates and times: Debezium's microseconds, days and ISO text to canonical text, and to what Arrow holds.

Python's ``datetime`` ends with year 9999 and knows no year before 1; Postgres goes from 4714 BC to 294276. What it
can't hold is computed here. Canonical text is ISO 8601 with the astronomical year: ``+10000-01-01``, ``-0043-03-15``
(44 BC). ``infinity`` has no place in Arrow and becomes None there.

The limits below tell values from Debezium's stand-ins for infinity: each of those lies outside what Postgres can store.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

INFINITY, MINUS_INFINITY = "infinity", "-infinity"
_EPOCH = datetime(1970, 1, 1)
DAY_US = 86_400_000_000
_MAX_LONG, _MIN_LONG = (1 << 63) - 1, -(1 << 63)
# 4714-11-24 BC and 5874897-12-31 (dates), 4714-11-24 BC (timestamps): Postgres's own limits.
_MIN_DAY, _MAX_DAY = -2_440_588, 2_145_042_905
_MIN_US = _MIN_DAY * DAY_US
# A snapshot reads ±infinity through java.sql.Date, whose days overflow an int: these two, give or take a time zone.
_SNAPSHOT_INFINITY, _SNAPSHOT_MINUS_INFINITY = -622_191_234, -625_821_272
# datetime's own range, in days and microseconds since 1970.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_US, LAST_US = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
# Of ISO text every third character from the fifth on: what stands between the numbers, with a fraction and without.
_FRACTION, _WHOLE = "--T::.", "--T::Z"
_parsed = datetime.fromisoformat
_INSTANT = re.compile(
    r"([+-][0-9]{4,9}|[0-9]{4})-(0[1-9]|1[0-2])-([0-9]{2})T((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])(?:\.([0-9]+))?Z"
)
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def civil(days: int) -> tuple[int, int, int]:
    """(astronomical year, month, day) of days since 1970-01-01, in the proleptic Gregorian calendar."""
    era, of_era = divmod(days + 719_468, 146_097)
    of_era_year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * of_era_year + of_era_year // 4 - of_era_year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return of_era_year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date in the proleptic Gregorian calendar, for any astronomical year."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_text(days: int) -> str:
    """Canonical text of days since 1970 that stand for no infinity, wherever Postgres's own dates end."""
    if FIRST_DAY <= days <= LAST_DAY:
        return date.fromordinal(days + 719_163).isoformat()
    year, month, day = civil(days)
    return f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def _infinite_date(days: int) -> str | None:
    if _MIN_DAY <= days <= _MAX_DAY:
        return None
    if days > _MAX_DAY or abs(days - _SNAPSHOT_INFINITY) <= 2:
        return INFINITY
    if days < -2_147_000_000 or abs(days - _SNAPSHOT_MINUS_INFINITY) <= 2:
        return MINUS_INFINITY
    raise ValueError(f"{days} days since 1970 is not a date of Postgres")


@lru_cache(maxsize=65_536)  # tables hold few distinct dates; formatting one costs ten look-ups
def canonical_date(days: int) -> str:
    """Canonical text of a date in days since 1970."""
    return _infinite_date(days) or date_text(days)


def arrow_date(days: int) -> int | None:
    """A date for Arrow's date32."""
    _refuse_no_integer(days)
    return days if _MIN_DAY <= days <= _MAX_DAY else None if _infinite_date(days) else days


def _refuse_no_integer(value: int) -> None:
    """Python takes true for 1. Arrow does not, and would fail the whole batch instead of this one row."""
    if type(value) is not int:
        raise TypeError(f"expected a number, got {type(value).__name__}")


def _fraction(micros: int) -> str:
    return f".{micros:06d}".rstrip("0") if micros else ""


def canonical_time(micros: int) -> str:
    """Canonical text of a time of day in microseconds; 24:00:00 is a time of its own in Postgres."""
    if not 0 <= micros <= DAY_US:
        raise ValueError(f"{micros} microseconds is not a time of day")
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}{_fraction(fraction)}"


def canonical_timestamp(micros: int) -> str:
    """Canonical text of a timestamp without zone, in microseconds since 1970."""
    if FIRST_US <= micros <= LAST_US:
        text = (_EPOCH + timedelta(microseconds=micros)).isoformat()
        return text.rstrip("0") if "." in text else text
    infinite = _infinite_timestamp(micros)
    if infinite is not None:
        return infinite
    return timestamp_text(micros)


def timestamp_text(micros: int) -> str:
    """Canonical text, without a zone, of microseconds since 1970 that stand for no infinity; see ``date_text``."""
    days, of_day = divmod(micros, DAY_US)
    return f"{date_text(days)}T{canonical_time(of_day)}"


def _infinite_timestamp(micros: int) -> str | None:
    if _MIN_US <= micros < _MAX_LONG:
        return None
    if micros == _MAX_LONG:
        return INFINITY
    if micros == _MIN_LONG:
        return MINUS_INFINITY
    # Debezium's multiplication overflows past 294247-01-10T04:00:54.775807: wrong, and seen to be wrong.
    raise ValueError("a timestamp after 294247-01-10 overflows Debezium's microseconds")


def arrow_timestamp(micros: int) -> int | None:
    """A timestamp for Arrow: microseconds since 1970."""
    _refuse_no_integer(micros)
    return micros if _infinite_timestamp(micros) is None else None


def canonical_timestamptz(text: str) -> str:
    """Canonical text of a timestamptz: UTC, ``Z``, microseconds without trailing zeros."""
    try:
        found = _parsed(text)  # the parts of all that a datetime holds, and no zone before the Z
    except ValueError:
        return _odd_timestamptz(text)
    form, length = text[4:20:3], len(text)
    if form == _FRACTION and text[-1] == "Z" and length > 21:
        micros = found.microsecond
        if not micros:
            return text[:19] + "Z"
        return text if micros % 10 and length == 27 else text[:26].rstrip("Z").rstrip("0") + "Z"
    if form == _WHOLE and length == 20:
        return text
    raise _no_timestamptz(text)


def _no_timestamptz(text: str) -> ValueError:
    return ValueError(f"{text[:60]!r} is not a timestamp in UTC")


def _odd_timestamptz(text: str) -> str:
    """The canonical text of what no ``datetime`` holds: ±infinity, far years, and the old calendar's own days.

    Outbox messages give any text as a timestamptz, and one that no clock shows must not reach who computes with it.
    """
    if text in (INFINITY, MINUS_INFINITY):
        return text
    found = _INSTANT.fullmatch(text)
    if found is None:
        raise _no_timestamptz(text)
    year, month, day, fraction = int(found[1]), int(found[2]), int(found[3]), found[5]
    if not 1 <= day <= _days_in(year, month):
        raise _no_timestamptz(text)
    if year > 294_276:  # one of java.sql.Timestamp's infinities, which arrays hold
        # -infinity's year has lost its sign, but it is not infinity's.
        return MINUS_INFINITY if year < 292_270_000 else INFINITY
    if year < -4_713:
        return MINUS_INFINITY
    cut = (fraction or "")[:6].rstrip("0")
    return f"{found[1]}-{found[2]}-{found[3]}T{found[4]}{'.' if cut else ''}{cut}Z"


def _days_in(year: int, month: int) -> int:
    """Of a month, by Java's calendar too: a snapshot reads days of before 1582-10-15 by the older one's leap years."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0 or year <= 1582)
    return 29 if month == 2 and leap else _MONTHS[month - 1]


def arrow_timestamptz(text: str) -> datetime | int | None:
    """A timestamptz for Arrow: a naive ``datetime`` in UTC, or microseconds since 1970, or None for ±infinity."""
    try:
        found = _parsed(text[:-1])
    except ValueError:
        return _far_timestamptz(_odd_timestamptz(text))
    form = text[4:20:3]
    if (form == _FRACTION and text[-1] == "Z" and found.tzinfo is None) or (form == _WHOLE and len(text) == 20):
        return found
    raise _no_timestamptz(text)


def _far_timestamptz(text: str) -> int | None:
    if text in (INFINITY, MINUS_INFINITY):
        return None
    day, _, clock = text[:-1].partition("T")
    year, month, day_of_month = day.rsplit("-", 2)
    hour, minute, second = clock.split(":")
    whole, _, fraction = second.partition(".")
    seconds = int(hour) * 3600 + int(minute) * 60 + int(whole)
    micros = days_of(int(year), int(month), int(day_of_month)) * DAY_US + seconds * 1_000_000 + int(f"{fraction:0<6}")
    return micros if micros <= _MAX_LONG else None


def canonical_timetz(text: Any) -> str:
    """Canonical text of a timetz, which Debezium gives in UTC."""
    if text[-1] != "Z":
        raise ValueError(f"{text!r} is not a time in UTC")
    return text[:-1].rstrip("0").rstrip(".") + "Z" if "." in text else str(text)
