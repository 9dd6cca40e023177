"""The stages of a joined view whose documents are rows of a table: they are handed to the driver, not written.

records ─(child expressions in the JVM)─► live_entries ─► entries ─(fields and where in the JVM)─► one commit

A table has no versioned write of one row. So a task's last act is not a write but its tally, and what it has written to
the row store stays pending until the driver has committed what it made (spark/join/tables.py): killed in between, the
next task of the partition makes the same documents once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc.join.columns import arrow_columns, document_columns
from cdc.join.expressions import quoted
from cdc.join.view import JoinedView
from cdc.keys import split_id
from cdc.letters.deadletter import DeadLetter
from cdc.log import letters as deadletters
from cdc.table_key import TableKey
from cdc.types import REFUSALS
from spark.join.engine import Joiner, Made
from spark.join.later import of_shards
from spark.join.stage import filled, live, this_task, view_of
from spark.reading.entries import Decoded, Entry
from spark.reading.expressions import META, PREFIX
from spark.reading.spec import FlowSpec, unpack
from spark.write import letter_of

# Beside an entry's own columns: what the document shows as a struct, and the texts of its key, which a delete has too.
COLUMNS, KEY = PREFIX + "columns", PREFIX + "key"
# As an entry's partition: no document of this key was ever committed.
FRESH = -2


def rows_schema(view: JoinedView) -> str:
    """DDL of entries on their way to a table: their own columns, the assembled row for Spark SQL, the document's."""
    own = [(PREFIX + name, kind) for name, (_, kind) in META.items()]
    assembled = view.spark_schema() if view.needs_spark else []
    shown = ", ".join(f"{quoted(name)}: {kind}" for name, kind in document_columns(view))
    columns = [*own, *assembled, (KEY, "array<string>"), (COLUMNS, f"struct<{shown}>")]
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)


def live_entries(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records in, applied to the row store; the documents that they touch out (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    yield from _handed(spec, live(packed, batches, _Former(spec)))


def fill_entries(
    attempt: str, once: bool, batch: int, packed: bytes, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same for the second pass of a fill; arguments as ``spark.join.stage.fill_documents``."""
    spec = unpack(packed)
    yield from _handed(spec, filled(attempt, once, batch, packed, batches, _Former(spec)))


def shard_entries(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Shard numbers in, the documents of their roots out."""
    spec = unpack(packed)
    yield from _handed(spec, of_shards(packed, batches, _Former(spec)))


class _Former:
    """Makes entries of a task's documents, numbered: a fill gives all of a slice one version, and the later stands."""

    def __init__(self, spec: FlowSpec) -> None:
        self._spec, self._count = spec, 0

    def __call__(self, joiner: Joiner, made: list[Made], ts_ms: int) -> tuple[list[Entry], list[DeadLetter]]:
        entries, unfit = table_entries(joiner, made, self._count, ts_ms)
        self._count += len(made)
        # Of entries partition and offset tell other things here, and a letter has the place of no one record.
        return entries, [letter_of(self._spec, entry._replace(partition=-1, offset=-1), why) for entry, why in unfit]


def table_entries(
    joiner: Joiner, made: Iterable[Made], count: int = 0, ts_ms: int = 0
) -> tuple[list[Entry], list[tuple[Entry, str]]]:
    """Made documents as entries with rows for ``table_batch``.

    Args:
        joiner: who made them.
        made: the documents.
        count: number of the first.
        ts_ms: the newest source timestamp among the changes that they come of.

    Returns:
        entries, of which ``partition`` is FRESH where there never was a document; and documents that have no place in
        the table's types, with the reason: their entries are deletes, because what was there is no longer true. Of a
        key that the table can't hold nothing was ever there, and there is no entry.
    """
    view, shape, given = joiner.view, joiner.assembler.shape, list(made)
    key, entries, unfit = TableKey.of(view), [], []
    for item, document in zip(given, joiner.documents(given), strict=True):
        part = FRESH if item.new else -1
        entry = Entry(view.name, view.document_of(item.key), item.version, document, "", part, count, ts_ms)
        count += 1
        why = key.unheld(entry.id)
        # Whether a condition takes the row is Spark's to say first (spark/warehouse/keyless.py).
        if why is not None and (item.part is None or not view.where):
            unfit += [(entry, why)] if item.part is not None else []
            continue
        if item.part is not None:
            try:
                assembled = tuple(shape.typed(item.part).values()) if view.needs_spark else ()
                entry = entry._replace(row=(*assembled, shape.columns(item.part)))
            except REFUSALS as error:
                unfit.append((entry, f"a value has no place in the table's columns: {error}"))
                entry = entry._replace(document=None)
        entries.append(entry)
    return entries, unfit


def table_batch(view: JoinedView, entries: list[Entry]) -> pa.RecordBatch:
    """Entries as one Arrow batch of ``rows_schema``."""
    assembled = list(view.arrow_schema()) if view.needs_spark else []
    fields = [*assembled, pa.field(COLUMNS, arrow_columns(view))]
    nulls, many = (None,) * len(fields), len(view.key)
    rows = list(zip(*(entry.row or nulls for entry in entries), strict=True)) or [()] * len(fields)
    arrays = [pa.array([getattr(entry, name) for entry in entries], kind) for name, (kind, _) in META.items()]
    arrays += [pa.array(values, field.type) for values, field in zip(rows[:-1], assembled, strict=True)]
    arrays.append(pa.array([split_id(entry.id, many) for entry in entries], pa.list_(pa.string())))
    arrays.append(pa.array(rows[-1], fields[-1].type))
    names = [*(PREFIX + name for name in META), *(field.name for field in assembled), KEY, COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _handed(spec: FlowSpec, decoded: Iterable[Decoded]) -> Iterator[pa.RecordBatch]:
    """Entries for the driver, and behind each batch a tally, whose id is the attempt that the driver is to end."""
    view, attempt = view_of(spec), str(this_task().number)
    for one in decoded:
        deadletters.send(spec.dead_letters, one.letters)
        yield table_batch(view, [*one.entries, one.tally()._replace(id=attempt)])
