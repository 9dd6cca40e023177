"""What a large server is at is waited for while it goes on: merges of an index, a Redis's files. Servers are played."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import EraseUnfinished
from sinks.elasticsearch import expunge
from sinks.elasticsearch.expunge import Expunger
from sinks.lasting import Lasting
from sinks.redis import persist
from sinks.redis.persist import write_anew
from sinks.redis.settings import Settings

CONFIG = {"type": "elasticsearch", "name": "search", "url": "http://h:9200", "targets": {"thing": {}}}
LIMIT = 600.0


class Clock:
    """Time passes where somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, step: float) -> None:
        self.now, self.step = 1000.0, step
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self, sleep=self.sleep))
        monkeypatch.setattr(module, "Lasting", partial(Lasting, clock=self), raising=False)

    def __call__(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += self.step


class Index:
    """An index whose segments with deletes are merged one after the other, one at each flush.

    Args:
        merges: how many segments a merge takes along at a flush, one after the other.
        ends: whether a request for merges has ended at once, and leaves the others as they are.
    """

    def __init__(self, *merges: int, ends: bool = False) -> None:
        self.merges, self.ends = list(merges), ends
        self.segments_left, self.requests, self.done = max(1, sum(merges)), 0, threading.Event()
        self.indices = self

    def options(self, **_: Any) -> Index:
        return self

    def close(self) -> None:
        self.done.set()

    def get_settings(self, index: str, **_: Any) -> Any:
        return SimpleNamespace(body={index: {"settings": {"index.number_of_shards": "1"}}})

    def segments(self, index: str) -> Any:
        there = {f"_{n}": {"deleted_docs": 1, "committed": True} for n in range(self.segments_left)}
        # What was written since has deleted documents of its own.
        young = {f"_new{self.requests}{self.segments_left}": {"deleted_docs": 1, "committed": True}}
        copy = {"routing": {"node": "n"}, "segments": there | (young if self.requests else {})}
        return SimpleNamespace(body={"indices": {index: {"shards": {"0": [copy]}}}})

    def stats(self, index: str, metric: str = "", **_: Any) -> Any:
        if metric:
            return SimpleNamespace(body={"_all": {"total": {"merges": {"current": int(not self.ends)}}}})
        return SimpleNamespace(body={"indices": {index: {"shards": {"0": [{}]}}}})

    def flush(self, **_: Any) -> None:
        if self.requests and self.merges:
            self.segments_left -= self.merges.pop(0)

    def refresh(self, **_: Any) -> None:
        pass

    def forcemerge(self, **_: Any) -> None:
        self.requests += 1
        if not self.ends:
            self.done.wait(2)


def expunged(monkeypatch: pytest.MonkeyPatch, index: Index, step: float) -> list[str]:
    Clock(monkeypatch, expunge, step)
    monkeypatch.setattr(expunge, "connect", lambda _settings: index)
    monkeypatch.setattr(expunge, "SAY_SECONDS", 0.01, raising=False)
    server, said = Expunger(CONFIG), list[str]()
    try:
        server.expunge("thing_g1", {}, said.append, LIMIT)
    finally:
        server.close()
    return said


@pytest.mark.parametrize("merges", [(1, 1, 1, 1), (0, 0, 0, 4)], ids=["small ones", "a large one"])
def test_merges_that_take_longer_than_the_wait_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, merges: tuple[int, ...]
) -> None:
    """An index whose merges took more than ten minutes could never be erased from: each call began with all anew."""
    index = Index(*merges)
    said = expunged(monkeypatch, index, 500.0)
    assert said[-1] == f"index thing_g1: waiting for merges, {4 - sum(merges[:3])} segments are left"
    assert (index.segments_left, index.requests) == (0, 1)


def test_documents_that_no_merge_removes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(ends=True)
    with pytest.raises(EraseUnfinished, match=r"thing_g1 holds deleted documents, and none has gone for 600 s"):
        expunged(monkeypatch, index, 250.0)
    assert index.requests > 1


def redis_of(monkeypatch: pytest.MonkeyPatch, *infos: dict[str, int]) -> tuple[list[str], list[str]]:
    """Has the log of a Redis written anew that tells this of itself, the last for good; commands, and lines said."""
    told, asked, said = [{"aof_enabled": 1, "rdb_saves": 0}, *infos], list[str](), list[str]()

    def info(section: str) -> dict[str, int]:
        return (told.pop(0) if len(told) > 1 else told[0]) if section == "persistence" else {}

    node = SimpleNamespace(
        info=info,
        config_get=lambda _name: {},
        execute_command=asked.append,
        get_connection_kwargs=lambda: {"host": "h", "port": 1},
        close=lambda: None,
    )
    Clock(monkeypatch, persist, 400.0)
    monkeypatch.setattr(persist, "connect", lambda _settings: node)
    write_anew(Settings(name="cache", url="redis://h", targets={}), said.append, LIMIT)
    return asked, said


BUSY, FREE = {"aof_rewrite_in_progress": 1}, {"aof_rewrite_in_progress": 0}


@pytest.mark.parametrize("far", ["current_save_keys_processed", "aof_current_rewrite_time_sec"])
def test_a_redis_that_writes_for_longer_than_the_wait_is_waited_for(monkeypatch: pytest.MonkeyPatch, far: str) -> None:
    """Each call waited for a rewrite, began another, and gave up after ten minutes."""
    under_way = [{**BUSY, far: n, "current_save_keys_total": 9000 * ("keys" in far)} for n in (1000, 2000, 3000, 4000)]
    asked, said = redis_of(monkeypatch, *under_way, FREE, *under_way, FREE)
    assert asked == ["BGREWRITEAOF"]
    words = ", 4,000 of 9,000 keys are written" if "keys" in far else ""
    assert said[-1] == f"h:1: waiting for its files{words}"


def test_a_redis_that_does_not_go_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EraseUnfinished, match="has not gone on with writing its files for 600 s") as caught:
        redis_of(monkeypatch, {**BUSY, "current_save_keys_processed": 7, "aof_current_rewrite_time_sec": 9})
    assert "--wait" not in str(caught.value)
