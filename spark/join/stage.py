"""The stages of a joined view's flow, as ``mapInArrow`` functions: no shuffle, all effects in the executors.

records ─(child expressions in the JVM, if aggregates have any)─► apply_joined ─► summary
records ─…─► joined_rows ─(fields and where in the JVM)─► spark.write.apply_entries ─► summary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import cast

import pyarrow as pa
from pyspark import TaskContext

from cdc.errors import UnavailableValue
from cdc.join.incoming import Incoming
from cdc.join.versions import row_of
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from cdc.types import REFUSALS
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.join.engine import Joiner, Made
from spark.join.maintain import Refuse
from spark.join.records import RecordReader
from spark.join.task import Task
from spark.join.timely import Timely
from spark.reading.entries import Decoded, Entry
from spark.reading.expressions import entry_batch
from spark.reading.spec import FlowSpec, unpack
from spark.write import NEW, apply_decoded, letter_of

Make = Callable[[Sequence[Incoming], Task, Refuse], Iterator[list[Made]]]
# Made documents, with the newest source timestamp, as entries, and as letters those that can't be any.
Form = Callable[[Joiner, list[Made], int], tuple[list[Entry], list[DeadLetter]]]


@lru_cache(maxsize=8)
def joiner_of(packed: bytes) -> Joiner:
    """The worker's engine and its connections, across batches."""
    spec = unpack(packed)
    _filler.cache_clear()
    return Joiner(view_of(spec), open_store(spec), epoch=spec.version_epoch, arranged=spec.arranged)


@lru_cache(maxsize=2)
def _filler(packed: bytes, attempt: str) -> Joiner:
    """The same for a fill, which remembers rows."""
    spec = unpack(packed)
    return Joiner(view_of(spec), open_store(spec), epoch=spec.version_epoch, filling=True, arranged=spec.arranged)


def begin(joiner: Joiner) -> Joiner:
    """A task begins: from now on its worker must not be away for long (sinks/awake.py)."""
    cast(RedisRowStore, joiner.store).awake.begin()
    return joiner


def this_task(batch: int = 0) -> Task:
    """The attempt that this worker makes; ``batch`` is the number of a fill's slice."""
    context = TaskContext.get()
    assert context is not None
    return Task(batch, context.taskAttemptId())


def view_of(spec: FlowSpec) -> JoinedView:
    """The one view of a joined flow."""
    return cast(JoinedView, spec.view)


def open_store(spec: FlowSpec, give_up_seconds: float | None = None) -> RedisRowStore:
    """The flow's row store, which waits for its server as long as the flow does, or so many seconds."""
    assert spec.row_store is not None
    patience = {} if give_up_seconds is None else {"give_up_seconds": give_up_seconds}
    return RedisRowStore(StoreSettings(**{**spec.row_store, **patience}))


