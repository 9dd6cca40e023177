"""Documents that people make with other tools, as joined views: the nine classic examples of pgsync, written anew.

Each is a few tables and the document that its schema asks for, with tables and rows of our own. The engine keeps it
through a fill and through random transactions, crashes and repeats; what it holds at rest is what the second opinion
says of the tables. Where such a document goes through a table in between, that is `hide`; where it says one_to_one of
rows that point here, `one`; where it says scalar, `value`.
"""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from sinks.rowstore.memory.store import MemoryStore
from spark.join.engine import Joiner
from tests.support.join_cluster import Cluster
from tests.support.join_search import Chances, tell
from tests.support.written_book import BOOK
from tests.support.written_examples import EXAMPLES
from tests.support.written_world import WrittenWorld, printed
from truth.joins import documents

HISTORIES = 6
ALL = EXAMPLES | {"book": BOOK}


def second_opinion(world: WrittenWorld) -> dict[str, Any]:
    """Every document by the tables alone."""
    found = documents(world.view.tree, world.view.key, printed(world))
    return {key: orjson.loads(orjson.dumps(document)) for key, document in found}


@pytest.mark.parametrize("name", ALL)
def test_an_example_is_the_document_that_its_schema_asks_for(name: str) -> None:
    example = ALL[name]
    world = WrittenWorld(example.tables, example.view)
    for table, row in example.rows:
        world.lsn += 1
        world.put(table, **row)
    cluster = Cluster(world, MemoryStore(token=1))
    cluster.settle()
    assert cluster.held()[example.key] == example.document
    assert cluster.held() == second_opinion(world)


@pytest.mark.parametrize("chances", [Chances(), Chances(fill=True)], ids=["live", "after a fill"])
@pytest.mark.parametrize("name", ALL)
def test_an_example_stays_so_through_random_transactions(name: str, chances: Chances) -> None:
    example, told = ALL[name], 0
    for seed in range(HISTORIES):
        random = Random(f"{name} {seed}")
        world = WrittenWorld(example.tables, example.view, parts=random.choice((1, 2)))
        for table, row in example.rows:
            world.lsn += 1
            world.put(table, **row)
        cluster = Cluster(world, MemoryStore(token=1), Joiner, random)
        assert tell(f"{name} {seed}", cluster, random, chances) is None
        assert cluster.held() == second_opinion(world), f"{name} {seed}"
        told += len(cluster.held())
    assert told > HISTORIES
