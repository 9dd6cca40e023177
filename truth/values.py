"""What a document must be, from Postgres's own text: an independent second opinion for verification and tests.

Nothing here uses the codec's converters: two ways to one value, so that a mistake in one shows. Text is what the type's
output function prints (what ``COPY`` and drivers see) under the settings of ``SESSION``.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from cdc.catalogue import Column
from cdc.json_text import DEEPEST, fits, many_levels, read
from cdc.keys import document_id
from cdc.view import View
from truth.text import parse_array, parse_hstore

# What the session that reads the text must be set to. Where an interval stands in a type of a user's own, Debezium
# gives what its session prints, which has this IntervalStyle whatever role and database set (see
# connectors/session_settings.py).
SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}

# Distinct texts of a column whose value is kept for the next row that has the same; longer texts seldom come twice.
_REMEMBERED, _SHORT = 10_000, 64
# Levels that orjson writes.
_WRITTEN = 254

_INTEGERS = frozenset(("int2", "int4", "int8", "oid", "smallint", "integer", "bigint"))
_PART = re.compile(r"(-?[0-9.]+)([A-Z])")
_FLOATS = frozenset(("float4", "float8", "real", "double precision"))


def select_expression(column: Column, alias: str = "") -> str:
    """SQL that gives a column's text, NULL for NULL; to be read under ``SESSION``.

    Args:
        column: the column.
        alias: what the query calls the table; empty where the column's bare name is enough.
    """
    name = '"' + column.name.replace('"', '""') + '"'
    if alias:
        name = f"{alias}.{name}"
    if column.base_type == "money" and not column.array:  # its text depends on the server's locale
        return f"{name}::numeric::text"
    if column.base_type == "interval" and not column.array:  # its text depends on the session's IntervalStyle
        parts = ", ".join(f"extract({part} FROM {name})" for part in ("year", "month", "day", "hour", "minute"))
        made = f"format('P%sY%sM%sDT%sH%sM%sS', {parts}, extract(second FROM {name})::numeric)"
        return f"CASE WHEN isfinite({name}) THEN {made} ELSE {name}::text END"
    # Not ::text, which is another thing for inet (adds a mask), char(n) (cuts blanks) and bool.
    # Of a composite one of whose fields is null, neither IS NULL nor IS NOT NULL is true.
    return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END"


def expected(column: Column, text: str | None) -> Any:
    """The canonical JSON value of a column's text; json and jsonb as ``orjson.Fragment``.

    Args:
        column: what the text is of.
        text: what ``select_expression`` gave; None for NULL.

    Raises:
        ValueError: the text is not of that type.
    """
    if text is None:
        return None
    if column.array:
        return _elements(column, parse_array(text))
    return _scalar(column, text)


class Documents:
    """Text rows of a view's root to (id, document), without the view's Spark SQL ``fields``.

    Args:
        view: any resolved view.
    """

    def __init__(self, view: View) -> None:
        by_name = view.table.by_name
        self._key = [(by_name[name], name) for name in view.key]
        self._columns = [(out, source, by_name[source], dict[str, Any]()) for source, out in view.columns]

    def __call__(self, row: Mapping[str, str | None]) -> tuple[str, bytes]:
        """The id and the document of a row: column -> text, for all columns that the view uses."""
        identity = document_id([_plain(expected(column, row[name])) for column, name in self._key])
        return identity, orjson.dumps({o: remembered(column, row[s], known) for o, s, column, known in self._columns})


def remembered(column: Column, text: str | None, known: dict[str, Any]) -> Any:
    """As ``expected``; the first so many distinct texts of a column are not read twice.

    Args:
        column: what the text is of.
        text: what ``select_expression`` gave; None for NULL.
        known: what is remembered for this column.
    """
    if text is None:
        return None
    if text in known:
        return known[text]
    value = expected(column, text)
    if len(text) <= _SHORT and len(known) < _REMEMBERED:
        known[text] = value
    return value


def parse(text: bytes | str) -> Any:
    """Read JSON; what has no limit in Postgres's json and one here becomes its own text instead of an error.

    That is a number beyond a double, half a surrogate pair, and what is nested too deeply to be written again.

    Raises:
        ValueError: not JSON.
    """
    try:
        found = orjson.loads(text)
        if many_levels(text):
            orjson.dumps(found)  # it reads four times as many levels as it writes
        return found
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return read(text, _far_whole, _far)


def inner(text: str) -> Any:
    """Read JSON that is to stand within other JSON: as ``parse``, but never more than ``DEEPEST`` levels of it, which
    leaves room for those around it.

    Raises:
        ValueError: not JSON.
    """
    return read(text, _far_whole, _far) if deep(text) else parse(text)


def deep(text: bytes | str) -> bool:
    """Whether JSON has more than ``DEEPEST`` levels, or is such as ``orjson`` does not read; cheap."""
    if not many_levels(text):
        return False
    try:
        value = orjson.loads(text)
        for _ in range(_WRITTEN - DEEPEST):
            value = [value]
        orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return True
    return False


def exact(text: bytes | str) -> Any:
    """Read JSON to show it: a number that no integer of 64 bits and no double is goes as the text it came as.

    Returns:
        What ``orjson`` writes with every digit; no value to be compared.

    Raises:
        ValueError: not JSON.
    """
    return read(text, _whole_digits, _digits)


def _digits(text: str) -> Any:
    value = float(text)
    return value if math.isfinite(value) and Decimal(text) == Decimal(repr(value)) else orjson.Fragment(text)


def _whole_digits(text: str) -> Any:
    return int(text) if fits(text) else orjson.Fragment(text)


def canonical(document: Any) -> bytes:
    """A document in a form in which equal documents are equal bytes: keys sorted, no blanks.

    Numbers are read as 64-bit integers or doubles: two that differ only beyond that count as equal, because JSON
    parsers on the way (Elasticsearch's clients, Spark) make no difference between them either. A number beyond a double
    is compared by its text.

    Args:
        document: JSON text as bytes, or a value for ``orjson``.

    Raises:
        ValueError: not JSON.
    """
    value = parse(document if isinstance(document, bytes) else orjson.dumps(document))
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _far(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _far_whole(text: str) -> int | float | str:
    return int(text) if fits(text) else _far(text)


def _plain(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, orjson.Fragment) else value


def _elements(column: Column, items: list[Any]) -> list[Any]:
    return [
        None if item is None else _elements(column, item) if isinstance(item, list) else _scalar(column, item)
        for item in items
    ]


def _scalar(column: Column, text: str) -> Any:  # noqa: PLR0911, PLR0912 (one return a type)
    kind = column.base_type
    if column.enum_values is not None:
        return text
    if kind in _INTEGERS:
        return int(text)
    if kind in _FLOATS:
        return text if text in ("NaN", "Infinity", "-Infinity") else float(text)
    if kind in ("bool", "boolean"):
        return {"t": True, "f": False, "true": True, "false": False}[text]
    if kind in ("json", "jsonb"):
        return orjson.Fragment(re.sub(r"[\r\n]", " ", text))
    if kind == "bytea":
        if not text.startswith("\\x"):
            raise ValueError("bytea_output must be hex")
        return base64.b64encode(bytes.fromhex(text[2:])).decode()
    if kind in ("timestamptz", "timestamp with time zone"):
        return _moment(text, zone="Z")
    if kind in ("timestamp", "timestamp without time zone"):
        return _moment(text, zone="")
    if kind == "date":
        return text if "infinity" in text else _day(text)
    if kind in ("timetz", "time with time zone"):
        return _clock_in_utc(text)
    if kind == "interval":
        return _interval(text)
    if kind == "hstore":
        return parse_hstore(text)
    if kind == "point":
        x, y = text.strip("()").split(",")
        return {"x": _coordinate(x), "y": _coordinate(y)}
    if kind == "bit":
        return text == "1" if column.type_name in ("bit", "bit(1)") else text
    return text


def _coordinate(text: str) -> float | str:
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def _day(text: str) -> str:
    """``0044-03-15 BC`` -> ``-0043-03-15``; ``10000-01-01`` -> ``+10000-01-01``."""
    bare = text.removesuffix(" BC")
    year_text, rest = bare.split("-", 1)
    year = 1 - int(year_text) if bare != text else int(year_text)
    if 0 <= year <= 9999:
        return f"{year:04d}-{rest}"
    return f"{'-' if year < 0 else '+'}{abs(year):04d}-{rest}"


def _moment(text: str, zone: str) -> str:
    """``2013-01-01 10:00:00.5+00`` -> ``2013-01-01T10:00:00.5Z``."""
    if "infinity" in text:
        return text
    era = " BC" if text.endswith(" BC") else ""
    day, clock = text.removesuffix(" BC").split(" ")
    if zone:
        if not clock.endswith("+00"):
            raise ValueError("the session's TimeZone must be UTC")
        clock = clock[:-3]
    return f"{_day(day + era)}T{clock}{zone}"


def _interval(text: str) -> str:
    """``P0Y0M1DT2H0M5.500000S`` -> ``P1DT2H5.5S``, as IntervalStyle iso_8601 writes it."""
    if not text.startswith("P"):  # infinity
        return text
    day, clock = (
        "".join(f"{_bare(number)}{unit}" for number, unit in _PART.findall(part) if float(number))
        for part in (text[1:] + "T").split("T")[:2]
    )
    return f"P{day}T{clock}" if clock else f"P{day}" if day else "PT0S"


def _bare(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _clock_in_utc(text: str) -> str:
    """``10:00:00.5+02`` -> ``08:00:00.5Z``."""
    found = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time with a zone")
    hour, minute, second, fraction, sign, *offset = found.groups()
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    if not any(int(part or 0) for part in offset):
        return f"{hour}:{minute}:{second}{fraction or ''}Z"  # 24:00:00 stays what it is
    away = sum(int(part or 0) * unit for part, unit in zip(offset, (3600, 60, 1), strict=True))
    seconds = (seconds - away if sign == "+" else seconds + away) % 86_400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction or ''}Z"
