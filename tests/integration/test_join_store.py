"""The row store on a real Redis: the same world as tests/property/test_join_convergence.py, and its limits."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import redis

from cdc.errors import Fenced, SinkRefused, SinkUnavailable
from cdc.formats import ROWS
from deploy.local.endpoints import Endpoints
from sinks.rowstore.contract import Attempt, Contribution, Marks, Swap
from sinks.rowstore.memory.store import MemoryStore
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from tests.support.join_search import Chances, history
from tests.support.redis_server import StartRedis, redis_servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

HISTORIES = 25


class Stepped:
    """A real store; ``step`` is called before each call, which is as far as one client can be cut."""

    def __init__(self, store: RedisRowStore) -> None:
        self._store = store
        self.token = store.settings.token
        self.step: Callable[[str], None] = lambda _what: None
        self.repeats: Any = None

    def again(self, token: int) -> Stepped:
        """Another runner's store on the same server."""
        made = Stepped(RedisRowStore(replace(self._store.settings, token=token)))
        made.step = self.step
        return made

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)

        def stepped(*arguments: Any, **named: Any) -> Any:
            if name not in ("open", "empty", "adopt", "noted", "server", "waiting"):
                self.step(name)
            return verb(*arguments, **named)

        return stepped


def settings_of(url: str, **over: Any) -> StoreSettings:
    return StoreSettings(url=url, namespace=f"{secrets.token_hex(4)}:", title="a test", **over)


@pytest.fixture
def store(stack: Endpoints) -> Iterator[RedisRowStore]:
    made = RedisRowStore(settings_of(stack.redis_store_url, token=1))
    made.setup()
    made.open("a test's")
    yield made
    made.drop()
    made.close()


def test_random_histories_converge_over_a_real_server(store: RedisRowStore) -> None:
    for seed in range(HISTORIES):
        assert history(seed, Stepped(store), chances=Chances(crashes=0.1)) is None
        store.drop()


