"""A value that a record leaves out is taken from the stored row only when no change in between can have been lost."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from cdc.catalogue import Column, Table
from cdc.join.incoming import Incoming
from cdc.join.rows import Stamp
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from sinks.rowstore.memory.store import MemoryStore
from spark.join.records import RecordReader, Taken
from spark.join.timely import Timely
from spark.reading.spec import FlowSpec

HOUR = 3600.0
DAY = 24 * HOUR
NOW = 1_800_000_000.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def hole(age: float, clock: Clock, partition: int = 0) -> Incoming:
    """An update that lacks its large value, ``age`` seconds old."""
    ts_ms = int((clock.now - age) * 1000)
    return Incoming("public.t", "1", Stamp(9, 9, partition), [1, None], (1,), ts_ms, "t")


@pytest.mark.parametrize(
    ("age", "fills"),
    [(0, True), (0.8 * HOUR, True), (0.95 * HOUR, False), (DAY, False)],
    ids=["now", "young", "nearly as old as the log keeps all", "old"],
)
def test_only_a_young_record_is_filled(age: float, fills: bool) -> None:
    clock = Clock()
    timely = Timely(MemoryStore(), HOUR, clock)
    change = hole(age, clock)
    timely.saw("t", 0, change.ts_ms)
    assert timely.fills(change) is fills


def test_after_a_late_reading_only_what_was_written_later_is_filled() -> None:
    clock, store = Clock(), MemoryStore()
    catching_up = Timely(store, HOUR, clock)
    catching_up.saw("t", 0, int((NOW - DAY) * 1000))
    assert not catching_up.fills(hole(5, clock))  # the value before it may be what was compacted away
    assert catching_up.fills(hole(5, clock, partition=1))
    clock.now += 600
    another_worker = Timely(store, HOUR, clock)
    assert not another_worker.fills(hole(601, clock))
    assert not another_worker.fills(hole(580, clock))  # clocks differ
    assert another_worker.fills(hole(5, clock))


def test_a_late_reading_that_goes_on_counts_to_its_end() -> None:
    clock, store = Clock(), MemoryStore()
    timely = Timely(store, HOUR, clock)
    for _ in range(10):
        timely.saw("t", 0, int((clock.now - DAY) * 1000))
        clock.now += 60
    assert not timely.fills(hole(120, clock))


def test_a_log_that_promises_nothing_fills_nothing() -> None:
    clock = Clock()
    timely = Timely(MemoryStore(), 0, clock)
    timely.saw("t", 0, int(clock.now * 1000))
    assert not timely.fills(hole(0, clock))


TABLE = Table("public", "t", (Column("id", "integer", "int4"), Column("big", "text", "text")), ("id",))
ROOT = Node("v", "root", TABLE, (), (("id", "id"), ("big", "big")))
VIEW = JoinedView("v", TABLE, ("id",), ROOT.columns, root=ROOT)


def read(age: float, *values: object) -> Taken:
    """What becomes of updates of one row with these large values, the last ``age`` seconds old."""
    clock = Clock()
    spec = FlowSpec("s", {"v": VIEW}, {"t": ("v",)}, {"t": TABLE}, {}, {})
    reader = RecordReader(spec, VIEW, Timely(MemoryStore(), HOUR, clock))
    records = []
    for offset, value in enumerate(values):
        ts_ms = int((clock.now - age) * 1000)
        at = {"lsn": 9 + offset, "sequence": f'["{9 + offset}","{9 + offset}"]'}
        source = {"schema": "public", "table": "t", **at, "ts_ms": ts_ms}
        after = {"id": 1, "big": value}
        text = orjson.dumps({"before": None, "after": after, "source": source, "op": "u", "ts_ms": ts_ms})
        records.append({"key": b'{"id":1}', "value": text, "topic": "t", "partition": 0, "offset": offset})
    return reader.read(pa.RecordBatch.from_pylist(records))


PLACEHOLDER = "__debezium_unavailable_value"


def test_within_a_batch_too() -> None:
    young = read(5, "AAA", PLACEHOLDER)
    assert [(change.row, change.holes) for change in young.changes] == [([1, "AAA"], ())]
    assert young.letters == []
    old = read(DAY, "AAA", PLACEHOLDER)
    assert [(change.row, change.stamp.offset) for change in old.changes] == [([1, "AAA"], 0)]
    (letter,) = old.letters
    assert "may have forgotten a newer one than is stored" in letter.reason
    assert (letter.offset, letter.key, letter.table) == (1, "1", "public.t")
