"""What a warehouse's table holds, row by row, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc.keys import document_id
from cdc.types import canonical_result, merge_fields
from cdc.types.times import canonical_date, canonical_timestamp
from sinks.contract import UNREADABLE, Held

# The column of each row's position, packed as other sinks' versions are.
VERSION_COLUMN = "_hw_version"
# The column of each row's id, in a table of windows or matches: it is not among what their documents say.
ID_COLUMN = "_hw_id"


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


def held_documents(batch: pa.RecordBatch, key: Sequence[str]) -> Iterator[Held]:
    """Each row of a batch as the document that other sinks hold of it.

    Args:
        batch: of the table, with all its columns.
        key: names of the key's columns, in the key's order.
    """
    names = [name for name in batch.schema.names if name not in (VERSION_COLUMN, ID_COLUMN)]
    kinds = [batch.schema.field(name).type for name in names]
    columns = [_counted(batch.column(name)).to_pylist(maps_as_pydicts="lossy") for name in names]
    versions = batch.column(VERSION_COLUMN).to_pylist()
    keys = _keys(batch, key, _columns(batch, key))
    for identity, version, row in zip(keys, versions, zip(*columns, strict=True), strict=True):
        shown = {name: _shown(kind, value) for name, kind, value in zip(names, kinds, row, strict=True)}
        yield Held(identity, UNREADABLE if version is None else version, merge_fields(b"{}", shown))


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


def _counted(array: pa.Array) -> pa.Array:
    """Dates as days and timestamps as microseconds, wherever they stand."""
    kind = _counted_type(array.type)
    return array if kind == array.type else array.cast(kind)


def _counted_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_counted_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_field.with_type(_counted_type(kind.value_type))
        return pa.list_(inner) if pa.types.is_list(kind) else pa.large_list(inner)
    if pa.types.is_map(kind):
        return pa.map_(_counted_type(kind.key_type), _counted_type(kind.item_type))
    return kind


def _shown(kind: pa.DataType, value: Any) -> Any:
    """What a document says in the place of a value of ``_counted``."""
    if value is None:
        return None
    if not pa.types.is_nested(kind):
        return _moment(kind, value)
    if pa.types.is_struct(kind):
        return {field.name: _shown(field.type, value[field.name]) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_shown(kind.value_type, item) for item in value]
    assert pa.types.is_map(kind)
    return {_shown(kind.key_type, one): _shown(kind.item_type, item) for one, item in value.items()}


def _moment(kind: pa.DataType, value: Any) -> Any:
    """A day or a moment as text; anything else as it is."""
    if pa.types.is_date32(kind):
        return canonical_date(value)
    if pa.types.is_timestamp(kind):
        return canonical_timestamp(value) + ("Z" if kind.tz else "")
    return value


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
