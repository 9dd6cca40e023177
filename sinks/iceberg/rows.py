"""What a warehouse's table holds, row by row, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from cdc.keys import document_id
from cdc.types import canonical_result, merge_fields
from cdc.types.plain import counted_type, plain_values, retyped
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
    columns = [plain_values(batch.column(name)) for name in names]
    versions = batch.column(VERSION_COLUMN).to_pylist()
    keys = _keys(batch, key, _columns(batch, key))
    for identity, version, row in zip(keys, versions, zip(*columns, strict=True), strict=True):
        document = merge_fields(b"{}", dict(zip(names, row, strict=True)))
        yield Held(identity, UNREADABLE if version is None else version, document)


def held_keys(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[str]:
    """The keys of rows, from batches that need to have no other columns."""
    for batch in batches:
        yield from _keys(batch, key, _columns(batch, key))


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [canonical_result(value) for value in _counted(batch.column(name))] for name in names}


def _keys(batch: pa.RecordBatch, key: Sequence[str], columns: dict[str, list[Any]]) -> Iterator[str]:
    texts = [_key_texts(batch.column(name), columns[name]) for name in key]
    return map(document_id, map(list, zip(*texts, strict=True)))


def _key_texts(array: pa.Array, values: list[Any]) -> list[Any]:
    if pa.types.is_temporal(array.type):
        return [canonical_result(value) for value in plain_values(array)]
    return values


def _counted(array: pa.Array) -> list[Any]:
    """Dates as days and timestamps as microseconds, wherever they stand but in the keys of maps."""
    kind = retyped(array.type, counted_type, keys=False)
    return plain_values(array if kind == array.type else array.cast(kind))
