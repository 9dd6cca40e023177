"""What one sink holds of one view, as verification sees it: (key, version, digest), whatever kind of sink it is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cdc.keys import split_id
from cdc.view import View
from operations.opened import Opened
from sinks.configure import sink_config
from sinks.contract import UNREADABLE, Sink
from sinks.contract import Held as HeldDocument
from sinks.factory import open_sink
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogue import catalog_name
from spark.warehouse import VERSION_COLUMN
from truth.columns import as_read, comparable_rows, readable, with_singles
from truth.digest import digest
from truth.rows import reservoir

if TYPE_CHECKING:
    import pyarrow as pa

# Key types by which Iceberg's reader can look a row up; for others the whole table is read.
LOOKED_UP = frozenset(("int2", "int4", "int8", "text", "varchar", "uuid"))
# A key that a warehouse's table has twice has no digest of its own.
TWICE = b"\xff" * 16


class Holds(NamedTuple):
    """One thing that is there."""

    version: int
    digest: bytes


class Holding:
    """Reads one view of one generation.

    Args:
        opened: the generation.
        view: the view.
    """

    def __init__(self, opened: Opened, view: View) -> None:
        self.opened, self.view = opened, view
        self._part = opened.part
        self.sink: Sink | None = None
        if not opened.warehouse:
            numbers = (opened.number, opened.token)
            self.sink = open_sink(sink_config(opened.sink, self._part, [view], {}, *numbers, opened.pipeline.name))

    def close(self) -> None:
        """Give connections back."""
        if self.sink is not None:
            self.sink.close()

    def scan(self) -> Iterator[tuple[str, Holds]]:
        """Everything."""
        if self.sink is not None:
            yield from map(self._document, self.sink.scan(self.view.name))
            return
        batches = iceberg.scan(
            self._part, catalog_name(self.opened.sink), self.view.name, generation=self.opened.number
        )
        for batch in batches:
            yield from self.rows(batch)

    def get(self, keys: Sequence[str]) -> dict[str, Holds]:
        """What is held under these keys; absent ones are left out."""
        if self.sink is not None:
            return dict(map(self._document, self.sink.get(self.view.name, keys).values()))
        found: dict[str, Holds] = {}
        for batch in self.batches(keys):
            for key, holds in self.rows(batch):
                found[key] = Holds(max(holds.version, found[key].version), TWICE) if key in found else holds
        return {key: found[key] for key in keys if key in found}

    def sample(self, count: int, seed: int) -> list[str]:
        """The keys of so many random things that are there."""
        if self.sink is not None:
            return [held.key for held in self.sink.sample(self.view.name, count, seed)]
        outs = dict(self.view.columns)
        names = [outs[name] for name in self.view.key]
        batches = iceberg.scan(self._part, catalog_name(self.opened.sink), self.view.name, names, self.opened.number)
        keys = (key for key, _ in comparable_rows(self.view, batches))
        return reservoir(keys, count, random.Random(seed))  # noqa: S311 (a sample, not a secret)

    def batches(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of a warehouse's table, batches that hold the rows of these keys and perhaps others."""
        asked = _filter(self.view, keys)
        if asked is None:
            return
        with iceberg.open_catalog(self._part, catalog_name(self.opened.sink)) as opened:
            table = iceberg.load_table(opened, self._part, self.view.name, self.opened.number)
            yield from table.scan(row_filter=asked).to_arrow_batch_reader()

    def _document(self, held: HeldDocument) -> tuple[str, Holds]:
        return held.key, Holds(held.version, digest(readable(self.view, held.document)))

    def documents(self, keys: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """What is held under these keys as JSON reads it; more than one of a key that a warehouse's table has twice."""
        found: dict[str, list[dict[str, Any]]] = {}
        if self.sink is not None:
            held = self.sink.get(self.view.name, keys).values()
            return {one.key: [as_read(readable(self.view, one.document))] for one in held}
        for key, row in comparable_rows(self.view, self.batches(keys)):
            if key in keys:
                found.setdefault(key, []).append(as_read(with_singles(self.view, row)))
        return found

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Holds]]:
        """What a batch of a warehouse's table holds."""
        versions = batch.column(VERSION_COLUMN).to_pylist()
        rows = comparable_rows(self.view, iter([batch]))
        for version, (key, row) in zip(versions, rows, strict=True):
            yield key, Holds(UNREADABLE if version is None else version, digest(with_singles(self.view, row)))


@contextmanager
def holding(opened: Opened, view: View) -> Iterator[Holding]:
    """A ``Holding`` for the time of a block."""
    held = Holding(opened, view)
    try:
        yield held
    finally:
        held.close()


def _filter(view: View, keys: Sequence[str]) -> Any:
    """An expression that lets the rows of these keys through, perhaps others too; None if no row can have them."""
    from pyiceberg.expressions import AlwaysTrue, And, In

    outs = dict(view.columns)
    split = [texts for key in keys if len(texts := split_id(key, len(view.key))) == len(view.key)]
    asked: Any = AlwaysTrue()
    for at, name in enumerate(view.key):
        column = view.table.by_name[name]
        if column.base_type not in LOOKED_UP or column.array:
            continue
        values: set[Any] = {texts[at] for texts in split}
        if column.base_type.startswith("int"):
            if not all(text.lstrip("-").isdecimal() for text in values):
                continue  # somebody else has put in a row without a key
            values = {int(text) for text in values if abs(int(text)) < 1 << 63}
        if not values:
            return None
        asked = And(asked, cast(Any, In)(outs[name], values))  # its annotations describe the serialised form
    return asked
