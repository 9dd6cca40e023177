"""A column that one sink's view needs is dropped: that sink is refused with the way out, and the others run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.scenario import Scenario
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]
BOTH = ("--sink", "search", "--sink", "cache")


@pytest.fixture
def shop(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    made = Scenario(local_stack, tmp_path_factory.mktemp("refused"))
    try:
        made.prepare()
        made.run("run", *BOTH, "--until-caught-up")
        yield made
    finally:
        made.close()


def states(report: dict[str, Any]) -> dict[str, str]:
    return {sink["sink"]: sink["state"] for sink in report["sinks"]}


def test_the_others_run_and_are_verified(shop: Scenario) -> None:
    shop.execute("ALTER TABLE order_items DROP COLUMN discount")
    shop.launch(*BOTH)
    report = shop.wait(lambda report: states(report)["search"] == "running")
    (cache,) = [sink for sink in report["sinks"] if sink["sink"] == "cache"]
    assert cache["state"] == "failed"
    assert "has no column discount" in cache["last_error"]
    assert f"`headwater rebuild {shop.file} cache --auto`" in cache["last_error"]
    shop.execute("UPDATE customers SET name = name || '!'")
    shop.readable(allowed=True)
    text = shop.run("verify", *BOTH, "--json", "--wait", "60", ok=(2,))
    search, cache = json.loads(text)["sinks"]
    # The documents that take all columns of that table still hold what was dropped, until their rows change.
    assert [view["view"] for view in search["views"] if not view["equal"]] == [shop.view("order_item")]
    assert search["error"] is None and cache["error"] and cache["views"] == []
    assert "has no column discount" in shop.run("check", ok=(1,))
    assert "has no column discount" in shop.run_error("apply")
