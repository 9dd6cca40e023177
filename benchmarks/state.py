"""Does a batch's time follow the size of the change, not of the tables? The engine alone, over the real row store.

The same thousand changes to flights, with their airlines and planes, are applied with N and with ten times N rows in
the store.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.results import Measurement
from cdc.catalogue import Column, Table
from cdc.join.incoming import Incoming, RowMaker
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from deploy.local.stack import LocalStack
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.join.engine import Joiner
from spark.join.task import Task

ROWS, CHANGES, ROUNDS, BATCH = 20_000, 1_000, 7, 5_000


def table_of(name: str, *columns: str) -> Table:
    """A table of integers whose key is the first column."""
    return Table("public", name, tuple(Column(c, "integer", "int4") for c in columns), (columns[0],))


def _view() -> JoinedView:
    flights = table_of("flights", "flight_id", "plane_id", "delay")
    planes = table_of("planes", "plane_id", "seats")
    own = tuple((column.name, column.name) for column in flights.columns)
    theirs = tuple((column.name, column.name) for column in planes.columns)
    total = Aggregate("flights", flights, (("plane_id", "plane_id"),), "sum", value="delay")
    plane = Node("plane", "ref", planes, (("plane_id", "plane_id"),), theirs, aggregates=(total,))
    root = Node("flight", "root", flights, (), own, (plane,))
    return JoinedView("flight", flights, ("flight_id",), own, root=root)


@contextmanager
def engine(
    stack: LocalStack, view: JoinedView, namespace: str, title: str
) -> Iterator[tuple[Joiner, dict[str, RowMaker]]]:
    """A view's engine over an empty row store, and what makes rows of its tables; nothing is left of it afterwards."""
    store = RedisRowStore(StoreSettings(url=stack.endpoints.redis_store_url, namespace=namespace, title=title))
    store.drop()
    store.setup()
    try:
        yield Joiner(view, store), {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
    finally:
        store.drop()
        store.close()


def measure(rows: int = ROWS) -> list[Measurement]:
    """Median time of a batch with few and with many rows in the store."""
    stack = LocalStack()
    stack.up(["redis-store"])
    small, large = _batch_seconds(stack, rows), _batch_seconds(stack, rows * 10)
    print(f"a batch of {CHANGES} changes: {small:.3f} s over {rows:,} rows, {large:.3f} s over {rows * 10:,}")
    return [
        Measurement(
            "batch_time_10x_state_ratio",
            large / small,
            "ratio",
            ROUNDS,
            peer=f"the same batch over {rows:,} rows instead of {rows * 10:,}",
            peer_value=small,
            ratio=large / small,
        )
    ]


def _batch_seconds(stack: LocalStack, rows: int) -> float:
    with engine(stack, _view(), "bench000:", "benchmarks/state") as (joiner, makers):
        # As many flights a plane in both: what is measured is the size of the table, not of the fan-out.
        planes = [row_of(makers, "planes", key, {"plane_id": key, "seats": 100}, 1, 0) for key in range(rows // 20)]
        offset = 0
        for batch in _batches(planes, rows, makers):
            joiner.load(batch, Task(offset, offset), refused)
            joiner.store.end(offset)
            offset += BATCH
        seconds = []
        for number in range(ROUNDS):
            start = 10_000_000 + number * CHANGES
            flights = [
                _flight(makers, key * (rows // CHANGES), rows, start + key, delay=number + 1) for key in range(CHANGES)
            ]
            began = time.perf_counter()
            for made in joiner.process(flights, Task(start, start), refused):
                joiner.documents(made)
            joiner.store.end(start)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds)


def _batches(planes: list[Incoming], rows: int, makers: dict[str, RowMaker]) -> Iterator[list[Incoming]]:
    yield planes
    for first in range(0, rows, BATCH):
        yield [_flight(makers, key, rows, key, delay=0) for key in range(first, min(first + BATCH, rows))]


def _flight(makers: dict[str, RowMaker], key: int, rows: int, offset: int, delay: int) -> Incoming:
    row = {"flight_id": key, "plane_id": key % (rows // 20), "delay": delay}
    return row_of(makers, "flights", key, row, offset + 2, offset)


def row_of(
    makers: dict[str, RowMaker], table: str, key: int, row: dict[str, int], position: int, offset: int
) -> Incoming:
    """A change of one of them, as it comes from the log."""
    maker = makers[f"public.{table}"]
    named = {name: row[name] for name in maker.layout.table.primary_key}
    change = Change(f"public.{table}", Op.UPDATE, named, dict(row), position, "t", 0, offset, 0)
    return maker.make(change)._replace(key=str(key))


def refused(change: Incoming, error: Exception) -> None:
    """Told of changes that can't be applied: there are none."""
    raise AssertionError(f"{change} was refused: {error}")
