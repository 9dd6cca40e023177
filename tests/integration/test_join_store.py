"""The row store on a real Redis: the same world as tests/property/test_join_convergence.py, and its limits."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from cdc.errors import SinkRefused, SinkUnavailable
from deploy.local import artifacts
from deploy.local.endpoints import Endpoints
from deploy.local.services.redis import program
from sinks.rowstore.contract import Contribution, Swap
from sinks.rowstore.memory import MemoryStore
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from tests.support.joins import history

pytestmark = pytest.mark.stack

HISTORIES = 25


class Stepped:
    """A real store; ``step`` is called before each call, which is as far as one client can be cut."""

    def __init__(self, store: RedisRowStore) -> None:
        self._store = store
        self.step: Callable[[str], None] = lambda _what: None

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)

        def stepped(*arguments: Any) -> Any:
            self.step(name)
            return verb(*arguments)

        return stepped


def settings_of(url: str, **over: Any) -> StoreSettings:
    return StoreSettings(url=url, namespace=f"{secrets.token_hex(4)}:", title="a test", **over)


@pytest.fixture
def store(stack: Endpoints) -> Iterator[RedisRowStore]:
    made = RedisRowStore(settings_of(stack.redis_store_url))
    made.setup()
    yield made
    made.drop()
    made.close()


def test_random_histories_converge_over_a_real_server(store: RedisRowStore) -> None:
    for seed in range(HISTORIES):
        assert history(seed, Stepped(store)) is None
        store.drop()
        store.setup()


def test_random_fills_converge_over_a_real_server(store: RedisRowStore) -> None:
    for seed in range(100, 100 + HISTORIES // 2):
        assert history(seed, Stepped(store), fill=True) is None
        store.drop()
        store.setup()


def test_both_stores_answer_alike(store: RedisRowStore) -> None:
    double = MemoryStore()
    for each in (store, double):
        assert each.swap([Swap("r0:1", b"", b"head-one", False)]) == [True]
        assert each.swap([Swap("r0:1", b"", b"other", False), Swap("r0:1", b"head", b"head-two", False)]) == [
            False,
            True,
        ]
        assert each.swap([Swap("r0:2", b"what", b"x", False)]) == [False]
        assert each.get(["r0:1", "r0:2"]) == [b"head-two", None]
        each.link([("i0:a", "1"), ("i0:a", "2"), ("i0:b", "1")])
        each.unlink([("i0:a", "2")])
        assert each.members(["i0:a", "i0:b", "i0:c"]) == [["1"], ["1"], []]
        assert each.sizes(["i0:a", "i0:c"]) == [1, 0]
        assert sorted(m for piece in each.scan("i0:a", 10) for m in piece) == ["1"]
        change = Contribution("0:{p}", [("1", b"", b"[5]")], {"n0": 1, "s0:0": -(10**8)}, [("1:x", 1, "d1")])
        assert each.contribute([change, change]) == [True, False]
        assert each.contributions([("0:{p}", ["1", "2"])]) == [[b"[5]", b""]]
        assert each.totals(["0:{p}", "0:{q}"]) == [{"n0": 1, "s0:0": -(10**8), "d1": 1}, {}]
        back = Contribution("0:{p}", [("1", b"[5]", b"")], {"n0": -1, "s0:0": 10**8}, [("1:x", -1, "d1")])
        assert each.contribute([back]) == [True]
        assert each.totals(["0:{p}"]) == [{}]
        ordered = [
            (0, 1.5, '"1.50"\0a', True),
            (0, 1.5, '"1.5"\0b', True),
            (0, 9.0, "9\0c", True),
            (1, 0.0, "b\0a", True),
        ]
        assert each.contribute([Contribution("0:{p}", [("9", b"", b"x")], ordered=ordered)]) == [True]
        found = each.extremes([("0:{p}", 0, False, False), ("0:{p}", 0, True, False), ("0:{p}", 1, True, True)])
        assert [sorted(members) for members in found] == [['"1.5"\0b', '"1.50"\0a'], ["9\0c"], ["b\0a"]]
        far = 2**62 + 12345
        assert each.raise_versions([("v:1", 5), ("v:1", 5), ("v:1", far), ("v:1", 7)]) == [5, 6, far, far + 1]
        each.note({"t/0": 7, "t/1": 3})
        each.note({"t/0": 5})
        assert each.noted() == {"t/0": 7, "t/1": 3}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a redis-server of the test's own with the given options; its URL."""
    executable = program(artifacts.ensure(["redis"], lambda _line: None)["redis"])
    running: list[subprocess.Popen[bytes]] = []

    def run(*options: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        argv = [str(executable), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", ""]
        running.append(subprocess.Popen([*argv, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        with redis.Redis(port=port) as client:
            for _ in range(100):
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
        return f"redis://127.0.0.1:{port}/0"

    yield run
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def test_a_server_that_may_evict_is_refused(start: Callable[..., str]) -> None:
    made = RedisRowStore(settings_of(start("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")))
    with pytest.raises(SinkRefused) as caught:
        made.setup()
    assert "maxmemory-policy of the server is allkeys-lru" in str(caught.value)
    assert "noeviction" in str(caught.value)


def test_fault_37_a_full_server_holds_the_batch_and_goes_on_when_there_is_room(start: Callable[..., str]) -> None:
    url = start("--maxmemory-policy", "noeviction", "--maxmemory", "3mb")
    waits: list[str] = []
    made = RedisRowStore(settings_of(url, give_up_seconds=0.5), waits.append)
    made.setup()
    swaps = [Swap(f"r0:{n}", b"", b"x" * 1000, False) for n in range(5000)]
    with pytest.raises(SinkUnavailable) as caught:
        made.swap(swaps)
    assert "maxmemory" in str(caught.value)
    assert waits
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", "100mb")
    again = made.swap(swaps)
    held = made.get([swap.key for swap in swaps])
    assert all(value is not None for value in held)  # those of the cut call are there: False means "already so"
    assert again.count(True) < len(swaps)
    made.close()


def test_scripts_come_back_after_the_server_lost_them(store: RedisRowStore, stack: Endpoints) -> None:
    with redis.Redis.from_url(stack.redis_store_url) as client:
        client.script_flush()
    assert store.raise_versions([("v:1", 5)]) == [5]
