"""From Kafka records to rows of history: every event of a table, typed, in the order of its partition."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from cdc.errors import DecodeError
from cdc.join.expressions import quoted
from cdc.letters.deadletter import DeadLetter
from cdc.log import letters as deadletters
from cdc.records import history
from cdc.records.change import Change, Op
from cdc.records.debezium_json import Decoder, transaction_of
from cdc.records.history import COLUMNS
from cdc.types.arrow import arrow_of_spark
from cdc.view import View
from spark.reading.entries import OWN_TOMBSTONE, key_row
from spark.reading.spec import FlowSpec, unpack


def history_ddl(view: View) -> str:
    """DDL of a table's rows: its own columns, then ours."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in [*view.spark_schema(), *COLUMNS.items()])


def history_schema(view: View) -> pa.Schema:
    """The same in Arrow."""
    ours = [pa.field(name, arrow_of_spark(kind)) for name, kind in COLUMNS.items()]
    return pa.schema([*view.arrow_schema(), *ours])


class HistoryDecoder:
    """Turns records of one topic into rows; one a task, whose records are one partition's or several's.

    A delete's own tombstone adds nothing. One without its delete does: compaction has removed that, and without the
    tombstone the row would stand for ever. It takes the place of the event before it in its partition; where none was
    read with it, of the one behind it.

    Args:
        spec: of one topic.
        source: identity of the source, for a column.
        starts: partition -> where the slice begins: the tombstone of a delete that the slice before has read is there.
        begins: where the table's history begins (LSN in bytes): what is older is of rows under a key of another type,
            of which no newer record tells that they are gone.
    """

    def __init__(self, spec: FlowSpec, source: str, starts: Mapping[int, int], begins: int = 0) -> None:
        self.spec, self._source, self._starts, self._begins = spec, source, starts, begins
        (self.view,) = spec.views.values()
        (self._decoder,) = spec.decoders().values()
        self._deleted: dict[bytes, int] = {}
        self._last: dict[int, tuple[int, int, int]] = {}
        self._early: dict[int, list[Change]] = {}  # tombstones that nothing stands before

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decode records (key, value, topic, partition, offset); what can't be decoded becomes a dead letter.

        Raises:
            ShapeUnknown: a record is newer than what is known of the table (transient).
            KafkaError: the dead letters were not taken.
        """
        rows: list[tuple[Any, ...]] = []
        letters: list[DeadLetter] = []
        columns = (batch.column(name).to_pylist() for name in ("key", "value", "topic", "partition", "offset"))
        for key, value, topic, partition, offset in zip(*columns, strict=True):
            try:
                change = self._decoder.decode(key, value, topic, partition, offset)
                if change.op is Op.TRUNCATE or (change.op is Op.TOMBSTONE and self._own(key, partition, offset)):
                    continue
                if change.op is not Op.TOMBSTONE and change.position - self._decoder.base < self._begins:
                    if change.op is Op.DELETE:
                        self._deleted[key or b""] = offset
                    continue
                if change.op is Op.TOMBSTONE and partition not in self._last:
                    self._early.setdefault(partition, []).append(change)
                    continue
                rows.append(self._row(change, key or b""))
                rows += [self._row(one, b"") for one in self._early.pop(partition, ())]
            except DecodeError as error:
                letters.append(_letter(self.spec, self._decoder, error, (key, value, topic, partition, offset)))
        deadletters.send(self.spec.dead_letters, letters)
        return _batch(self.view, rows)

    def rest(self) -> pa.RecordBatch:
        """Tombstones of partitions that had nothing else."""
        return _batch(self.view, [self._row(one, b"") for early in self._early.values() for one in early])

    def _own(self, key: bytes | None, partition: int, offset: int) -> bool:
        deleted = self._deleted.pop(key or b"", None)
        begins = self._starts.get(partition, 0)
        return (deleted is not None and offset - deleted <= OWN_TOMBSTONE) or 0 < begins > offset - OWN_TOMBSTONE

    def _row(self, change: Change, key: bytes) -> tuple[Any, ...]:
        values, missing = self._values(change)
        if change.op is Op.TOMBSTONE:
            base = self._decoder.base
            (position, after, ts_ms), transaction = self._last.get(change.partition, (base, base, 0)), None
        else:
            source = self._decoder.source
            position = change.position
            after = history.after_of(source, self._decoder.base, self._decoder.snapshot_lsn)
            transaction = transaction_of(source)
            ts_ms = change.ts_ms
            self._last[change.partition] = position, after, ts_ms
        if change.op is Op.DELETE:
            self._deleted[key] = change.offset
        at = ts_ms * 1000 if ts_ms else None
        ours = (history.op_of(change), position, after, transaction, at, change.partition, change.offset)
        return (*values, *ours, self._source, missing)

    def _values(self, change: Change) -> tuple[tuple[Any, ...], list[str] | None]:
        """A row's values, and the columns whose value the event does not hold."""
        if change.after is None:
            return key_row(self.view, change), None
        if not change.unavailable:
            try:
                return self.view.typed_row(change), None
            except DecodeError as error:
                self._decoder.doubt(change, error)
                raise
        after = {name: value for name, value in change.after.items() if name not in change.unavailable}
        row = self.view.typed_row(change._replace(after=after, unavailable=()))
        return row, sorted(change.unavailable)


def _batch(view: View, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    schema = history_schema(view)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _letter(spec: FlowSpec, decoder: Decoder, error: DecodeError, record: tuple[Any, ...]) -> DeadLetter:
    key, value, topic, partition, offset = record
    position, transaction = decoder.told(value)
    return DeadLetter(
        spec.sink,
        "",
        "" if key is None else key.decode("utf-8", "replace"),
        position,
        f"{error.what}; {error.fix}" if error.fix else error.what,
        value,
        topic,
        partition,
        offset,
        at_ms=int(time.time() * 1000),
        generation=spec.generation,
        table=decoder.table.qualified,
        tx_id=transaction,
    )


def history_rows(
    packed: bytes, source: str, starts: Mapping[int, int], begins: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Kafka records of one topic in, rows of its history out (a ``mapInArrow`` function)."""
    decoder = HistoryDecoder(unpack(packed), source, starts, begins)
    for batch in batches:
        if batch.num_rows:
            yield decoder.decode(batch)
    yield decoder.rest()
