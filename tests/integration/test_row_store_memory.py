"""What memory the row store takes, as `run` asks it on the side."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from cdc.pipeline import Pipeline, load
from deploy.local.rediscluster import RedisCluster
from operations.freshness.row_store import RowStoreMemory
from sinks.rowstore.redis import RedisRowStore
from tests.support.lone_cache import FILE
from tests.support.redis_server import redis_servers

pytestmark = pytest.mark.stack

LIMIT = 100 * 2**20


def made(folder: Path, url: str, more: str = "") -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(FILE.format(folder=folder / "state") + f'row_store: {{url: "{url}"{more}}}\n')
    return load(path)


def test_it_tells_what_is_used_and_what_may_be(tmp_path: Path) -> None:
    with redis_servers(tmp_path) as server:
        url = server("--maxmemory", str(LIMIT))
        memory, node = RowStoreMemory(made(tmp_path, url)), url.removeprefix("redis://").removesuffix("/0")
        before = memory.look()
        assert list(before) == [node] and before[node]["limit_bytes"] == LIMIT
        with redis.Redis.from_url(url) as client:
            client.set("rows", b"x" * 20 * 2**20)
        grown = memory.look()[node]["used_bytes"] - before[node]["used_bytes"]
        assert 20 * 2**20 <= grown < LIMIT  # the value, and for a moment what it came in
        memory.close()


def test_one_that_is_away_tells_nothing_and_keeps_nobody_for_long(tmp_path: Path) -> None:
    with redis_servers(tmp_path) as server:
        url = server()
        memory = RowStoreMemory(made(tmp_path, url))
        assert memory.look()[url.removeprefix("redis://").removesuffix("/0")]["limit_bytes"] == 0
    began = time.monotonic()
    assert memory.look() == {} and time.monotonic() - began < 10
    memory.close()


def test_every_node_of_a_cluster_is_told(tmp_path: Path) -> None:
    with RedisCluster(tmp_path) as cluster:
        memory = RowStoreMemory(made(tmp_path, cluster.url, ", cluster: true"))
        found = memory.look()
        memory.close()
        assert {int(node.rpartition(":")[2]) for node in found} == set(cluster.ports)
    assert all(one["used_bytes"] > 2**18 for one in found.values())


def test_a_file_without_a_row_store_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisRowStore, "memory", lambda _self: pytest.fail("it asked"))
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state"))
    memory = RowStoreMemory(load(path))
    assert memory.look() == {}
    memory.close()
