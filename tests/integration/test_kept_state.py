"""What an earlier version left in Redis goes into a real server and comes out the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from deploy.local.endpoints import Endpoints
from tests.support import redis_dump
from tests.support.kept import Kept

pytestmark = pytest.mark.stack

# A database of the server's that no pipeline uses.
ASIDE = 7


@pytest.fixture
def client(stack: Endpoints) -> Iterator[Any]:
    with Redis.from_url(f"{stack.redis_store_url.rpartition('/')[0]}/{ASIDE}") as made:
        made.flushdb()
        yield made
        made.flushdb()


@pytest.mark.parametrize("moment", ["first", "second"])
@pytest.mark.parametrize("name", ["rowstore", "cache"])
def test_restored_and_dumped_again(client: Any, moment: str, name: str) -> None:
    kept = Kept("state_0_1", moment)
    kept.restore_keys(name, client)
    was, now = kept.read(name), redis_dump.dump(client)
    assert [{**entry, "ttl_ms": 0} for entry in now] == [{**entry, "ttl_ms": 0} for entry in was]
    assert [entry["ttl_ms"] > 0 for entry in now] == [entry["ttl_ms"] > 0 for entry in was]
