"""What DuckDB gives, as documents would have it: exact digits as text, dates and times as ISO text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc.types import canonical_result
from cdc.types.times import canonical_date, canonical_timestamp
from cdc.types.values import interval


def plain_rows(batch: pa.RecordBatch) -> list[Sequence[Any]]:
    """The rows of a batch as JSON values: whole numbers of 64 bits as numbers, decimals as text with all digits."""
    return list(zip(*(plain_column(column) for column in batch.columns), strict=True))


def plain_column(array: pa.Array) -> list[Any]:
    """The values of a column."""
    kind = array.type
    if pa.types.is_date(kind):  # Python's dates end with the year 9999, Postgres's do not
        days = array.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return [_moment(canonical_date, day) for day in days]
    if pa.types.is_timestamp(kind):
        micros = pc.cast(array.cast(pa.timestamp("us", kind.tz), safe=False), pa.int64()).to_pylist()
        zone = "Z" if kind.tz else ""
        return [_moment(canonical_timestamp, value, zone) for value in micros]
    if pa.types.is_float32(kind):  # 1.1 as Postgres and the other sinks have it, not 1.100000023841858
        array = array.cast(pa.string()).cast(pa.float64())
    if pa.types.is_decimal(kind) and kind.scale == 0:  # DuckDB's sums of whole numbers
        return [None if value is None else _whole(int(value)) for value in array.to_pylist()]
    return _nested(array, kind) if pa.types.is_nested(kind) else [_plain(value) for value in array.to_pylist()]


def _nested(array: pa.Array, kind: pa.DataType) -> list[Any]:
    if pa.types.is_fixed_size_list(kind):
        return plain_column(array.cast(pa.list_(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner, ends = plain_column(array.values), array.offsets.to_pylist()
        there = array.is_valid().to_pylist()
        return [inner[start:end] if one else None for start, end, one in zip(ends[:-1], ends[1:], there, strict=True)]
    if pa.types.is_struct(kind) and kind.num_fields:
        names, fields = [field.name for field in kind], map(plain_column, array.flatten())
        rows = zip(array.is_valid().to_pylist(), zip(*fields, strict=True), strict=True)
        return [dict(zip(names, row, strict=True)) if one else None for one, row in rows]
    return [_plain(value) for value in array.to_pylist()]


def _whole(value: int) -> int | str:
    """A number where JSON's readers take it for what it is, and ours writes it; else its digits."""
    return value if -(1 << 63) <= value < 1 << 64 else str(value)


def _moment(text: Callable[[int], str], number: int | None, zone: str = "") -> str | None:
    """A day or a moment; what is beyond all that can be written is DuckDB's infinity."""
    if number is None:
        return None
    try:
        found = text(number)
    except ValueError:
        found = "infinity" if number > 0 else "-infinity"
    return found if found.endswith("infinity") else found + zone


def _plain(value: Any) -> Any:
    try:
        return _interval(value) if isinstance(value, pa.MonthDayNano) else canonical_result(value)
    except TypeError:
        return str(value)


def _interval(value: pa.MonthDayNano) -> str:
    """A calendar's interval as a column of that type is written; its parts may have different signs."""
    (years, months), days = _parts(value.months, 12), value.days
    minutes, seconds = _parts(_parts(value.nanoseconds, 1000)[0], 60_000_000)
    hours, minutes = _parts(minutes, 60)
    sign = "-" if seconds < 0 else ""
    whole, micros = divmod(abs(seconds), 1_000_000)
    return interval(f"P{years}Y{months}M{days}DT{hours}H{minutes}M{sign}{whole}.{micros:06d}S")


def _parts(number: int, size: int) -> tuple[int, int]:
    """How many whole ones of a size, and the rest; both with the number's sign."""
    whole, rest = divmod(abs(number), size)
    return (-whole, -rest) if number < 0 else (whole, rest)
