"""One order for canonical values: what children are sorted by, and what min and max mean.

Numbers by value with NaN the greatest, text by its UTF-8 bytes (Spark SQL's order), dates and times by the moment with
the infinities at the ends, arrays by their elements as Postgres does: NULL is the greatest, and what goes on is greater
than what ends. Other nulls are the caller's business.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import orjson

from cdc.types.times import days_of

Key = Callable[[Any], Any]

_MOMENT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?Z?)?")
_NUMBERS = frozenset(("tinyint", "smallint", "int", "bigint", "float", "double", "numeric"))
_MOMENTS = frozenset(("date", "timestamp", "timestamp_ntz"))
_INFINITE = {"infinity": math.inf, "-infinity": -math.inf}


def moment(text: str) -> float | int:
    """Microseconds since 1970 of a canonical date or timestamp; ±inf for Postgres's infinities.

    Raises:
        ValueError: not a canonical date or timestamp.
    """
    if text in _INFINITE:
        return _INFINITE[text]
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date or a timestamp")
    year, month, day, hour, minute, second, fraction = found.groups()
    seconds = days_of(int(year), int(month), int(day)) * 86_400
    if hour is not None:
        seconds += int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def _number(value: Any) -> tuple[int, Any]:
    if isinstance(value, str):
        value = Decimal(value)
        return (1, 0) if value.is_nan() else (0, value)
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # str() of a fragment of JSON is where it lies in memory


def _elements(key: Key) -> Key:
    def of(value: Any) -> list[tuple[bool, Any]]:
        return [(item is None, None if item is None else key(item)) for item in value]

    return of


@cache
def order_key(kind: str) -> Key:
    """A sort key for canonical values of a Spark SQL type.

    Args:
        kind: as ``cdc.types.spark_type`` spells it; ``numeric`` for a numeric that travels as text.
    """
    if kind.startswith("array<"):
        return _elements(order_key(kind[6:-1]))
    if kind in _NUMBERS or kind.startswith("decimal"):
        return _number
    if kind in _MOMENTS:
        return moment
    if kind == "boolean":
        return bool
    return _text


def has_order(kind: str) -> bool:
    """Whether values of a type that Spark SQL gives are ordered here as Spark orders them.

    Those of any other are kept as texts, and a text's bytes are not its order: of an interval PT9M is behind PT10M, and
    a collation has an order of its own.
    """
    return kind in _NUMBERS or kind in _MOMENTS or kind in ("boolean", "string") or kind.startswith("decimal")


def is_text(kind: str) -> bool:
    """Whether values of this type are ordered by their bytes."""
    return order_key(kind) is _text


# Bytes of a text that a score can hold: a double has 53 bits.
TEXT_BYTES = 6


def rank(kind: str, value: Any, *, descending: bool, nulls_first: bool) -> float:
    """A double by which rows are arranged: never the wrong way round, though not all that differ are told apart.

    Args:
        kind: as ``order_key`` takes it; no array.
        value: canonical; None for NULL.
        descending: the greatest first.
        nulls_first: where NULL stands.
    """
    if value is None:
        return -math.inf if nulls_first else math.inf
    if is_text(kind):
        place = float(int.from_bytes(_text(value)[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0"), "big"))
    else:
        place = score(kind, value)
    return -place if descending else place


def score(kind: str, value: Any) -> float:
    """A double that never orders two values the wrong way round; values a double can't tell apart share one."""
    key = order_key(kind)(value)
    if isinstance(key, tuple):
        return math.inf if key[0] else float(key[1])
    return 0.0 if isinstance(key, bytes) else float(key)
