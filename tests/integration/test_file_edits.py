"""The file changes while it runs: what was applied is taken up, what was only saved is not, the rest never stops."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.scenario import Scenario
from tests.support.servers import servers

# A generation is built and compared besides: three Spark sessions beside each other on a loaded machine.
pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500), pytest.mark.sampled(part=0)]
Document = dict[str, Any]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Scenario]:
    """A shop with two sinks: an index of products, a cache of customers and orders."""
    stack = servers()
    stack.up()
    made = Scenario(stack, tmp_path)
    try:
        made.prepare()
        made.readable(allowed=True)  # a next generation is compared with Postgres before it is shown
        _edit(made, _two_sinks(made))
        made.start()
        yield made
    finally:
        made.write_pipeline()
        made.close()


def _edit(shop: Scenario, change: Callable[[Document], None]) -> None:
    document = YAML(typ="safe").load(shop.file.read_text())
    change(document)
    with shop.file.open("w") as out:
        YAML().dump(document, out)


def _two_sinks(shop: Scenario) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        sinks = document["sinks"]
        del sinks["warehouse"]
        sinks["search"] = {**sinks["search"], "views": [shop.view("product")], "mapping": {}}
        sinks["cache"] = {**sinks["cache"], "views": [shop.view("customer"), shop.view("order")]}

    return change


def _sink(report: Document, name: str) -> Document:
    return next(one for one in report["sinks"] if one["sink"] == name)


def _flow(report: Document, name: str) -> Document:
    [flow] = _sink(report, name)["flows"]
    return flow


def test_what_is_applied_is_taken_up_and_the_rest_goes_on(shop: Scenario) -> None:
    with shop.load(seed=41, seconds=25, rate=20):
        before = shop.wait(lambda now: _flow(now, "cache")["written"] > 0)
        cache = _flow(before, "cache")

        def change(document: Document) -> None:
            document["views"][shop.view("product")]["fields"]["cheap"] = "price < 10"
            warehouse = shop.folder / "warehouse"
            document["sinks"]["warehouse"] = {
                "type": "iceberg",
                "tables": ["public.customers"],
                "catalog_uri": str(warehouse / "catalog.db"),
                "warehouse": str(warehouse),
                "namespace": shop.name,
                "trigger_seconds": 2,
            }

        _edit(shop, change)  # saved, and not applied
        time.sleep(4)
        report = shop.status("search", "cache")
        assert report["file"]["running"] == before["file"]["running"]
        assert _sink(report, "search")["generations"][-1]["generation"] == 1
        planned = json.loads(shop.run("plan", "--json", ok=(2,)))["run"]
        assert (planned["added"], planned["removed"], list(planned["rebuilt"])) == (["warehouse"], [], ["search"])

        told = json.loads(shop.run("apply", "--json"))
        assert told["run"] == planned

        def taken(now: Document) -> bool:
            flow = _flow(now, "cache")
            # `dead` is a status that was not written for 15 s: so long a loaded machine may take to begin a warehouse.
            assert flow["pid"] == cache["pid"] and flow["state"] in ("running", "dead"), now
            assert flow["written"] >= cache["written"] and flow["restarts"] == cache["restarts"], now
            cache.update(flow)
            return (
                _sink(now, "search")["generation"] == 2
                and _sink(now, "warehouse")["state"] == "running"
                and not now["file"]["building"]
            )

        after = shop.wait(taken, 1000)
        assert after["file"]["running"] != before["file"]["running"] and after["file"]["refused"] is None
        assert _sink(after, "search")["generations"][0]["stage"] == "previous"
    shop.assert_equal()

    # What only a new process can do changes nothing.
    _edit(shop, lambda document: document["engine"].update(max_offsets_per_trigger=100_000))
    assert "run must be started again for engine.max_offsets_per_trigger" in shop.run("apply")
    refused = shop.wait(lambda now: now["file"]["refused"] is not None, 30)["file"]
    assert "engine.max_offsets_per_trigger" in refused["refused"]["reason"]
    assert refused["running"] == after["file"]["running"]

    # A sink that is gone is asked for first.
    _edit(shop, lambda document: (document["engine"].pop("max_offsets_per_trigger"), document["sinks"].pop("cache")))
    assert "Let go of cache?" in shop.run_error("apply")
    shop.run("apply", "--yes")
    until = time.monotonic() + 60
    while "cache, generation 1: let go, it is not in the file any more" not in shop.log():
        assert time.monotonic() < until, shop.log()
        time.sleep(0.3)
    report = shop.status()
    assert [one["sink"] for one in report["sinks"]] == ["search", "warehouse"]
    assert all(one["state"] == "running" for one in report["sinks"]), report