def test_random_fills_converge_over_a_real_server(store: RedisRowStore) -> None:
    for seed in range(100, 100 + HISTORIES // 2):
        assert history(seed, Stepped(store), chances=Chances(fill=True)) is None
        store.drop()


BY = Attempt("t/0", 5)


def test_namespaces_are_dropped_together_and_nothing_beside_them(stack: Endpoints) -> None:
    stem = secrets.token_hex(4)
    stores = [
        RedisRowStore(StoreSettings(url=stack.redis_store_url, namespace=f"{stem}{name}:", title="a test", token=1))
        for name in ("a", "b", "ab", "c")
    ]
    try:
        for store in stores:
            store.setup()
            store.open("a test's")
            assert store.swap([Swap("r0:1", b"", b"row", False)], BY) == [True]
        gone = stores[0].drop(stores[1].settings.namespace)
        assert gone >= 4
        assert [store.get(["r0:1"]) for store in stores] == [[None], [None], [b"row"], [b"row"]]
        assert stores[2].drop() == stores[3].drop() == gone / 2
    finally:
        for store in stores:
            store.drop()
            store.close()


def test_both_stores_answer_alike(store: RedisRowStore) -> None:
    double = MemoryStore(token=1)
    double.open("a test's")
    for each in (store, double):
        assert each.take(BY) == []
        assert each.swap([Swap("r0:1", b"", b"head-one", False)], BY) == [True]
        assert each.swap([Swap("r0:1", b"", b"head-one", False)], BY) == [True]  # its answer was lost
        assert each.swap([Swap("r0:1", b"", b"other", False), Swap("r0:1", b"head", b"head-two", False)], BY) == [
            False,
            True,
        ]
        assert each.swap([Swap("r0:2", b"what", b"x", False)], BY) == [False]
        assert each.get(["r0:1", "r0:2"]) == [b"head-two", None]
        assert each.take(Attempt("t/0", 6)) == ["r0:1"]  # it has not ended
        each.end(5)
        assert each.take(Attempt("t/0", 7)) == ["r0:1"]
        each.end(7)
        assert each.take(Attempt("t/0", 8)) == []
        assert each.swap([Swap("r0:1", b"", b"head-two", False)], Attempt("t/0", 8)) == [False]  # done long ago
        by = Attempt("t/0", 8)
        each.link([("i0:a", "1"), ("i0:a", "2"), ("i0:b", "1")], by)
        each.unlink([("i0:a", "2")], by)
        assert each.members(["i0:a", "i0:b", "i0:c"]) == [["1"], ["1"], []]
        assert each.sizes(["i0:a", "i0:c"]) == [1, 0]
        assert sorted(m for piece in each.scan("i0:a", 10) for m in piece) == ["1"]
        change = Contribution("0:{p}", [("1", b"", b"[5]")], {"n0": 1, "s0:0": -(10**8)}, [("1:x", 1, "d1")])
        assert each.contribute([change, change], by) == [True, False]
        assert each.contributions([("0:{p}", ["1", "2"])]) == [[b"[5]", b""]]
        assert each.totals(["0:{p}", "0:{q}"]) == [{"n0": 1, "s0:0": -(10**8), "d1": 1}, {}]
        back = Contribution("0:{p}", [("1", b"[5]", b"")], {"n0": -1, "s0:0": 10**8}, [("1:x", -1, "d1")])
        assert each.contribute([back], by) == [True]
        assert each.totals(["0:{p}"]) == [{}]
        ordered = [(0, 1.5, "1.50", 2), (0, 1.5, "1.5", 1), (0, 9.0, "9", 1), (1, 0.0, "b", 1)]
        assert each.contribute([Contribution("0:{p}", [("9", b"", b"x")], ordered=ordered)], by) == [True]
        asked = [("0:{p}", 0, False, False), ("0:{p}", 0, True, False), ("0:{p}", 1, True, True)]
        assert [sorted(members) for members in each.extremes(asked)] == [["1.5", "1.50"], ["9"], ["b"]]
        less = [(0, 1.5, "1.50", -1), (0, 1.5, "1.5", -1), (0, 9.0, "9", -1)]
        assert each.contribute([Contribution("0:{p}", [("9", b"x", b"y")], ordered=less)], by) == [True]
        assert each.extremes(asked[:2]) == [["1.50"], ["1.50"]]
        far = 2**62 + 12345
        assert each.raise_versions([("v:1", 5), ("v:1", 5), ("v:1", far), ("v:1", 7)]) == [5, 6, far, far + 1]
        each.note(7, epoch=2, filled=True)
        each.note(5)
        assert each.noted() == Marks(ROWS, "a test's", 7, 2, True)
        each.lower(4, epoch=3)
        assert each.noted() == Marks(ROWS, "a test's", 4, 3, True)
        assert [each.late("t/0"), each.late("t/0", 9), each.late("t/0")] == [0, 9, 9]


def test_both_stores_arrange_alike(store: RedisRowStore) -> None:
    double = MemoryStore(token=1)
    double.open("a test's")
    for each in (store, double):
        places = [
            ("o0:a", 1.0, "a@1"),
            ("o0:a", 2.0, "a@4"),
            ("o0:a", 2.0, "a@5"),
            ("o0:a", 3.5, "a@2r"),
            ("o0:a", 4.0, "a@3r"),
        ]
        each.arrange(places, BY)
        found = each.beginning([("o0:a", place) for place in (-inf, 1.5, 2.0, 3.75, 9.0)] + [("o0:b", 1.0)])
        read = ["a@2r", "a@3r", "a@4", "a@5"]
        assert [sorted(one) for one in found] == [["a@1"], ["a@1"], ["a@4", "a@5"], ["a@2r", *read[2:]], read, []]
        since = [("o0:a", 2.0), ("o0:a", -inf), ("o0:b", 0.0), ("o0:a", 9.0)]
        assert each.count_onward(since) == [4, 5, 0, 0]
        assert [sorted(one) for one in each.all_onward(since)] == [read, ["a@1", *read], [], []]
        assert {m for piece in each.onward("o0:a", 2.0, 2) for m in piece} == {*read}
        each.arrange([("o0:c", 5.0, "c@1r"), ("o0:c", 6.0, "c@2")], BY)
        assert [sorted(one) for one in each.beginning([("o0:c", 1.0), ("o0:c", 5.0)])] == [["c@1r"]] * 2


def calls(store: Any, by: Attempt) -> dict[str, Callable[[], Any]]:
    """Every verb that writes."""
    return {
        "swap": lambda: store.swap([Swap("r0:9", b"", b"x", False)], by),
        "take": lambda: store.take(by),
        "link": lambda: store.link([("i0:a", "9")], by),
        "unlink": lambda: store.unlink([("i0:a", "9")], by),
        "contribute": lambda: store.contribute([Contribution("0:{p}", [("9", b"", b"[5]")])], by),
        "raise_versions": lambda: store.raise_versions([("v:9", 5)]),
        "fade": lambda: store.fade([("v:9", 5)]),
        "defer": lambda: store.defer({"9": 5}),
        "claim": store.claim,
        "settle": lambda: store.settle([0]),
        "note": lambda: store.note(3),
        "lower": lambda: store.lower(2, epoch=1),
    }


def test_fault_40_a_runner_that_was_taken_over_writes_nothing_more(store: RedisRowStore) -> None:
    heir = RedisRowStore(replace(store.settings, token=2))
    store.take(BY)
    heir.adopt("a test's")
    before = dump(store)
    for verb, call in calls(store, Attempt("t/0", 99)).items():
        with pytest.raises(Fenced):
            call()
        assert dump(store) == before, verb
    store.get(["r0:9"])
    with pytest.raises(Fenced):
        store.confirm()
    with pytest.raises(Fenced):
        store.adopt("a test's")
    for call in calls(heir, Attempt("t/0", 1)).values():  # its attempts are numbered anew
        call()


def test_fault_40_a_task_whose_batch_another_has_begun_writes_nothing_more(store: RedisRowStore) -> None:
    store.take(BY)
    store.take(Attempt("t/0", 6))
    store.take(Attempt("t/1", 2))
    before = dump(store)
    for verb in ("swap", "take", "link", "unlink", "contribute"):
        with pytest.raises(SinkUnavailable, match="later attempt"):
            calls(store, BY)[verb]()
        assert dump(store) == before, verb
    calls(store, Attempt("t/1", 2))["swap"]()


def test_fault_37_a_store_that_was_emptied_takes_nothing_more(start: StartRedis) -> None:
    url = start()
    made = RedisRowStore(settings_of(url, token=1))
    made.setup()
    made.open("a fill")
    made.take(BY)
    with redis.Redis.from_url(url) as client:
        for verb, call in calls(made, BY).items():
            client.flushdb()
            with pytest.raises(SinkUnavailable, match="lost its marks"):
                call()
            assert client.dbsize() == 0, verb
    made.get(["r0:1"])
    with pytest.raises(SinkUnavailable, match="lost its marks"):
        made.confirm()  # before what was read is written
    with pytest.raises(SinkUnavailable, match="lost its marks"):
        made.adopt("a fill")
    made.close()


def test_the_version_of_a_document_that_was_made_again_is_not_forgotten(store: RedisRowStore, stack: Endpoints) -> None:
    (version,) = store.raise_versions([("v:1", 5)])
    with redis.Redis.from_url(stack.redis_store_url) as client:
        key = f"{store.settings.namespace}v:1"
        store.raise_versions([("v:1", 5)])  # by another worker, whose document is there
        store.fade([("v:1", version)])
        assert client.ttl(key) == -1
        store.fade([("v:1", version + 1)])
        assert client.ttl(key) > 0


def test_a_claim_is_settled_by_whoever_claimed_last(store: RedisRowStore) -> None:
    store.defer({"1": 5})
    (shard,) = store.claim()
    other = RedisRowStore(store.settings)
    assert other.claim() == [shard]
    store.settle([shard])
    assert store.waiting() == 1
    other.settle([shard])
    assert store.waiting() == 0


def dump(store: RedisRowStore) -> dict[bytes, bytes]:
    with redis.Redis.from_url(store.settings.url) as client:
        return {key: client.dump(key) for key in client.scan_iter(f"{store.settings.namespace}*")}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartRedis]:
    with redis_servers(tmp_path) as made:
        yield made


