"""A parent with many children: does a change of one child cost by how many there are?

The engine alone, over the real row store.

``python -m benchmarks.run hot``. The parent's document shows the newest fifty of them, and their number and maximum.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.results import Measurement
from benchmarks.state import BATCH, engine, refused, row_of, table_of
from cdc.join.incoming import Incoming, RowMaker
from cdc.join.tree import Aggregate, Node, Order
from cdc.join.view import JoinedView
from deploy.local.stack import LocalStack
from spark.join.task import Task

COMMAND = "python -m benchmarks.run hot"
CHILDREN, ROUNDS, SHOWN = (100, 10_000, 1_000_000), 7, 50


def _view() -> JoinedView:
    planes, flights = table_of("planes", "plane_id", "seats"), table_of("flights", "flight_id", "plane_id", "delay")
    on = (("plane_id", "plane_id"),)
    shown = tuple((column.name, column.name) for column in flights.columns)
    newest = Node(
        "flights",
        "child",
        flights,
        on,
        shown,
        order_by=(Order("delay", descending=True, nulls_first=False),),
        limit=SHOWN,
    )
    told = tuple(
        Aggregate(name, flights, on, name, value=None if name == "count" else "delay") for name in ("count", "max")
    )
    own = tuple((column.name, column.name) for column in planes.columns)
    root = Node("plane", "root", planes, (), own, children=(newest,), aggregates=told)
    return JoinedView("plane", planes, ("plane_id",), own, root=root)


def measure(children: tuple[int, ...] = CHILDREN) -> list[Measurement]:
    """Median time of one child's change, document included, with few and with many children."""
    stack = LocalStack()
    stack.up(["redis-store"])
    took = {}
    for number in children:
        took[number] = _update_ms(stack, number)
        print(f"one of {number:,} children changes: {took[number]:.1f} ms")
    found = [
        Measurement(f"hot_parent_update_ms/{n}", round(ms, 2), "ms", ROUNDS, command=COMMAND) for n, ms in took.items()
    ]
    few, many = took[children[0]], took[children[-1]]
    peer = f"with {children[0]:,} children instead of {children[-1]:,}"
    ratio = Measurement("hot_parent_update_ratio", many / few, "ratio", ROUNDS, peer, few, many / few, command=COMMAND)
    return [*found, ratio]


def _update_ms(stack: LocalStack, children: int) -> float:
    with engine(stack, _view(), "benchhot:", "benchmarks/hot") as (joiner, makers):
        for number, batch in enumerate(_batches(makers, children)):
            joiner.load(batch, Task(number, number), refused)
            joiner.store.end(number)
        seconds = []
        for number in range(ROUNDS):
            change = _child(makers, number, children + number, 10_000_000 + number)
            task, began = Task(children + number, children + number), time.perf_counter()
            for made in joiner.process([change], task, refused):
                joiner.documents(made)
            joiner.store.end(children + number)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds) * 1000


def _batches(makers: dict[str, RowMaker], children: int) -> Iterator[list[Incoming]]:
    yield [row_of(makers, "planes", 1, {"plane_id": 1, "seats": 100}, 1, 0)]
    for first in range(0, children, BATCH):
        yield [_child(makers, key, key, key) for key in range(first, min(first + BATCH, children))]


def _child(makers: dict[str, RowMaker], key: int, offset: int, delay: int) -> Incoming:
    return row_of(makers, "flights", key, {"flight_id": key, "plane_id": 1, "delay": delay}, offset + 2, offset)


__all__ = ["measure"]
