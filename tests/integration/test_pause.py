"""A maintenance window under a writer: one sink stands still, the others go on, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from tests.support.scenario import Scenario
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Scenario]:
    """A captured shop that is followed."""
    stack = servers()
    stack.up()
    made = Scenario(stack, tmp_path)
    with made.running():
        yield made


def _committed(shop: Scenario, sink: str) -> tuple[dict[str, Any], ...]:
    """Where each flow of a sink is in the log."""
    return tuple(flow["offsets"] for flow in shop.status(sink)["sinks"][0]["flows"])


def _state(report: dict[str, Any], sink: str) -> str:
    return next(str(one["state"]) for one in report["sinks"] if one["sink"] == sink)


def test_a_paused_sink_gets_nothing_and_loses_nothing(shop: Scenario) -> None:
    with shop.load(seed=31, seconds=40, rate=30):
        time.sleep(2)
        begun = time.monotonic()
        shop.run("pause", "cache", "--why", "new disks")
        assert time.monotonic() - begun < 40  # seconds; a loaded machine took 26; it says nothing before all is let go
        stood, others = _committed(shop, "cache"), _committed(shop, "search")
        time.sleep(6)
        assert _committed(shop, "cache") == stood
        assert _committed(shop, "search") != others
        report = shop.status()
        assert _state(report, "cache") == "paused" and _state(report, "search") in ("running", "starting")
        [told] = [one["paused"] for one in report["sinks"] if one["sink"] == "cache"]
        assert told["why"] == "new disks"

        shop.kill()  # who comes next leaves it alone too
        shop.launch()
        shop.wait(lambda now: _state(now, "search") == "running")
        time.sleep(3)
        assert _committed(shop, "cache") == stood
    shop.assert_equal("--sink", "search")
    shop.wait(lambda now: all(one["lag_events"] == 0 for one in now["sinks"] if one["sink"] != "cache"))
    assert _committed(shop, "cache") == stood
    assert "--until-caught-up" not in shop.run_error("run", "--until-caught-up", "--sink", "cache")

    shop.run("resume", "cache")
    seen: set[str] = set()

    def goes_on(now: dict[str, Any]) -> bool:
        seen.update(one["judgement"] for one in now["sinks"])
        return all(one["state"] == "running" and one["lag_events"] == 0 for one in now["sinks"])

    shop.wait(goes_on)
    assert "stopped" not in seen  # `run` is alive, and takes it up: nobody is alarmed, or told to start it
    assert _committed(shop, "cache") != stood
    shop.assert_equal()


def test_run_stays_when_all_that_it_has_is_paused(shop: Scenario) -> None:
    shop.stop()
    for sink in ("search", "cache", "warehouse"):
        shop.run("pause", sink)
    shop.launch()
    until = time.monotonic() + 120
    while "search is paused" not in shop.log():
        assert time.monotonic() < until, shop.log()
        time.sleep(0.5)
    time.sleep(3)
    runner = shop.runner
    assert runner is not None and runner.poll() is None, shop.log()
    shop.stop()
    assert runner.returncode == 0, shop.log()  # told to stop, with nothing that failed
    shop.launch()
    shop.run("resume", "search")
    shop.wait(lambda now: _state(now, "search") == "running")
    assert {_state(shop.status(), sink) for sink in ("cache", "warehouse")} == {"paused"}


def test_an_index_that_was_put_back_from_a_snapshot_is_refused(shop: Scenario) -> None:
    """Its alias tells: what a snapshot of before has. What lies between that and the pause is read by nobody again."""
    alias = shop.view("product")
    shop.run("pause", "search")
    with Elasticsearch(shop.stack.endpoints.elasticsearch_url, request_timeout=60) as client:
        [index] = client.indices.get_alias(name=alias).body
        [writer] = [name for name in client.indices.get_alias(index=index).body[index]["aliases"] if name != alias]
        stem, _, token = writer.rpartition("_w")
        older = {"index": index, "alias": f"{stem}_w{int(token) - 1000}", "is_hidden": True}
        client.indices.update_aliases(actions=[{"remove": {"index": index, "alias": writer}}, {"add": older}])
    shop.run("resume", "search")
    report = shop.wait(lambda now: _state(now, "search") == "failed")
    told = [str(flow["last_error"]) for one in report["sinks"] if one["sink"] == "search" for flow in one["flows"]]
    assert any(f"the target of {alias} was put back from an older copy" in error for error in told), told
    assert _state(shop.status(), "cache") == "running"