def test_a_server_that_may_evict_is_refused(start: StartRedis) -> None:
    made = RedisRowStore(settings_of(start("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")))
    with pytest.raises(SinkRefused) as caught:
        made.setup()
    assert "is allkeys-lru" in str(caught.value) and "maxmemory-policy of 127.0.0.1:" in str(caught.value)
    assert "noeviction" in str(caught.value)


def test_fault_37_a_full_server_holds_the_batch_and_goes_on_when_there_is_room(start: StartRedis) -> None:
    url = start("--maxmemory-policy", "noeviction", "--maxmemory", "3mb")
    waits: list[str] = []
    made = RedisRowStore(settings_of(url, give_up_seconds=0.5), waits.append)
    made.setup()
    swaps = [Swap(f"r0:{n}", b"", b"x" * 1000, False) for n in range(5000)]
    with pytest.raises(SinkUnavailable) as caught:
        made.swap(swaps, Attempt())
    assert "maxmemory" in str(caught.value)
    assert waits
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", "100mb")
    again = made.swap(swaps, Attempt())
    held = made.get([swap.key for swap in swaps])
    assert all(value is not None for value in held)  # those of the cut call are there: False means "already so"
    assert again.count(True) < len(swaps)
    made.close()


def test_scripts_come_back_after_the_server_lost_them(store: RedisRowStore, stack: Endpoints) -> None:
    with redis.Redis.from_url(stack.redis_store_url) as client:
        client.script_flush()
    assert store.raise_versions([("v:1", 5)]) == [5]
