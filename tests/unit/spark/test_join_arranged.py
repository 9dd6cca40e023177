"""Of many children only the first are read, and they are the same as if all had been."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from benchmarks.hot import _view
from benchmarks.state import refused, row_of, table_of
from cdc.catalogue import Table
from cdc.join.incoming import Incoming, RowMaker
from cdc.join.layout import Arranged
from cdc.join.tree import Node, Order
from cdc.join.view import JoinedView
from cdc.keys import document_id
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from spark.join.task import Task

MAKERS = {name: RowMaker(layout) for name, layout in _view().layout.tables.items()}
PLANE = row_of(MAKERS, "planes", 1, {"plane_id": 1, "seats": 100}, 1, 0)
CHILDREN = 200


def child(key: int, delay: int, offset: int) -> Incoming:
    return row_of(MAKERS, "flights", key, {"flight_id": key, "plane_id": 1, "delay": delay}, offset + 2, offset)


class Counting(MemoryStore):
    """Counts the rows that are read."""

    read = 0

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        self.read += len(names)
        return super().get(names)


class World:
    def __init__(self, *, arranged: Arranged) -> None:
        self.store = Counting()
        self.joiner = Joiner(_view(), self.store, arranged=arranged)
        self.tasks = 0
        self.apply(PLANE)
        self.apply(*(child(key, key, key) for key in range(CHILDREN)))

    def apply(self, *changes: Incoming) -> list[int]:
        """The children that the newest document shows."""
        self.tasks += 1
        shown: list[int] = []
        for made in self.joiner.process(changes, Task(self.tasks, self.tasks), refused):
            for document in self.joiner.documents(made):
                shown = [one["flight_id"] for one in orjson.loads(document or b"{}")["flights"]]
        self.store.end(self.tasks)
        return shown


@pytest.mark.parametrize("arranged", ["now", "former", "none"])
def test_a_child_that_moves_is_found_at_its_new_place(arranged: Arranged) -> None:
    world = World(arranged=arranged)
    world.store.read = 0
    assert world.apply(child(3, 10_000, 500))[:2] == [3, CHILDREN - 1]
    assert (world.store.read < CHILDREN) == (arranged != "none")
    assert world.apply(child(3, -1, 501)) == list(range(CHILDREN - 1, CHILDREN - 51, -1))
    assert any(name.startswith("f") for node in world.store.servers.nodes for name in node) == (arranged != "none")


def test_children_that_are_none_any_more_hide_no_others() -> None:
    world = World(arranged="now")
    ghosts = [(key_names.arranged(0, "1"), -math.inf, f"ghost {number}") for number in range(120)]
    world.store.arrange(ghosts, Attempt())
    assert world.apply(child(3, -1, 500)) == list(range(CHILDREN - 1, CHILDREN - 51, -1))


# -- children whose key begins with what they hang on the row above by -------------------------------------------------

ORDERS = table_of("orders", "order_id", "state")
LINES = Table("public", "lines", table_of("lines", "order_id", "line", "pieces").columns, ("order_id", "line"))
SHOWN = 5


def of_lines(*order_by: Order, lines: Table = LINES) -> JoinedView:
    """Orders with the first few of their lines."""
    shown = tuple((column.name, column.name) for column in lines.columns)
    some = Node("lines", "child", lines, (("order_id", "order_id"),), shown, order_by=order_by, limit=SHOWN)
    own = tuple((column.name, column.name) for column in ORDERS.columns)
    root = Node("order", "root", ORDERS, (), own, children=(some,))
    return JoinedView("order", ORDERS, ("order_id",), own, root=root)


def line(view: JoinedView, number: int, offset: int, pieces: int = 1) -> Incoming:
    makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
    row = {"order_id": 1, "line": number, "pieces": pieces}
    return row_of(makers, "lines", number, row, offset + 2, offset)._replace(key=document_id([1, number]))


@pytest.mark.parametrize(
    ("order_by", "column"),
    [
        ((), "line"),
        ((Order("order_id", descending=True),), "line"),
        ((Order("order_id"), Order("pieces", descending=True)), "pieces"),
        ((Order("pieces"), Order("order_id")), "pieces"),
    ],
)
def test_children_are_arranged_by_what_tells_them_apart(order_by: tuple[Order, ...], column: str) -> None:
    [arranged] = of_lines(*order_by).layout.ordered
    assert arranged.order.column == column
    assert arranged.former == (order_by or (Order("order_id"),))[0]
    assert arranged.order in (*order_by, Order("line"))


def test_of_children_that_are_found_by_their_whole_key_there_is_one_at_most() -> None:
    [arranged] = of_lines(lines=replace(LINES, primary_key=("order_id",))).layout.ordered
    assert arranged.order == arranged.former == Order("order_id")


@pytest.mark.parametrize(
    ("order_by", "shown"),
    [
        ((), [0, 1, 2, 3, 4]),
        ((Order("order_id"), Order("pieces", descending=True)), [150, 0, 1, 2, 3]),
    ],
)
@pytest.mark.parametrize("arranged", ["now", "former", "none"])
def test_only_the_first_of_many_lines_are_read(
    arranged: Arranged, order_by: tuple[Order, ...], shown: list[int]
) -> None:
    """The order of documents is the same however the row store has its rows; what is read of them is not."""
    view, store = of_lines(*order_by), Counting()
    joiner = Joiner(view, store, arranged=arranged)
    makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
    order = row_of(makers, "orders", 1, {"order_id": 1, "state": 0}, 1, 0)
    # Each in a place of its own by each of the columns: those that share the last one's are all read.
    lines = [line(view, number, number, 1_000 - number) for number in reversed(range(CHILDREN))]
    for number, changes in enumerate(([order], lines)):
        joiner.load(changes, Task(number, number), refused)
        store.end(number)
    store.read = 0
    [[made]] = joiner.process([line(view, 150, 500, 5_000)], Task(2, 2), refused)
    [document] = joiner.documents([made])
    assert [one["line"] for one in orjson.loads(document or b"{}")["lines"]] == shown
    assert (store.read < CHILDREN) == (arranged == "now")
