"""Arrow's columns of what Spark computed as Python values, where Python and Arrow disagree with Postgres.

Python's dates end with the year 9999 and know no year before 1: Spark's do not, and one such value must not end the
flow of all the others. Arrow gives a ``real`` as the double that it is, 1.100000023841858 for 1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cdc.types.times import date_text, timestamp_text

# What to make of a type that has no others in it.
_Made = Callable[[pa.DataType], pa.DataType]


class NoText(str):
    """In the place of a value with a text that is not UTF-8: Spark casts any bytes to a string."""

    __slots__ = ()


NO_TEXT = NoText("(a text that is not UTF-8)")


def plain_values(array: pa.Array) -> list[Any]:
    """The values of a column, as ``canonical_result`` takes them.

    A ``real`` has its shortest digits. Dates and timestamps are Python's own; in a column that has one which Python
    can't hold, all of them are canonical text. Maps are dicts, the empty one too. A value that has a text in it which
    is none is ``NO_TEXT``.

    Args:
        array: of any type that Spark or Iceberg gives; timestamps in microseconds.
    """
    digits = _with_digits(array.type)
    if digits is not None:
        array = array.cast(digits[0]).cast(digits[1])
    try:
        return _values(array)
    except UnicodeDecodeError:  # one such row must not end the flow of all the others
        return [_value(array.slice(at, 1)) for at in range(len(array))]


def _value(one: pa.Array) -> Any:
    """The only value of an array."""
    try:
        return _values(one)[0]
    except UnicodeDecodeError:
        return NO_TEXT


def _values(array: pa.Array) -> list[Any]:
    # Once it is told what maps are to be, PyArrow asks each value for itself, of whichever type: twenty times as dear.
    maps = "lossy" if pa.types.is_nested(array.type) else None
    try:
        values: list[Any] = array.to_pylist(maps_as_pydicts=maps)
    except OverflowError:
        kind = array.type
        counted = array.cast(retyped(kind, counted_type)).to_pylist(maps_as_pydicts="lossy")
        return [_written(kind, value) for value in counted]
    return values


@lru_cache(maxsize=1_024)
def _with_digits(kind: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """The type with texts in the place of reals, and then doubles; None of a type without reals."""
    texts = retyped(kind, lambda one: pa.string() if pa.types.is_float32(one) else one)
    doubles = retyped(kind, lambda one: pa.float64() if pa.types.is_float32(one) else one)
    return None if texts == kind else (texts, doubles)


def counted_type(kind: pa.DataType) -> pa.DataType:
    """Of a date the type of its days since 1970, of a timestamp that of its microseconds; any other as it is."""
    return pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


def retyped(kind: pa.DataType, made: _Made, *, keys: bool = True) -> pa.DataType:
    """A type with each plain one in it replaced, wherever it stands: ``Array.cast`` takes it.

    Args:
        kind: the type.
        made: the type in the place of a plain one.
        keys: those of maps too.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(retyped(field.type, made, keys=keys)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_field.with_type(retyped(kind.value_type, made, keys=keys))
        return pa.list_(inner) if pa.types.is_list(kind) else pa.large_list(inner)
    if pa.types.is_map(kind):
        key = retyped(kind.key_type, made, keys=keys) if keys else kind.key_type
        item = kind.item_field.with_type(retyped(kind.item_type, made, keys=keys))
        return pa.map_(kind.key_field.with_type(key), item)
    return made(kind)


def _written(kind: pa.DataType, value: Any) -> Any:
    """A value of ``counted_type``, with the text of what was counted."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _written(field.type, value[field.name]) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_written(kind.value_type, item) for item in value]
    if pa.types.is_map(kind):
        return {_written(kind.key_type, one): _written(kind.item_type, item) for one, item in value.items()}
    if pa.types.is_date32(kind):
        return date_text(value)
    return timestamp_text(value) + ("Z" if kind.tz else "") if pa.types.is_timestamp(kind) else value
