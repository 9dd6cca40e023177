"""dbt over a warehouse, as a user has it: its models are what plain SQL says, now and as it was. `make test-dbt`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from examples.analytics import load as example
from tests.support.analysed import Analysed, Ordering, Rows
from tests.support.local import ready

# It makes an environment for dbt: a hundred MB that nothing else needs.
pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1800)]

NOW = ("revenue_by_day", "customer_orders")
WRITERS = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Analysed]:
    made = Analysed(ready(), tmp_path_factory.mktemp("dbt"), loaders=[example])
    with made.running():
        yield made


@pytest.fixture(scope="module")
def first(world: Analysed) -> dict[str, Rows]:
    """What was so at the cut ``first``."""
    world.assert_equal()
    world.cut("first")
    return world.expected()


def as_it_was(world: Analysed, cut: str) -> Rows:
    return world.model("revenue_as_it_was", "* EXCLUDE (cut, cut_position)", f"cut = '{cut}'")


def test_models_are_what_plain_sql_says(world: Analysed, first: dict[str, Rows]) -> None:
    said = world.build()
    assert "PASS=" in said and "WARN=0" in said and "ERROR=0" in said
    for model in NOW:
        assert world.model(model) == first[model] and first[model], model
    assert as_it_was(world, "first") == first["revenue_as_it_was"]
    assert world.model("order_events", "change") == {'{"change": "read"}': example.ORDERS}


def test_later_a_run_adds_what_is_new_and_still_tells_what_was(world: Analysed, first: dict[str, Rows]) -> None:
    world.watch()
    world.apply_script(example.SCHEMA.with_name("changes.sql"))
    world.assert_equal()
    world.cut("second")
    second = world.expected()
    assert all(first[model] != second[model] for model in second)
    world.build()
    for model in NOW:
        assert world.model(model) == second[model], model
    assert as_it_was(world, "first") == first["revenue_as_it_was"]
    assert as_it_was(world, "second") == second["revenue_as_it_was"]
    events = world.model("order_events", "change, order_id, status, total", "change <> 'read'")
    assert events == world.seen() and events.total() >= 9

    # The whole project as it was then, beside it; and the incremental models from the beginning.
    world.build("--vars", "{cut: first}", database="then")
    assert world.model("revenue_by_day", database="then") == first["revenue_by_day"]
    held = {model: world.model(model) for model in ("revenue_as_it_was", "order_events")}
    world.build("--full-refresh")
    assert held == {model: world.model(model) for model in held}


def test_a_cut_in_the_middle_of_the_load_is_not_torn(world: Analysed) -> None:
    with ExitStack() as writers:
        for seed in range(WRITERS):
            writers.enter_context(Ordering(world.conninfo, seed))
        for number in range(3):
            time.sleep(2.0)
            world.cut(f"busy{number}")
        # While they write: relationships between tables are an error here, and hold.
        world.build("--vars", "{cut: busy1}", database="busy")
        said = world.build()
    assert "PASS no_cut_is_torn" in said
    assert as_it_was(world, "busy1") == world.model("revenue_by_day", database="busy")
    assert len({frozenset(as_it_was(world, f"busy{number}").items()) for number in range(3)}) == 3
    world.assert_equal()
    world.cut("quiet")  # which waits for history
    world.build()
    assert world.model("revenue_by_day") == world.expected()["revenue_by_day"]
    assert world.model("order_events", "change, order_id, status, total", "change <> 'read'") == world.seen()


def test_a_name_that_another_cut_has_now_is_reported_anew(world: Analysed) -> None:
    world.cut("moved")
    world.build()
    was = as_it_was(world, "moved")
    # One that the report counts: an order that is cancelled already would change nothing in it.
    counted = "SELECT min(order_id) FROM orders JOIN order_lines USING (order_id) WHERE status <> 'cancelled'"
    world.execute(f"UPDATE orders SET status = 'cancelled' WHERE order_id = ({counted})")
    world.assert_equal()
    world.run("as-of", "--drop", "moved")
    world.cut("moved")
    world.build()
    assert as_it_was(world, "moved") == world.expected()["revenue_as_it_was"] != was


def test_what_is_wrong_is_told(world: Analysed) -> None:
    done = world.dbt("build", "--vars", "{cut: never}", database="never")
    assert done.returncode and "there is no cut never of orders" in done.stdout
    # An application that writes half of what belongs together: every other test would pass.
    world.execute("UPDATE order_lines SET quantity = quantity + 1 WHERE order_id = 1 AND line = 1")
    world.cut("wrong")
    done = world.dbt("build")
    assert done.returncode and "FAIL 1 no_cut_is_torn" in done.stdout and "ERROR=1" in done.stdout
