"""Joined views as tables: an Iceberg table and a Redis cache show the same documents, whatever happens."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from spark.warehouse.marks import QUERY
from tests.support.sampling import in_turn
from tests.support.servers import servers
from tests.support.tabled import CUSTOMERS, Tabled

# PySpark leaves the sockets that rows came through to the garbage collector.
pytestmark = [
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

VIEWS = ("customer", "rated")


# Every table is a large one, into which batches go in other ways: as small ones, or as large ones.
LARGE = """
from console.cli.main import main
from spark.warehouse import merge as warehouse
from spark.join import tables

def told(*what, merge=warehouse.MERGE):
    print("into a large table", flush=True)
    return merge(*what)

warehouse.LARGE_ROWS, warehouse.MERGE = 1, told
tables.SMALL_RECORDS = warehouse.SMALL_RECORDS = MOST
main()
"""
PROGRAMS = {
    "large": LARGE.replace("MERGE", "merge_small").replace("MOST", "100_000"),
    "many": LARGE.replace("MERGE", "merge_new").replace("MOST", "-1"),
}


@pytest.fixture(scope="module", params=in_turn("small", *PROGRAMS, ring=True))
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabled]:
    """Filled and followed."""
    stack = servers()
    stack.up()
    made = Tabled(stack, tmp_path_factory.mktemp("tabled"))
    if request.param in PROGRAMS:
        made.program = ("-c", PROGRAMS[request.param])
    with made.running():
        yield made


_MARKERS = count(1_000_000)


def same(pipeline: Tabled) -> None:
    """Both sinks show a row that is written now, and all else alike."""
    marker = next(_MARKERS)
    pipeline.execute("INSERT INTO customers VALUES (%s, 'marker', 2, NULL)", marker)

    def both(view: str) -> bool:
        held = pipeline.in_table(view)
        return str(marker) in held and held == pipeline.in_cache(view)

    for view in VIEWS:
        pipeline.settled(lambda view=view: both(view), True)
        assert str(marker) in pipeline.in_table(view)
        assert pipeline.in_table(view) == pipeline.in_cache(view)
    pipeline.execute("DELETE FROM customers WHERE id = %s", marker)


def told(pipeline: Tabled, verb: str, *options: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """What a verb that reads Postgres says."""
    pipeline.readable(allowed=True)
    try:
        found: dict[str, Any] = json.loads(pipeline.run(verb, *options, "--json", ok=ok))
    finally:
        pipeline.readable(allowed=False)
    return found


def test_a_filled_table_is_what_the_cache_is(pipeline: Tabled) -> None:
    pipeline.settled(lambda: len(pipeline.in_table("customer")) >= CUSTOMERS, True)
    # A fill's commits name the slice of their root alone: what the flow says counts as well.
    asked = f"SELECT count(*) FROM {pipeline.name}_customer"
    assert pipeline.settled(lambda: told(pipeline, "query", asked)["as_of"]["reason"], None) is None
    same(pipeline)
    held = pipeline.in_table("customer")
    assert len(held) >= CUSTOMERS
    # By appending alone: nothing of it was there before.
    filled = [one for one in pipeline.commits("customer") if one[QUERY].startswith("fill-")]
    assert filled and not any("deleted-records" in one or "added-delete-files" in one for one in filled)


def test_it_follows_changes_of_rows_at_every_place(pipeline: Tabled) -> None:
    pipeline.change(Random(1), 60)
    same(pipeline)
    assert set(pipeline.in_table("rated")) < set(pipeline.in_table("customer"))
    assert ("into a large table" in pipeline.log()) == (pipeline.program[0] == "-c")


def test_what_a_fan_out_has_deferred_is_committed_under_marks_of_its_own(pipeline: Tabled) -> None:
    pipeline.execute("UPDATE cities SET name = 'Valletta' WHERE id = 1")
    pipeline.change(Random(5), 10)  # while that is made
    same(pipeline)
    held = pipeline.in_table("customer").values()
    assert sum(row["city"] is not None and row["city"]["town"] == "Valletta" for row in held) > 2000
    assert any(one[QUERY].startswith("later-") for one in pipeline.commits("customer"))


def test_kills_leave_what_the_source_says(pipeline: Tabled) -> None:
    random = Random(11)
    for seed in range(2):
        pipeline.execute("UPDATE cities SET name = %s WHERE id = 1", f"city {seed}")
        pipeline.change(random, 30)
        time.sleep(random.uniform(0.5, 4))
        pipeline.kill()
        pipeline.change(random, 10)
        pipeline.launch()
    pipeline.assert_equal()
    same(pipeline)


def test_what_somebody_has_put_into_the_table_is_found_and_repaired(pipeline: Tabled) -> None:
    same(pipeline)
    key = next(key for key, row in pipeline.in_table("customer").items() if row["orders"])
    # There twice, one that is gone, and one that nobody knows.
    pipeline.plant(key, gone=2000, ghost=999_999)
    report = told(pipeline, "verify", "--repair", "--sink", "warehouse", "--wait", "60")
    views = {view["view"]: view for view in report["sinks"][0]["views"]}
    # Missing, unknown, and there twice.
    assert views[pipeline.view("customer")]["repaired"] == 3
    same(pipeline)


def test_explain_says_what_the_row_store_would_make(pipeline: Tabled) -> None:
    same(pipeline)
    key = next(key for key, row in pipeline.in_table("rated").items() if row["orders"])
    said = told(pipeline, "explain", "warehouse", key, "--view", pipeline.view("rated"), "--expected")
    assert said["found"] and said["row_store"]["equal"], said["row_store"]
    assert said["expected"]["equal"], said["expected"]
