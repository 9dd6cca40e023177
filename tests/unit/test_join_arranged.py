"""Of many children only the first are read, and they are the same as if all had been."""

from __future__ import annotations

import math
from collections.abc import Sequence

import orjson
import pytest

from benchmarks.hot import _view
from benchmarks.state import refused, row_of
from cdc.join.incoming import Incoming, RowMaker
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt
from sinks.rowstore.memory import MemoryStore
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
    def __init__(self, *, arranged: bool) -> None:
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


@pytest.mark.parametrize("arranged", [True, False])
def test_a_child_that_moves_is_found_at_its_new_place(arranged: bool) -> None:
    world = World(arranged=arranged)
    world.store.read = 0
    assert world.apply(child(3, 10_000, 500))[:2] == [3, CHILDREN - 1]
    assert (world.store.read < CHILDREN) == arranged
    assert world.apply(child(3, -1, 501)) == list(range(CHILDREN - 1, CHILDREN - 51, -1))
    assert any(name.startswith("f") for node in world.store.servers.nodes for name in node) == arranged


def test_children_that_are_none_any_more_hide_no_others() -> None:
    world = World(arranged=True)
    ghosts = [(key_names.arranged(0, "1"), -math.inf, f"ghost {number}") for number in range(120)]
    world.store.arrange(ghosts, Attempt())
    assert world.apply(child(3, -1, 500)) == list(range(CHILDREN - 1, CHILDREN - 51, -1))
