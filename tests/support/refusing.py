"""The log of one table, some of whose records are refused, and an engine over a row store in memory that reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from cdc.catalogue import Column, Table
from cdc.join.rows import Stored, read
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from sinks.rowstore import key_names
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from spark.join.records import RecordReader
from spark.join.task import Task
from spark.join.timely import Timely
from spark.reading.spec import FlowSpec

HOUR = 3600.0
PLACEHOLDER = "__debezium_unavailable_value"
# No date: the record is refused.
BAD = "x"

_NAMES = ("id", "day", "a", "b")
TABLE = Table(
    "public",
    "t",
    (
        Column("id", "integer", "int4"),
        Column("day", "date", "date"),
        Column("a", "text", "text"),
        Column("b", "text", "text"),
    ),
    ("id",),
)
ROOT = Node("v", "root", TABLE, (), tuple((name, name) for name in _NAMES))
VIEW = JoinedView("v", TABLE, ("id",), ROOT.columns, root=ROOT)


class Record(NamedTuple):
    """A record: ``c``, ``u`` or ``d``, or ``t`` for a tombstone, and when it was written (epoch seconds).

    ``more`` are columns that Spark SQL has computed.
    """

    offset: int
    at: float
    op: str
    row: dict[str, Any]
    more: dict[str, Any]


class Reading:
    """An engine that reads it.

    Attributes:
        now: the clock, epoch seconds.
        letters: offsets of records that became dead letters, in order.
    """

    def __init__(self, view: JoinedView = VIEW) -> None:
        self.view, self.now = view, 1_800_000_000.0
        self.store, self.letters = MemoryStore(), list[int]()
        self.joiner = Joiner(view, self.store)
        self.tasks = self.offset = 0

    def record(self, op: str, age: float = 5, more: dict[str, Any] | None = None, **row: Any) -> Record:
        """The next record, ``age`` seconds old."""
        self.offset += 1
        return Record(self.offset, self.now - age, op, {"id": 1, **row}, more or {})

    def batch(self, *records: Record, ends: bool = True, first: bool = False) -> list[int]:
        """Read some in one batch; offsets of those that were refused.

        Args:
            records: in the log's order.
            ends: else it crashes when all is written, and somebody repeats it.
            first: as in the first pass of a fill.
        """
        spec = FlowSpec("s", {"v": self.view}, {"t": ("v",)}, {"t": TABLE}, {}, {})
        reader = RecordReader(spec, self.view, Timely(self.store, HOUR, lambda: self.now))
        taken = reader.read(pa.RecordBatch.from_pylist([_raw(one) for one in records]))
        refused = [letter.offset for letter in taken.letters if letter.offset is not None]
        self.tasks += 1
        task = Task(self.tasks, self.tasks)
        if first:
            self.joiner.load(taken.changes, task, lambda change, _: refused.append(change.stamp.offset))
        else:
            list(self.joiner.process(taken.changes, task, lambda change, _: refused.append(change.stamp.offset)))
        if ends:
            self.store.end(self.tasks)
        self.letters += refused
        return refused

    def stored(self, key: int = 1) -> Stored | None:
        """What the store has of a row."""
        [value] = self.store.get([key_names.row(self.view.layout.tables[TABLE.qualified].number, str(key))])
        return None if value is None else read(value)

    def row(self, key: int = 1) -> dict[str, Any] | None:
        """The row's values in it; None if there is none."""
        stored = self.stored(key)
        if stored is None or stored.row is None:
            return None
        return dict(zip(self.view.layout.tables[TABLE.qualified].columns, stored.row, strict=False))


def _raw(one: Record) -> dict[str, Any]:
    ts_ms, position = int(one.at * 1000), one.offset + 100
    source = {"schema": "public", "table": "t", "lsn": position, "sequence": f'["{position}","{position}"]'}
    event = {
        "before": None,
        "after": None if one.op == "d" else one.row,
        "source": {**source, "ts_ms": ts_ms, "snapshot": "false"},
        "op": one.op,
        "ts_ms": ts_ms,
    }
    key, value = orjson.dumps({"id": one.row["id"]}), None if one.op == "t" else orjson.dumps(event)
    if one.op == "?":
        value = b"no event"
    return {"key": key, "value": value, "topic": "t", "partition": 0, "offset": one.offset, **one.more}
