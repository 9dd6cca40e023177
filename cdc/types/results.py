"""Values that Spark SQL computed, on their way into a document; and the mapping that suits their types."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

from cdc.types.rules import DATE_FIELD, FLATTENED_FIELD, KEYWORD_FIELD, TEXT_FIELD

_MAPPINGS: dict[str, dict[str, Any]] = {
    "boolean": {"type": "boolean"},
    "tinyint": {"type": "byte"},
    "smallint": {"type": "short"},
    "int": {"type": "integer"},
    "bigint": {"type": "long"},
    "float": {"type": "float", "ignore_malformed": True},
    "double": {"type": "double", "ignore_malformed": True},
    "decimal": {"type": "double", "ignore_malformed": True},
    "string": TEXT_FIELD,
    "varchar": TEXT_FIELD,
    "char": TEXT_FIELD,
    "date": DATE_FIELD,
    "timestamp": DATE_FIELD,
    "timestamp_ntz": DATE_FIELD,
    "binary": {"type": "binary"},
    "interval": KEYWORD_FIELD,
    "time": KEYWORD_FIELD,
    "map": FLATTENED_FIELD,
    "variant": FLATTENED_FIELD,
}


def canonical_result(value: Any) -> Any:  # noqa: PLR0911 (one return a type)
    """The canonical JSON value of what Spark or Arrow gave back: the same rules as for a column of that type."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return _trim(value.isoformat())
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return interval_text(value)
    if isinstance(value, Mapping):
        return {_key(k): canonical_result(v) for k, v in value.items()}
    if hasattr(value, "asDict"):  # a Spark Row is a tuple too
        return {k: canonical_result(v) for k, v in value.asDict().items()}
    return _other(value)


def _other(value: Any) -> Any:
    if isinstance(value, list) and value and all(type(item) is tuple and len(item) == 2 for item in value):
        return {_key(k): canonical_result(v) for k, v in value}  # how Arrow gives a map, unless told maps_as_pydicts
    # A tuple by another name is no array: Arrow's interval of months, days and nanoseconds is such a one.
    if isinstance(value, list | set | frozenset) or type(value) is tuple:
        return [canonical_result(v) for v in value]
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return canonical_result(value.tolist())
    raise TypeError(f"no JSON value for {type(value).__name__}")


def _key(key: Any) -> str:
    value = canonical_result(key)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _timestamp(value: datetime) -> str:
    if value.tzinfo is None:
        return _trim(value.isoformat())
    return _trim(value.astimezone(UTC).replace(tzinfo=None).isoformat()) + "Z"


def interval_text(value: timedelta) -> str:
    """ISO-8601 text of a day-time interval, in days, hours, minutes and seconds."""
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    date_part = f"{sign}{days}D" if days else ""
    time_part = "".join(f"{sign}{n}{unit}" for n, unit in ((hour, "H"), (minute, "M")) if n)
    if second or fraction:
        time_part += _trim(f"{sign}{second}.{fraction:06d}") + "S"
    return f"P{date_part}T{time_part}" if time_part else f"P{date_part}" if date_part else "PT0S"


def merge_fields(base: bytes, computed: Mapping[str, Any]) -> bytes:
    """A rendered document with computed fields added at its end.

    The base is not parsed again: its numbers keep their digits.

    Args:
        base: a rendered JSON object, ``{…}``.
        computed: output name -> value from Spark or Arrow; names must not be in ``base`` already.

    Raises:
        TypeError: a value of a type that has no JSON form.
    """
    if not computed:
        return base
    added = orjson.dumps({name: canonical_result(value) for name, value in computed.items()})
    return added if base == b"{}" else base[:-1] + b"," + added[1:]


def mapping_of_spark(spark: str) -> dict[str, Any]:
    """Elasticsearch's default mapping for a Spark SQL type (``simpleString``); structs become objects."""
    kind = spark.strip().lower()
    if kind.startswith("array<"):
        return mapping_of_spark(kind[6:-1])
    if kind.startswith("struct<"):
        fields = (item.split(":", 1) for item in _split(spark.strip()[7:-1]))
        return {"properties": {name: mapping_of_spark(inner) for name, inner in fields}}
    word = re.match(r"[a-z_]*", kind)
    return dict(_MAPPINGS.get(word[0] if word else "", TEXT_FIELD))


def _split(text: str) -> list[str]:
    """Comma-separated items at nesting depth 0."""
    items, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            items.append(text[start:index])
            start = index + 1
    return [*items, text[start:]] if text else items
