"""What DuckDB gives, as documents would have it: exact digits as text, dates and times as ISO text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc.types import canonical_result
from cdc.types.times import canonical_date, canonical_timestamp


def plain_rows(batch: pa.RecordBatch) -> list[Sequence[Any]]:
    """The rows of a batch as JSON values: whole numbers as numbers, decimals as text with all of their digits."""
    return list(zip(*(plain_column(column) for column in batch.columns), strict=True))


def plain_column(array: pa.Array) -> list[Any]:
    """The values of a column."""
    kind = array.type
    if pa.types.is_date(kind):  # Python's dates end with the year 9999, Postgres's do not
        days = array.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return [None if day is None else canonical_date(day) for day in days]
    if pa.types.is_timestamp(kind):
        micros = pc.cast(array.cast(pa.timestamp("us", kind.tz), safe=False), pa.int64()).to_pylist()
        zone = "Z" if kind.tz else ""
        return [None if value is None else canonical_timestamp(value) + zone for value in micros]
    if pa.types.is_decimal(kind) and kind.scale == 0:  # DuckDB's sums of whole numbers
        return [None if value is None else int(value) for value in array.to_pylist()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner, ends = plain_column(array.values), array.offsets.to_pylist()
        there = array.is_valid().to_pylist()
        return [inner[start:end] if one else None for start, end, one in zip(ends[:-1], ends[1:], there, strict=True)]
    return [_plain(value) for value in array.to_pylist()]


def _plain(value: Any) -> Any:
    try:
        return canonical_result(value)
    except TypeError:  # an interval of months, say
        return str(value)
