"""When events happened, and which came late: the clocks of the log's partitions, worked out once more.

Events are taken partition by partition, in the order of offsets, and wait in a file: so the clock before each of them
is known. Then they are looked at once more in the order of their commits, for the one thing that the log does not say:
a partition that stands still is waited for ten minutes by the clock on the wall, and what it brings after that may have
been given up. docs/decisions/windows.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from cdc.timed import TimedView
from cdc.types import REFUSALS
from truth.events.logged import Events, canonical_row, reader, row_id
from truth.moments import moment_number
from truth.spark_sql import FAILED, ask, table_shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Events that Spark gets at once.
PAGE_EVENTS = 20_000
# A partition without an event for ten minutes is waited for no longer. That is by the clock of who read it: one that
# was silent for half of that, by its commits, may have been silent for all of it.
SILENT_MS = 300_000
# For so long what may still count is kept where time goes on without events.
QUIET_MICROS = 600_000_000
# Commits so near to each other come in one batch.
TOGETHER_MS = 60_000
# Years 1 to 9999: what is beyond has no place in Spark's timestamps.
_FIRST, _END = -62_135_596_800_000_000, 253_402_300_800_000_000

TABLE = "event (part INT, at INT, moment INT, clock INT, seen INT, committed INT, again INT, id TEXT, row BLOB)"


class Happened(NamedTuple):
    """An event that can count, with its time and what Spark says of it.

    Attributes:
        id: of its row.
        at: when it happened, microseconds since 1970.
        clock: what its partition's clock showed before it; None for nothing yet.
        unsure: the engine may have stopped waiting for this partition, and have closed everything before this moment;
            None if that can't be.
        said: of the expressions that were asked, in their order.
    """

    id: str
    at: int
    clock: int | None
    unsure: int | None
    said: tuple[Any, ...]


class Waiting:
    """How far time may have come for the engine, by the commits of the log.

    It waits for all partitions, but no longer for one that was silent for ten minutes by the clock on the wall: that is
    not in the log, so this is the furthest that it can have come to.

    Where time alone makes something true, it goes on with heartbeats while no event comes: by as much as has passed
    since the newest commit. What may still count is kept for ten minutes more for that.

    Args:
        store: as ``take`` has left it.
        by_time: the view is such a one.

    Attributes:
        closed: the moment that all partitions had reached which were waited for; None if no event had a time.
    """

    def __init__(self, store: sqlite3.Connection, *, by_time: bool = False) -> None:
        self.closed: int | None = None
        self._by_time, self._quiet, self._newest = by_time, 0, 0
        self._clocks: dict[int, int] = {}
        self._heard: dict[int, int] = {}
        # What was committed together is read together: so far ahead it is looked who is about to speak.
        self._ahead = store.execute("SELECT part, committed FROM event ORDER BY committed")
        self._next = self._ahead.fetchone()

    @property
    def least(self) -> int | None:
        """The moment that all partitions have reached."""
        return min(self._clocks.values(), default=None)

    def come(self, committed: int) -> int | None:
        """Before what moment all may be closed when something is committed."""
        if self._by_time and self.closed is not None:
            self._quiet = max(self._quiet, self.until(committed) or 0)
        self._newest = max(self._newest, committed)
        while self._next is not None and self._next[1] <= committed + TOGETHER_MS:
            self._heard[self._next[0]] = self._next[1]
            self._next = self._ahead.fetchone()
        awaited = [part for part, when in self._heard.items() if committed - when < SILENT_MS]
        if awaited and all(part in self._clocks for part in awaited):
            reached = min(self._clocks[part] for part in awaited)
            self.closed = reached if self.closed is None else max(self.closed, reached)
        if self._by_time and self.closed is not None:
            return max(self.closed, self._quiet) - QUIET_MICROS
        return self.closed

    def until(self, committed: int) -> int | None:
        """How far time may have come at a moment (ms) at which no event has been committed since."""
        if self.closed is None:
            return None
        return max(self._quiet, self.closed + max(0, committed - self._newest) * 1000)

    def see(self, part: int, seen: int) -> None:
        """A partition's clock has seen an event."""
        self._clocks[part] = max(self._clocks.get(part, seen), seen)


def take(store: sqlite3.Connection, view: TimedView, events: Events) -> int | None:
    """Read the log into the store.

    Args:
        store: a ``truth.events.logged.scratch`` of ``TABLE``.
        view: the view.
        events: reads the log from its beginning, the events of a partition in their order.

    Returns:
        the moment (microseconds) from which on the log has all that happened: what was lost of it was committed before;
        None if nothing was.
    """
    complete: int | None = None
    read, parts = reader(view), dict[tuple[str, int], int]()
    clocks: dict[int, int] = {}
    latest: dict[int, int] = {}

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal complete
        for event in events():
            if event.lost:
                complete = max(complete or 0, (event.committed + 1) * 1000)
                continue
            try:
                values = canonical_row(event.row, read)
                identity, moment = row_id(view, values), _moment(view, values)
            except (*REFUSALS, OverflowError):  # a dead letter, which moves no clock
                continue
            part = parts.setdefault((event.topic, event.partition), len(parts))
            clock = clocks.get(part)
            # Nothing happens after it was committed.
            seen = min(moment, (event.committed + 1) * 1000) if event.committed else moment
            clocks[part] = seen if clock is None else max(clock, seen)
            latest[part] = max(latest.get(part, 0), event.committed)
            yield part, event.offset, moment, clock, seen, latest[part], event.again, identity, orjson.dumps(values)

    store.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows())
    return complete


def _moment(view: TimedView, values: dict[str, Any]) -> int:
    """When it happened; a device's clock is put right by when it has sent the event, and when that was received.

    Raises:
        ValueError: nobody knows (a dead letter).
    """
    at = _micros(values[view.time])
    if view.sent is not None and view.received is not None:
        at += _micros(values[view.received]) - _micros(values[view.sent])
    if not _FIRST <= at < _END:
        raise ValueError("too far away")
    return at


def _micros(text: str | None) -> int:
    found = None if text is None else moment_number(text)
    if found is None:
        raise ValueError("no moment")
    return found


def happened(
    store: sqlite3.Connection, waiting: Waiting, view: TimedView, spark: SparkSession, expressions: list[str]
) -> Iterator[Happened]:
    """The events that can count: not those that were read again, nor those of which Spark can't compute something.

    Args:
        store: as ``take`` has left it.
        waiting: of it; at the end it knows how far time has come.
        view: the view.
        spark: a session.
        expressions: Spark SQL over an event's columns.
    """
    shape = table_shape(view.table, expressions)
    found = _watched(store, waiting)
    while page := list(islice(found, PAGE_EVENTS)):
        rows = [{name: row[name] for name in shape.columns} for row in (orjson.loads(one[-1]) for one in page)]
        for (identity, at, clock, unsure, _), said in zip(page, ask(spark, shape, rows, expressions).rows, strict=True):
            if not any(value is FAILED for value in said):
                yield Happened(identity, at, clock, unsure, said)


def _watched(store: sqlite3.Connection, waiting: Waiting) -> Iterator[tuple[str, int, int | None, int | None, bytes]]:
    """(id, moment, clock before it, what may be closed, row) of events that were not read again."""
    query = "SELECT part, moment, clock, seen, committed, again, id, row FROM event ORDER BY committed, part, at"
    latest = 0
    for part, moment, clock, seen, committed, again, identity, row in store.execute(query):
        closed, latest = waiting.come(committed), committed
        if not again:
            yield identity, moment, clock, closed, row
        waiting.see(part, seen)
    waiting.come(latest)
