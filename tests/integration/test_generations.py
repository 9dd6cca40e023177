"""A new generation beside the living one: filled, shown, left again, removed, while an application writes and reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from ruamel.yaml import YAML

from tests.support.readers import Readers
from tests.support.scenario import Scenario
from tests.support.servers import servers

pytestmark = pytest.mark.stack
# The pipeline's role must not read the tables here, and plan would give it that right back.
ANY_PLAN = (0, 2)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """A captured shop."""
    stack = servers()
    stack.up()
    made = Scenario(stack, tmp_path_factory.mktemp("generations"))
    try:
        made.prepare()
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def stopped(shop: Scenario) -> Iterator[None]:
    """Also after a test that failed: its `run` holds the sink that the next one would start."""
    yield
    shop.stop()


def generations(shop: Scenario, sink: str) -> dict[int, dict[str, Any]]:
    report = json.loads(shop.run("generations", "--json", "--sink", sink))
    return {one["generation"]: one for one in report["sinks"][0]["generations"]}


def stages(shop: Scenario, sink: str) -> dict[int, str]:
    return {number: one["stage"] for number, one in generations(shop, sink).items()}


def needed(shop: Scenario) -> dict[str, dict[str, Any]]:
    """The sinks that need a new generation, by `plan`."""
    return {one["sink"]: one for one in json.loads(shop.run("plan", "--json", ok=ANY_PLAN))["sinks"]}


def followed(shop: Scenario, sink: str, number: int) -> None:
    """Wait until the runner keeps a generation up to date."""

    def there(report: dict[str, Any]) -> bool:
        found = next(one for one in report["sinks"] if one["sink"] == sink)["generations"]
        return any(
            one["generation"] == number and one["state"] == "running" and one["lag_events"] == 0 for one in found
        )

    shop.wait(there)


@pytest.mark.parametrize(
    "sink", ["cache", pytest.param("search", marks=pytest.mark.slow), pytest.param("warehouse", marks=pytest.mark.slow)]
)
def test_a_generation_that_was_never_filled_is_nothing_to_go_back_to(shop: Scenario, sink: str) -> None:
    """`run` would fill it from offset 0 to keep it up to date, as a "previous" one that no reader has ever seen."""
    report = json.loads(shop.run("rebuild", sink, "--json"))
    assert report["generation"] == 2
    assert json.loads(shop.run("promote", sink, "--json"))["previous"] is None
    assert stages(shop, sink) == {2: "living"}
    assert "has no generation that is previous" in shop.run_error("rollback", sink)
    shop.assert_equal("--sink", sink)
    shop.run("drop", "--sink", sink, "--yes")


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["search", "cache", "warehouse"])
def test_rebuild_promote_rollback_retire_under_load(shop: Scenario, sink: str) -> None:
    shop.start("--sink", sink)
    with Readers(shop, sink) as readers, shop.load(seed=11, seconds=25, rate=30):
        report = json.loads(shop.run("rebuild", sink, "--json"))
        assert (report["generation"], report["stage"], report["equal"]) == (2, "ready", None)
        assert report["records"] > 100
        assert stages(shop, sink) == {1: "living", 2: "ready"}
        followed(shop, sink, 2)
        shop.run("promote", sink)
    assert stages(shop, sink) == {1: "previous", 2: "living"}
    shop.assert_equal("--sink", sink)
    shop.assert_equal("--sink", sink, "--generation", "1")
    with Readers(shop, sink) as again, shop.load(seed=12, seconds=6, rate=20):
        shop.run("rollback", sink)
        assert stages(shop, sink) == {1: "living", 2: "previous"}
        shop.run("promote", sink)
    shop.assert_equal("--sink", sink)
    for reader in (readers, again):
        assert reader.reads > 20
        assert (reader.failed, reader.wrong) == ([], [])
    shop.run("retire", sink, "--yes")
    assert stages(shop, sink) == {2: "living"}
    assert readers.leftovers(1) == []
    shop.execute("UPDATE customers SET name = name || '!'")
    shop.assert_equal("--sink", sink)
    shop.stop()


def test_what_readers_see_can_not_be_retired(shop: Scenario) -> None:
    shop.run("retire", "search", "--generation", str(max(stages(shop, "search"))), "--yes", ok=(1,))


@pytest.mark.sampled(part=5)
def test_a_changed_view_is_planned_built_beside_and_can_be_left_again(shop: Scenario) -> None:
    shop.start("--sink", "search")
    before = max(stages(shop, "search"))
    assert needed(shop) == {}
    document = YAML(typ="safe").load(shop.file.read_text())
    view = shop.view("product")
    document["views"][view]["fields"]["shout"] = "upper(name)"
    document["sinks"]["search"]["mapping"]["shout"] = {"type": "keyword"}
    with shop.file.open("w") as out:
        YAML().dump(document, out)
    # The view is the cache's as well, if another test has made a generation of that.
    wanted = needed(shop)["search"]
    assert wanted["because"] == [f"views.{view}.fields.shout added", "sink.mapping.shout added"]
    assert wanted["documents"] is not None and wanted["minutes"] is not None
    assert "new generation needed, because" in shop.run("plan", ok=(2,))
    # The living generation goes on as it was defined, also after a start with the new file.
    shop.stop()
    shop.start("--sink", "search")
    shop.execute("UPDATE products SET name = name || '?'")
    shop.assert_equal("--sink", "search")
    assert "shout" not in one(shop, view)
    report = json.loads(shop.run("rebuild", "search", "--auto", "--json")) if _readable(shop) else {}
    assert (report["stage"], report["equal"], report["generation"]) == ("living", True, before + 1)
    found = one(shop, view)
    assert found["shout"] == found["name"].upper()
    assert "search" not in needed(shop)
    shop.run("rollback", "search")
    assert "shout" not in one(shop, view)
    shop.run("promote", "search")
    followed(shop, "search", before + 1)
    shop.assert_equal("--sink", "search")
    shop.stop()


def _readable(shop: Scenario) -> bool:
    shop.readable(allowed=True)  # verification reads Postgres
    return True


def one(shop: Scenario, view: str) -> dict[str, Any]:
    """Some document that searchers see."""
    answer = requests.get(f"{shop.stack.endpoints.elasticsearch_url}/{view}/_search?size=1", timeout=10).json()
    source: dict[str, Any] = answer["hits"]["hits"][0]["_source"]
    return source


@pytest.mark.slow
def test_a_second_rebuild_waits_until_the_first_is_promoted_or_retired(shop: Scenario) -> None:
    shop.start("--sink", "cache")
    shop.run("rebuild", "cache")
    ready = max(stages(shop, "cache"))
    shop.run("rebuild", "cache", ok=(1,))
    followed(shop, "cache", ready)
    shop.run("retire", "cache", "--generation", str(ready), "--yes")
    assert ready not in stages(shop, "cache")


@pytest.mark.slow
def test_a_target_that_is_gone_is_not_made_anew_without_its_rows(shop: Scenario) -> None:
    shop.start("--sink", "search")
    shop.assert_equal("--sink", "search")
    shop.stop()
    living = next(number for number, stage in stages(shop, "search").items() if stage == "living")
    url = shop.stack.endpoints.elasticsearch_url
    requests.delete(f"{url}/{shop.view('product')}_g{living}", timeout=30).raise_for_status()
    said = shop.run("run", "--sink", "search", "--until-caught-up", "--timeout", "120", ok=(1,))
    report = shop.status()
    (state,) = [sink for sink in report["sinks"] if sink["sink"] == "search"]
    assert "is gone" in state["last_error"], said
    fixed = json.loads(shop.run("rebuild", "search", "--auto", "--json")) if _readable(shop) else {}
    assert (fixed["stage"], fixed["equal"]) == ("living", True)
    assert one(shop, shop.view("product"))["name"]
