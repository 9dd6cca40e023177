"""A promoted cache that forgets everything is made again by `run` itself, also when it forgets again meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import redis

from tests.support.scenario import Scenario
from tests.support.servers import Servers
from tests.support.source import eventually

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]
DATABASE = "/9"  # of its own: FLUSHDB is FLUSHALL for whoever is in it alone


@pytest.fixture
def cached(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    url = local_stack.endpoints.redis_cache_url.rsplit("/", 1)[0] + DATABASE
    made = Scenario(local_stack, tmp_path_factory.mktemp("loss"), extra={"sinks.cache.url": url})
    try:
        made.prepare()
        made.start("--sink", "cache")
        yield made
    finally:
        made.close()


def cache(report: dict[str, Any]) -> dict[str, Any]:
    return next(sink for sink in report["sinks"] if sink["sink"] == "cache")


def healed(generation: int) -> Any:
    def good(report: dict[str, Any]) -> bool:
        sink = cache(report)
        stages = [one["stage"] for one in sink["generations"]]
        return (sink["generation"], sink["state"], sink["lag_events"], stages) == (generation, "running", 0, ["living"])

    return good


def test_a_cache_that_was_flushed_is_made_again(cached: Scenario) -> None:
    shop = cached
    shop.readable(allowed=True)  # the new generation is compared with Postgres before readers see it
    url = shop.stack.endpoints.redis_cache_url.rsplit("/", 1)[0] + DATABASE
    with redis.Redis.from_url(url) as client:
        before = {key for key in client.scan_iter(match=f"{shop.name}:*", count=1000) if b"@" not in key}
        client.flushdb()
        began = time.monotonic()
        report = cache(shop.wait(lambda report: cache(report)["state"] == "rebuilding", 20))  # and nothing was written
        assert report["rebuilding"]["attempt"] <= 1 and report["rebuilding"]["seconds"] < 20
        assert shop.run("status", "--alive", "--sink", "cache") == "alive\n"
        # It forgets again while it is being filled: from the beginning, once more.
        shop.wait(lambda report: [one for one in cache(report)["generations"] if one["stage"] == "filling"])
        assert eventually(lambda: client.dbsize() > 50, 120)
        client.flushdb()
        report = cache(shop.wait(lambda report: cache(report)["state"] == "running", 300))
        assert report["generation"] >= 2
        shop.wait(healed(report["generation"]))
        print(f"flushed twice, whole after {time.monotonic() - began:.0f} s")
        assert {key for key in client.scan_iter(match=f"{shop.name}:*", count=1000) if b"@" not in key} == before
    shop.execute("UPDATE customers SET name = name || '!'")
    shop.assert_equal("--sink", "cache")
    assert not rebuilds(shop)
    # What it has begun ends with it.
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    shop.wait(lambda report: cache(report)["state"] == "rebuilding", 20)
    assert eventually(lambda: bool(rebuilds(shop)), 20)
    (child,) = rebuilds(shop)
    shop.kill_alone()
    assert eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 90)


def rebuilds(shop: Scenario) -> list[psutil.Process]:
    """Processes that the runner has begun to make a sink again (operations/child_process.py)."""
    assert shop.runner is not None
    children = psutil.Process(shop.runner.pid).children()
    return [one for one in children if any("spawn_main" in word for word in one.cmdline())]
