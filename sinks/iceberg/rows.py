"""What a warehouse's table holds, row by row, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc.keys import document_id
from cdc.types import canonical_result
from sinks.contract import UNREADABLE, Held

# The column of each row's position, packed as other sinks' versions are.
VERSION_COLUMN = "_hw_version"


def held_rows(batch: pa.RecordBatch, key: Sequence[str]) -> Iterator[Held]:
    """Each row of a batch, with its key and its version.

    Dates are days and timestamps microseconds since 1970, because Python's own end with the year 9999.

    Args:
        batch: of the table, with all its columns.
        key: names of the key's columns, in the key's order.
    """
    columns = _columns(batch, [name for name in batch.schema.names if name != VERSION_COLUMN])
    versions = batch.column(VERSION_COLUMN).to_pylist()
    keys = _keys(batch, key, columns)
    for identity, version, row in zip(keys, versions, zip(*columns.values(), strict=True), strict=True):
        yield Held(identity, UNREADABLE if version is None else version, (dict(zip(columns, row, strict=True)),))


def held_keys(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[str]:
    """The keys of rows, from batches that need to have no other columns."""
    for batch in batches:
        yield from _keys(batch, key, _columns(batch, key))


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [canonical_result(value) for value in _numbers(batch.column(name)).to_pylist()] for name in names}


def _keys(batch: pa.RecordBatch, key: Sequence[str], columns: dict[str, list[Any]]) -> Iterator[str]:
    texts = [_key_texts(batch.column(name), columns[name]) for name in key]
    return map(document_id, map(list, zip(*texts, strict=True)))


def _key_texts(array: pa.Array, values: list[Any]) -> list[Any]:
    if pa.types.is_temporal(array.type):
        return [canonical_result(value) for value in array.to_pylist()]
    return values


def _numbers(array: pa.Array) -> pa.Array:
    """Dates as days and timestamps as microseconds, in arrays and structs too."""
    kind = array.type
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return pc.cast(array.cast(pa.timestamp("us", kind.tz)), pa.int64())
    if pa.types.is_struct(kind):
        fields = [_numbers(field) for field in array.flatten()]  # those of a struct that is null are null
        if [field.type for field in fields] != [field.type for field in kind]:
            names = [field.name for field in kind]
            return pa.StructArray.from_arrays(fields, names, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _numbers(array.values)
        if inner.type != array.values.type:
            return type(array).from_arrays(array.offsets, inner, mask=array.is_null())
    return array
