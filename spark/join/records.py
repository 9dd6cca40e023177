"""From Kafka records to the newest change of each row, for the tables of one joined view."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from cdc.errors import DecodeError
from cdc.join.expressions import mentions
from cdc.join.incoming import TOMBSTONE, Incoming, RowMaker, lacking, newest
from cdc.join.rows import Stamp
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from cdc.records.change import Change, Op
from cdc.types import REFUSALS, canonical_result
from cdc.types.plain import NO_TEXT, plain_values
from spark.join.timely import Timely
from spark.reading.computed import SEEN_CHARS, VALUE
from spark.reading.letters import record_letter
from spark.reading.spec import FlowSpec

# What Spark SQL computed of a row for aggregate number N of table number T.
COMPUTED = "__a{}_{}"


@dataclass
class Taken:
    """What one Arrow batch of records gave.

    Attributes:
        changes: the newest of each row, and of which rows records were refused.
        letters: records that are no change of their table.
        records: how many there were.
        ts_ms: the newest source timestamp among them.
    """

    changes: list[Incoming]
    letters: list[DeadLetter]
    records: int
    ts_ms: int


@dataclass
class RecordReader:
    """Reads a task's records; one a task.

    Attributes:
        spec: the flow's work.
        view: its one view.
        timely: tells whether values that a record leaves out may be filled; None fills them all.
    """

    spec: FlowSpec
    view: JoinedView
    timely: Timely | None = None

    def __post_init__(self) -> None:
        self._decoders = self.spec.decoders()
        tables = self.view.layout.tables
        self._makers = {name: RowMaker(layout) for name, layout in tables.items()}
        self._computed = {
            name: [COMPUTED.format(layout.number, n) if a.computed else None for n, a in enumerate(layout.aggregates)]
            for name, layout in tables.items()
        }

    def read(self, batch: pa.RecordBatch) -> Taken:
        """Decode records (key, value, topic, partition, offset, and what Spark SQL computed)."""
        changes: dict[tuple[str, str], Incoming] = {}
        letters: list[DeadLetter] = []
        failed: dict[tuple[str, str], DeadLetter | None] = {}
        ts_ms = 0
        columns = {name: plain_values(batch.column(name)) for name in batch.schema.names}
        plain = (columns[name] for name in ("key", "value", "topic", "partition", "offset"))
        for at, (key, value, topic, partition, offset) in enumerate(zip(*plain, strict=True)):
            decoder, change = self._decoders[topic], None
            try:
                change = decoder.decode(key, value, topic, partition, offset)
                if change.op is Op.TOMBSTONE and self._makers[change.table].layout.versions:
                    continue  # the deletion before it was a version; this is nothing but leave to compact
                computed, without = self._values(change, columns, at)
                made = self._makers[change.table].make(change, computed)
                self._check_holes(made)
                slot = (made.table, made.key)
                known = changes.get(slot)
                changes[slot] = newest(known, made)
            except DecodeError as error:
                if change is None or not decoder.superseded(change):
                    if change is not None:
                        decoder.doubt(change, error)
                    letters.append(self.letter(self._row(topic, key), error, (topic, partition, offset), value))
                if (refusal := self._refusal(key, value, (topic, partition, offset), change)) is not None:
                    slot = (refusal.table, refusal.key)
                    changes[slot] = newest(changes.get(slot), refusal)
                continue
            if changes[slot] is not known:
                at_record = (topic, partition, offset)
                failed[slot] = self.letter(made.key, without, at_record, value) if without else None
            ts_ms = max(ts_ms, made.ts_ms)
        letters += [letter for letter in failed.values() if letter is not None]
        return Taken(list(changes.values()), letters, batch.num_rows, ts_ms)

    def _check_holes(self, made: Incoming) -> None:
        """Refuse to fill what may have changed in between; raises UnavailableValue (terminal)."""
        if self.timely is None:
            return
        if made.stamp.position != TOMBSTONE:
            self.timely.saw(made.topic, made.stamp.partition, made.ts_ms)
        if made.holes and not self.timely.fills(made):
            raise lacking(made, "the log may have forgotten a newer one than is stored")

    def _refusal(
        self, key: bytes | None, raw: bytes | None, at: tuple[str, int, int], change: Change | None
    ) -> Incoming | None:
        """That a record was refused, for the row that it is about; None if it names none, or a version of its own."""
        topic, partition, offset = at
        decoder = self._decoders[topic]
        table = decoder.table.qualified
        if self._makers[table].layout.versions:
            return None
        with suppress(*REFUSALS):
            position = decoder.told(raw)[0] if change is None else change.position
            stamp = Stamp(position or TOMBSTONE, offset, partition)
            return Incoming(table, self._id(topic, key or b""), stamp, None, (), 0, topic, refused=stamp)
        return None

    def keys(self, batch: pa.RecordBatch) -> list[str]:
        """The ids of the rows that records of one table are about, each once; records that are no change have none."""
        found: dict[str, None] = {}
        columns = (batch.column(name).to_pylist() for name in ("key", "topic"))
        for key, topic in zip(*columns, strict=True):
            with suppress(*REFUSALS):
                found[self._id(topic, key)] = None
        return list(found)

    def _id(self, topic: str, key: bytes) -> str:
        """The id of the row that a record's key names; may raise any of ``cdc.types.REFUSALS``."""
        return self._makers[self._decoders[topic].table.qualified].key(orjson.loads(key))

    def _row(self, topic: str, key: bytes | None) -> str:
        """The same for a letter: the key as text where it names no row."""
        with suppress(*REFUSALS):
            return self._id(topic, key or b"")
        return self._decoders[topic].letter_key(key, None)

    def _values(
        self, change: Change, columns: Mapping[str, list[Any]], at: int
    ) -> tuple[list[Any], DecodeError | None]:
        """What a row contributes to each aggregate of Spark SQL, and what failed: that contributes nothing."""
        names = self._computed[change.table]
        if change.op in (Op.DELETE, Op.TOMBSTONE) or change.after is None or not any(names):
            return [], None
        held = [None if name is None or columns[name][at] is NO_TEXT else columns[name][at] for name in names]
        failed = [number for number, name in enumerate(names) if name is not None and held[number] is None]
        values = [None if one is None else canonical_result(one[VALUE]) for one in held]
        return values, self._failure(change, failed) if failed else None

    def _failure(self, change: Change, failed: list[int]) -> DecodeError:
        layout = self.view.layout.tables[change.table]
        said = {}
        for aggregate in (layout.aggregates[number] for number in failed):
            text = aggregate.value or "*"
            said[f"aggregate {aggregate.name}"] = f"{text} where {aggregate.where}" if aggregate.where else text
        named = set().union(*(mentions(text, layout.table.by_name) for text in said.values()))
        seen = {name: value for name, value in (change.after or {}).items() if name in named}
        listed = ", ".join(f"{name}: `{text}`" for name, text in said.items())
        told = orjson.dumps(seen, default=str).decode()[:SEEN_CHARS]
        return DecodeError(
            f"Spark could not compute {listed} for this row of {change.table}: {told}",
            fix="the row stands in its documents and adds nothing to those aggregates until a change of it helps",
        )

    def letter(self, key: str, error: DecodeError, at: tuple[str, int, int], raw: bytes | None = None) -> DeadLetter:
        """A dead letter of a row whose record can't be applied: a row of any of the view's tables, its root's too.

        Args:
            key: the row's id.
            error: why.
            at: topic, partition and offset.
            raw: the record's value, if it is at hand.
        """
        return record_letter(self.spec, self.view.name, key, self._decoders[at[0]], error, raw, at)