def apply_joined(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records in, documents written, summary out: a view without Spark SQL over the assembled row."""
    yield from apply_decoded(packed, live(packed, batches))


def joined_rows(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records in, documents with their typed rows out, for Spark SQL."""
    spec = unpack(packed)
    for decoded in live(packed, batches):
        yield entry_batch(spec, view_of(spec), decoded)


def load_joined(batch: int, packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records into the row store, no documents: the first pass of a fill; ``batch`` is the slice's number."""

    def decoded() -> Iterator[Decoded]:
        spec, joiner = unpack(packed), begin(joiner_of(packed))
        reader, task = _reader(spec, joiner), this_task(batch)
        for records in batches:
            if records.num_rows:
                taken = reader.read(records)
                refused = _Refused(reader)
                joiner.load(taken.changes, task, refused)
                yield Decoded([], [*taken.letters, *refused.letters], taken.records)

    yield from apply_decoded(packed, decoded())


def fill_documents(
    attempt: str, once: bool, batch: int, packed: bytes, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The root's records in, their documents written: the second pass of a fill.

    Args:
        attempt: which fill; what is remembered of rows is of no other.
        once: whether the root's rows come with these records, or are in the store already.
        batch: the slice's number.
        packed: the flow's spec.
        batches: records.
    """
    yield from apply_decoded(packed, filled(attempt, once, batch, packed, batches))


def fill_rows(
    attempt: str, once: bool, batch: int, packed: bytes, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """As ``fill_documents``, with typed rows out, for Spark SQL."""
    spec = unpack(packed)
    for decoded in filled(attempt, once, batch, packed, batches):
        yield entry_batch(spec, view_of(spec), decoded)


def _reader(spec: FlowSpec, joiner: Joiner) -> RecordReader:
    return RecordReader(spec, joiner.view, Timely(joiner.store, spec.compaction_lag_seconds))


class _Refused:
    """Collects changes that lack a value which is nowhere, as dead letters."""

    def __init__(self, reader: RecordReader) -> None:
        self.reader = reader
        self.letters: list[DeadLetter] = []

    def __call__(self, change: Incoming, error: UnavailableValue) -> None:
        at = (change.topic, change.stamp.partition, change.stamp.offset)
        # Who looks for letters of a row knows its key, and no version's.
        versions = self.reader.view.layout.tables[change.table].versions
        self.letters.append(self.reader.letter(row_of(change.key) if versions else change.key, error, at))


def documents_form(packed: bytes) -> Form:
    """As a sink of documents takes them."""

    def form(joiner: Joiner, made: list[Made], ts_ms: int) -> tuple[list[Entry], list[DeadLetter]]:
        entries, unfit = entries_of(joiner, made, ts_ms)
        return entries, [letter_of(unpack(packed), entry, why) for entry, why in unfit]

    return form


def live(packed: bytes, batches: Iterator[pa.RecordBatch], form: Form | None = None) -> Iterator[Decoded]:
    """Records applied to the row store, and the entries that come of it; documents if no other form is asked for."""
    joiner = begin(joiner_of(packed))
    how = joiner.process, form or documents_form(packed)
    yield from _documents(joiner, how, this_task(), packed, batches)


def filled(
    attempt: str,
    once: bool,
    batch: int,
    packed: bytes,
    batches: Iterator[pa.RecordBatch],
    form: Form | None = None,
) -> Iterator[Decoded]:
    """The same for the second pass of a fill; arguments as ``fill_documents``."""
    joiner, task = begin(_filler(packed, attempt)), this_task(batch)
    form = form or documents_form(packed)
    if once:
        yield from _documents(joiner, (joiner.fill, form), task, packed, batches)
        return
    reader = RecordReader(unpack(packed), joiner.view)
    for records in batches:
        if records.num_rows:
            for made in joiner.build(reader.keys(records), task):
                yield Decoded(*form(joiner, made, 0), 0)


def _documents(
    joiner: Joiner, how: tuple[Make, Form], task: Task, packed: bytes, batches: Iterator[pa.RecordBatch]
) -> Iterator[Decoded]:
    (make, form), reader = how, _reader(unpack(packed), joiner)
    for batch in batches:
        if not batch.num_rows:
            continue
        taken = reader.read(batch)
        refused = _Refused(reader)
        records = taken.records
        for made in make(taken.changes, task, refused):
            yield Decoded(*form(joiner, made, taken.ts_ms), records)
            records = 0
        if records or taken.letters or refused.letters:
            yield Decoded([], [*taken.letters, *refused.letters], records)


def entries_of(joiner: Joiner, made: list[Made], ts_ms: int) -> tuple[list[Entry], list[tuple[Entry, str]]]:
    """Made documents as entries, with typed rows if Spark SQL wants them.

    Returns:
        entries; and documents that have no place in Spark SQL's types, with the reason: their entries are deletes, as
        where an expression fails, because what was there is no longer true. Of a new one there is no entry.
    """
    view, shape = joiner.view, joiner.assembler.shape
    entries: list[Entry] = []
    unfit: list[tuple[Entry, str]] = []
    for item, document in zip(made, joiner.documents(made), strict=True):
        offset = NEW if item.new else -1
        entry = Entry(view.name, view.document_of(item.key), item.version, document, "", -1, offset, ts_ms)
        if item.part is not None and view.needs_spark:
            try:
                entry = entry._replace(row=tuple(shape.typed(item.part).values()))
            except REFUSALS as error:
                unfit.append((entry, f"a value has no place in Spark SQL's types: {error}"))
                if item.new:
                    continue
                entry = entry._replace(document=None)
        entries.append(entry)
    return entries, unfit
