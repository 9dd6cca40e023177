"""A fan-out over two levels is deferred as one over one level is; a batch of many rows with few roots each is not."""

from __future__ import annotations

from cdc.catalogue import Column, Table
from cdc.join.incoming import Incoming, RowMaker
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from spark.join.task import Task

ABOVE = 20


def table(name: str, *more: str) -> Table:
    return Table("public", name, tuple(Column(column, "integer", "int4") for column in ("id", *more)), ("id",))


COUNTRIES, CITIES, CUSTOMERS = table("countries", "n"), table("cities", "country"), table("customers", "city")
COUNTRY = Node("country", "ref", COUNTRIES, (("country", "id"),), (("n", "n"),))
CITY = Node("city", "ref", CITIES, (("city", "id"),), (("id", "id"),), (COUNTRY,))
ROOT = Node("v", "root", CUSTOMERS, (), (("id", "id"),), (CITY,))
VIEW = JoinedView("v", CUSTOMERS, ("id",), ROOT.columns, root=ROOT)


class World:
    """So many countries of so many cities of so many customers each."""

    def __init__(self, countries: int, cities: int, customers: int) -> None:
        self.store = MemoryStore()
        self.joiner = Joiner(VIEW, self.store, defer_above=ABOVE)
        self.makers = {name: RowMaker(layout) for name, layout in VIEW.layout.tables.items()}
        self.offset = 0
        lands, towns = range(countries), range(countries * cities)
        rows = [self.change(COUNTRIES, id=n, n=0) for n in lands]
        rows += [self.change(CITIES, id=n, country=n // cities) for n in towns]
        rows += [self.change(CUSTOMERS, id=n, city=n // customers) for n in range(len(towns) * customers)]
        self.joiner.load(rows, Task(1, 1), lambda change, error: None)
        self.store.end(1)

    def change(self, of: Table, **row: int) -> Incoming:
        self.offset += 1
        key = {"id": row["id"]}
        change = Change(of.qualified, Op.UPDATE, key, dict(row), self.offset, of.name, 0, self.offset, 0)
        return self.makers[of.qualified].make(change)

    def batch(self, *changes: Incoming) -> tuple[int, int]:
        """How many documents a batch makes, and how many it leaves to the job."""
        pieces = list(self.joiner.process(changes, Task(2, 2), lambda change, error: None))
        self.store.end(2)
        return len({made.key for piece in pieces for made in piece}), self.store.waiting()

    def later(self) -> set[str]:
        """Keys of the documents that the job makes."""
        shards = self.store.claim()
        return {made.key for shard in shards for piece in self.joiner.later(shard) for made in piece}


def test_a_row_that_leads_to_many_documents_over_others_defers_them() -> None:
    world = World(1, 15, 15)
    made, waiting = world.batch(world.change(COUNTRIES, id=0, n=1))
    assert (made, waiting) == (0, 225)
    assert world.later() == {str(n) for n in range(225)}


def test_what_leads_to_few_is_made_at_once() -> None:
    world = World(1, 4, 5)
    assert world.batch(world.change(COUNTRIES, id=0, n=1)) == (20, 0)


def test_many_rows_with_few_documents_each_defer_nothing() -> None:
    world = World(40, 2, 5)
    assert world.batch(*(world.change(COUNTRIES, id=n, n=1) for n in range(40))) == (400, 0)


def test_changed_roots_are_never_deferred() -> None:
    world = World(1, 15, 15)
    changes = [world.change(CUSTOMERS, id=n, city=0) for n in range(15, 225)]
    assert world.batch(*changes) == (210, 0)
