"""Whether a row store's server may evict keys, as far as it tells: managed ones forbid CONFIG."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from cdc.errors import SinkRefused, SinkUnavailable
from operations.check import sinks
from sinks.rowstore import redis as rowstore
from sinks.rowstore import talk
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings


class Node:
    """A server.

    Args:
        info: what its INFO says of the policy; None for nothing.
        config: what CONFIG GET does: a policy, or an error.
    """

    def __init__(self, info: str | None, config: str | Exception) -> None:
        self._info, self._config, self.asked = info, config, 0

    def get_connection_kwargs(self) -> dict[str, Any]:
        return {"host": "r", "port": 1}

    def info(self, section: str) -> dict[str, Any]:
        assert section == "memory"
        return {"used_memory": 5, "maxmemory": 9} | ({"maxmemory_policy": self._info} if self._info else {})

    def config_get(self, name: str) -> dict[str, str]:
        self.asked += 1
        if isinstance(self._config, Exception):
            raise self._config
        return {name: self._config}

    def script_load(self, _source: str) -> None:
        """Nothing."""

    def hset(self, *_: str) -> None:
        """Nothing."""


FORBIDDEN = redis.exceptions.NoPermissionError("User u has no permissions to run the 'config|get' command")
UNKNOWN = redis.ResponseError("unknown command 'CONFIG', with args beginning with: 'GET'")


def store(monkeypatch: pytest.MonkeyPatch, node: Node) -> RedisRowStore:
    monkeypatch.setattr(talk, "connect", lambda _login: node)
    monkeypatch.setattr(rowstore, "_SAID", set())
    return RedisRowStore(StoreSettings("redis://r:1/0", "n:", "t", give_up_seconds=0.1))


def test_one_that_tells_by_info_is_not_asked_for_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("noeviction", FORBIDDEN)
    assert store(monkeypatch, node).refuse_evicting() == "" and node.asked == 0
    with pytest.raises(SinkRefused, match="maxmemory-policy of r:1 is allkeys-lru"):
        store(monkeypatch, Node("allkeys-lru", FORBIDDEN)).setup()


def test_one_that_does_not_is_asked_for_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store(monkeypatch, Node(None, "noeviction")).refuse_evicting() == ""
    with pytest.raises(SinkRefused, match="volatile-ttl"):
        store(monkeypatch, Node(None, "volatile-ttl")).refuse_evicting()


@pytest.mark.parametrize("refusal", [FORBIDDEN, UNKNOWN])
def test_one_that_does_not_tell_at_all_is_used_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: Exception
) -> None:
    made = store(monkeypatch, Node(None, refusal))
    with caplog.at_level(logging.WARNING):
        made.setup()
        made.setup()
    assert caplog.text.count("does not tell its maxmemory-policy") == 1 and "noeviction" in caplog.text
    found = sinks._finding("row_store", made.refuse_evicting)
    assert found is not None and found.level.value == "warning" and "noeviction" in found.message


def test_one_that_is_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = redis.ResponseError("LOADING Redis is loading the dataset in memory")
    with pytest.raises(SinkUnavailable):
        store(monkeypatch, Node(None, loading)).refuse_evicting()
