"""Folds, windows and matches as tables of a warehouse: what the cache holds, in columns of honest types."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from cdc.types import canonical_result
from examples.events import load as events
from tests.support.kept_lake import VIEWS, KeptLake
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

MOMENT, OWN = "timestamptz", {"_hw_id": "string", "_hw_version": "long"}
COLUMNS = {
    "views_by_hour": {
        **{"grouping": "string", "ip": "string", "page": "string", "window_start": MOMENT, "window_end": MOMENT},
        **{"views": "long", "people": "long", "ms_p95": "double", "late": "long"},
    },
    "unpaid": {"key": "string", "at": MOMENT, "total": "decimal(10, 2)", "late": "long"},
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptLake]:
    """Both sinks, followed."""
    stack = servers()
    stack.up()
    made = KeptLake(stack, tmp_path_factory.mktemp("kept"), loaders=[events])
    with made.running():
        yield made


def plain(value: Any) -> Any:
    """What is in a table as documents have it; a map is pairs there."""
    return json.loads(json.dumps(canonical_result(value)))


def same(kept: KeptLake) -> bool:
    """Whether both sinks hold the same, and something."""
    return all(kept.in_redis(view) and plain(kept.rows(view)) == kept.in_redis(view) for view in VIEWS)


def test_a_table_has_what_the_cache_has_in_columns_of_their_own_types(kept: KeptLake) -> None:
    assert kept.settled(lambda: same(kept), wanted=True), {
        view: (len(kept.rows(view)), len(kept.in_redis(view))) for view in VIEWS
    }
    for view, columns in COLUMNS.items():
        assert kept.columns(view) == columns | OWN
    assert kept.columns("search")["then"].startswith("list<struct<")
    states = kept.columns("order_state")
    assert states["order"] == "string" and states["seen"] == "map<string, timestamptz>" and "_hw_id" not in states


def verified(kept: KeptLake, *options: str) -> dict[str, dict[str, Any]]:
    """View -> what `verify --json` says of it in the warehouse."""
    report = json.loads(kept.run("verify", "--json", "--wait", "60", "--sink", "warehouse", *options, ok=(0, 2)))
    (sink,) = report["sinks"]
    assert sink["error"] is None
    return {view["view"].removeprefix(f"{kept.name}_"): view for view in sink["views"]}


def test_verify_computes_tables_a_second_time_and_finds_what_is_not_so(kept: KeptLake) -> None:
    key = next(iter(kept.rows("search")))
    kept.take_away("search", key)
    found = verified(kept)
    assert found.keys() == set(VIEWS)
    for name, view in found.items():
        assert view["missing"] == ([key] if name == "search" else []), view
        assert (view["differences"], view["undecided"]) == (int(name == "search"), 0), view
        assert view["compared"] == len(kept.rows(name)) > 0
    assert found["views_by_hour"]["within"] == 2 * found["views_by_hour"]["compared"]


def test_it_is_asked_and_explained_as_any_table(kept: KeptLake) -> None:
    view, key = kept.view("views_by_hour"), next(iter(kept.rows("views_by_hour")))
    told = json.loads(kept.run("query", f"SELECT sum(views) AS n FROM {view} WHERE grouping = ''", "--json"))
    assert told["rows"] == [
        [sum(one["views"] for one in kept.in_redis("views_by_hour").values() if not one["grouping"])]
    ]
    kept.run("query", f"FROM {view}", "--fresh", ok=(2,))  # its rows are Spark's to make
    explained = json.loads(kept.run("explain", "warehouse", key, "--view", view, "--expected", "--json"))
    assert explained["expected"]["equal"] and explained["held"]["lsn"] is None  # its version is no position


def test_a_table_is_made_again_from_the_log_and_followed(kept: KeptLake) -> None:
    kept.run("rebuild", "warehouse", "--auto")
    assert not any(view["differences"] for view in verified(kept).values())
    with psycopg.connect(kept.conninfo) as connection:
        values = (uuid.uuid4(), "new", datetime.now(UTC))
        connection.execute(
            "INSERT INTO outbox VALUES (%s, 'order', %s, 'ordered', '{\"total\": \"1.50\"}', %s)", values
        )
    assert kept.settled(lambda: "new" in kept.rows("order_state") and same(kept), wanted=True)
    assert json.loads(kept.run("generations", "--json"))
