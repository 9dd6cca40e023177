"""What a sink holds under one key, whatever kind of sink it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from cdc.keys import document_id, split_id
from cdc.pipeline import IcebergSink
from cdc.view import View
from operations.opened import Opened
from sinks.configure import sink_config
from sinks.factory import open_sink
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name
from spark.warehouse import VERSION_COLUMN
from truth.columns import as_read, comparable_rows, readable, with_singles

# Key types by which Iceberg's reader can look a row up; for others the whole table is read.
_LOOKED_UP = frozenset(("int2", "int4", "int8", "text", "varchar"))


@dataclass(frozen=True)
class Found:
    """What is there.

    Attributes:
        version: as the sink keeps it.
        document: as JSON reads it; of a warehouse the row, with dates and times as the numbers that it keeps; None if
            there is none.
        near: keys like the one that was asked for, that the sink does hold; only looked for when there is nothing.
    """

    version: int | None = None
    document: dict[str, Any] | None = None
    near: tuple[str, ...] = ()


def held_under(generation: Opened, view: View, key: str) -> Found:
    """Look a document up.

    Args:
        generation: of the sink.
        view: one of its views.
        key: the document's id.

    Raises:
        SinkUnavailable: its server does not answer. SinkRefused: a warehouse has no such table.
    """
    name, sink = generation.sink, generation.part
    if isinstance(sink, IcebergSink):
        return _in_warehouse(sink, catalog_name(name), view, key)
    opened = open_sink(sink_config(name, sink, [view], {}, generation.number, pipeline=generation.pipeline.name))
    try:
        held = opened.get(view.name, [key]).get(key)
        if held is None:
            return Found(near=tuple(opened.get(view.name, list(alike(key, len(view.key))))))
        return Found(held.version, as_read(readable(view, held.document)))
    finally:
        opened.close()


def alike(key: str, columns: int) -> list[str]:
    """Keys that somebody may have meant: another letter case, blanks or zeros too many, parts joined otherwise."""
    bare = key.strip()
    found = [bare, bare.lower(), bare.upper(), bare.capitalize(), bare.lstrip("0"), bare.strip("'\"")]
    for sign in "|,/:; " if columns > 1 else "":
        parts = [part.strip() for part in bare.strip("()").split(sign)]
        if len(parts) == columns:
            found += [document_id(parts), document_id(parts[::-1])]
    return [one for one in dict.fromkeys(found) if one and one != key]


def _in_warehouse(sink: IcebergSink, catalog: str, view: View, key: str) -> Found:
    with iceberg.open_catalog(sink, catalog) as opened:
        table = iceberg.load_table(opened, sink, view.name)
        for batch in _batches(table, view, key):
            versions = batch.column(VERSION_COLUMN).to_pylist()
            for version, (identity, row) in zip(versions, comparable_rows(view, iter([batch])), strict=True):
                if identity == key:
                    return Found(version, as_read(with_singles(view, row)))
    return Found()


def _batches(table: Any, view: View, key: str) -> Iterator[Any]:
    from pyiceberg.expressions import AlwaysTrue, And, EqualTo

    texts, outs = split_id(key, len(view.key)), dict(view.columns)
    if len(texts) != len(view.key):
        return
    asked: Any = AlwaysTrue()
    for name, text in zip(view.key, texts, strict=True):
        column = view.table.by_name[name]
        if column.base_type not in _LOOKED_UP or column.array:
            continue
        value: str | int = text
        if column.base_type.startswith("int"):
            if not text.lstrip("-").isdecimal():
                return
            value = int(text)
        asked = And(asked, cast(Any, EqualTo)(outs[name], value))  # its annotations describe the serialised form
    yield from table.scan(row_filter=asked).to_arrow_batch_reader()
