"""From Kafka records to rows of history: every event of a table, typed, in the order of its partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from cdc.errors import DecodeError
from cdc.join.expressions import quoted
from cdc.letters.deadletter import DeadLetter
from cdc.log import letters as deadletters
from cdc.records import history
from cdc.records.change import Change, Op
from cdc.records.debezium_json import WRITTEN, transaction_of
from cdc.records.history import COLUMNS
from cdc.types import REFUSALS
from cdc.types.arrow import arrow_of_spark
from cdc.view import View
from spark.reading.entries import OWN_TOMBSTONE, key_row
from spark.reading.letters import record_letter
from spark.reading.record import records_of
from spark.reading.spec import FlowSpec, unpack


def history_ddl(view: View) -> str:
    """DDL of a table's rows: its own columns, then ours."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in [*view.spark_schema(), *COLUMNS.items()])


def history_schema(view: View) -> pa.Schema:
    """The same in Arrow."""
    ours = [pa.field(name, arrow_of_spark(kind)) for name, kind in COLUMNS.items()]
    return pa.schema([*view.arrow_schema(), *ours])


class PlaceUnknown(Exception):
    """Tombstones stand behind nothing that was read with them: where is told by what their table holds already."""


class Place(NamedTuple):
    """What a tombstone is given of the events before it, none of which it is older than.

    Attributes:
        position: packed; 0 as long as nothing says it.
        after: packed.
        at: when it was committed, µs since 1970 UTC; 0 where that is not known.
    """

    position: int = 0
    after: int = 0
    at: int = 0

    def with_(self, other: Place) -> Place:
        """Behind both."""
        return Place(*map(max, self, other))


class HistoryDecoder:
    """Turns records of one topic into rows; one a task, whose records are one partition's or several's.

    A delete's own tombstone adds nothing. One without its delete does: compaction has removed that, and without the
    tombstone the row would stand for ever. It takes the place of the event before it in its partition; where none was
    read with it, of the one behind it; where there is neither, it is behind all that the table holds of the partition.
    So is one at the beginning of a slice, whose delete the slice before may have had: a second delete of a row that is
    gone changes no cut and no version, and one too few leaves it there for good.

    Args:
        spec: of one topic.
        source: identity of the source, for a column.
        starts: partition -> where the slice begins, of those of which something may have been read before.
        begins: where the table's history begins (LSN in bytes): what is older is of rows under a key of another type,
            of which no newer record tells that they are gone.
        held: partition -> the place of what the table holds of it; None if nobody has looked yet.
    """

    def __init__(
        self,
        spec: FlowSpec,
        source: str,
        starts: Mapping[int, int],
        begins: int = 0,
        held: Mapping[int, Place] | None = None,
    ) -> None:
        self.spec, self._source, self._starts, self._begins, self._held = spec, source, starts, begins, held
        self.view = spec.view
        (self._decoder,) = spec.decoders().values()
        self._deleted: dict[bytes, int] = {}
        self._last: dict[int, Place] = {}
        self._early: dict[int, list[Change]] = {}  # tombstones that nothing stands before

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decode records (key, value, topic, partition, offset); what can't be decoded becomes a dead letter.

        Raises:
            ShapeUnknown: a record is newer than what is known of the table (transient).
            KafkaError: the dead letters were not taken.
        """
        rows: list[tuple[Any, ...]] = []
        letters: list[DeadLetter] = []
        for key, value, topic, partition, offset in records_of(batch):
            try:
                change = self._decoder.decode(key, value, topic, partition, offset)
                if change.op is Op.TRUNCATE or (change.op is Op.TOMBSTONE and self._own(key, offset)):
                    continue
                if change.op is Op.TOMBSTONE and self._begins and not self._fits(change):
                    continue
                if change.op is not Op.TOMBSTONE and change.position - self._decoder.base < self._begins:
                    if change.op is Op.DELETE:
                        self._deleted[key or b""] = offset
                    continue
                if change.op is Op.TOMBSTONE and not self._stands(partition):
                    self._early.setdefault(partition, []).append(change)
                    continue
                rows.append(self._row(change, key or b""))
                if self._stands(partition):
                    rows += [self._row(one, b"") for one in self._early.pop(partition, ())]
            except DecodeError as error:
                named, at = self._decoder.letter_key(key, value), (topic, partition, offset)
                letters.append(record_letter(self.spec, "", named, self._decoder, error, value, at))
        deadletters.send(self.spec.dead_letters, letters)
        return _batch(self.view, rows)

    def rest(self) -> pa.RecordBatch:
        """Tombstones of partitions that had nothing else. Of a partition of which the table holds nothing they say
        nothing: the rows of before that they end are in no history.

        Raises:
            PlaceUnknown: they need to know what the table holds.
        """
        early = {part: changes for part, changes in self._early.items() if self._starts.get(part, 0) > 0}
        if early and self._held is None:
            raise PlaceUnknown(f"of partitions {sorted(early)}")
        rows = []
        for part, changes in early.items():
            if held := (self._held or {}).get(part):
                # A commit later: a cut that has all of before the slice is right, and has the rows still.
                behind = held._replace(after=held.after + 1)
                self._last[part] = behind.with_(self._last.get(part, behind))
                rows += [self._row(one, b"") for one in changes]
        return _batch(self.view, rows)

    def _fits(self, change: Change) -> bool:
        """Whether a row with a tombstone's key may be in a history that began anew: under a key of another type, of
        which compaction has left the tombstone alone, it ends what no table here has held."""
        try:
            key_row(self.view, change)
        except REFUSALS:
            return False
        return True

    def _own(self, key: bytes | None, offset: int) -> bool:
        deleted = self._deleted.pop(key or b"", None)
        return deleted is not None and offset - deleted <= OWN_TOMBSTONE

    def _stands(self, partition: int) -> bool:
        """Whether it is known how far the rows of a partition have come."""
        return partition in self._last and self._last[partition].position > 0

    def _row(self, change: Change, key: bytes) -> tuple[Any, ...]:
        values, missing = self._values(change)
        if change.op is Op.TOMBSTONE:
            (position, after, at), transaction = self._last[change.partition], None
        else:
            source = self._decoder.source
            position = change.position
            after = history.after_of(source, self._decoder.base, self._decoder.snapshot_lsn)
            transaction = transaction_of(source)
            at = change.ts_ms * 1000
            # A delete that we have written stands where its row was last: others' rows have come further.
            place = Place(0 if source.get(WRITTEN) else position, after, at)
            self._last[change.partition] = place.with_(self._last.get(change.partition, place))
        if change.op is Op.DELETE:
            self._deleted[key] = change.offset
        ours = (history.op_of(change), position, after, transaction, at or None, change.partition, change.offset)
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


def history_rows(
    packed: bytes,
    source: str,
    starts: Mapping[int, int],
    begins: int,
    held: Mapping[int, Place] | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Kafka records of one topic in, rows of its history out (a ``mapInArrow`` function).

    Raises:
        PlaceUnknown: as ``HistoryDecoder.rest``.
    """
    decoder = HistoryDecoder(unpack(packed), source, starts, begins, held)
    for batch in batches:
        if batch.num_rows:
            yield decoder.decode(batch)
    yield decoder.rest()
