"""What Spark answered, as Python values: for verification, and apart from how the engine reads the same.

It goes through values one by one, where the engine casts whole columns (cdc/types/plain.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc.types.times import date_text, timestamp_text

if TYPE_CHECKING:
    import pyarrow as pa


class Far(str):
    """Canonical text of a day or a moment outside of the years 1 to 9999, for which Python has no other type."""

    __slots__ = ()


def plain(values: pa.Array) -> list[Any]:
    """The values of a column, a ``real`` with its shortest digits, and ``Far`` where Python's dates end.

    Args:
        values: as Spark gives them: timestamps in microseconds.
    """
    import pyarrow as pa  # a fifth of a second, and not every view has Spark SQL

    if pa.types.is_float32(values.type):
        return list(values.cast(pa.string()).cast(pa.float64()).to_pylist())
    if not _has_reals(values.type):
        try:
            return list(values.to_pylist(maps_as_pydicts="lossy"))
        except OverflowError:
            pass
    return [_plain(value) for value in values]


def _has_reals(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_float32(kind) or any(_has_reals(kind.field(at).type) for at in range(kind.num_fields))


def _plain(value: pa.Scalar) -> Any:
    import pyarrow as pa

    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_map(kind):
        return {_name(key): _plain(item) for key, item in zip(*value.values.flatten(), strict=True)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(item) for item in value.values]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[at]) for at, field in enumerate(kind)}
    return float(value.cast(pa.string()).as_py()) if pa.types.is_float32(kind) else _near_or_far(value)


def _near_or_far(value: pa.Scalar) -> Any:
    import pyarrow as pa

    try:
        return value.as_py()
    except OverflowError:
        if pa.types.is_date(value.type):
            return Far(date_text(value.value))
        return Far(timestamp_text(value.value) + ("Z" if value.type.tz else ""))


def _name(key: pa.Scalar) -> Any:
    """A key of a map: JSON's writer takes no other text than Python's own there."""
    found = _plain(key)
    return str(found) if isinstance(found, Far) else found
