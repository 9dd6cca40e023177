"""A row store is told how far it is also while a flow waits for something else, without Spark or a server; and what
waits in it is forgotten only by the server that had it from the beginning."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkUnavailable
from spark.join import noting, query
from spark.join.query import JoinedQuery

FLOW: Any = SimpleNamespace(title="card", about={}, spec=SimpleNamespace(batches_before=0))
LONG = 30.0


class Query:
    """A streaming query that is up until it is stopped."""

    isActive = True

    def exception(self) -> None:
        """It fails never."""

    def stop(self) -> None:
        """As Spark's."""
        self.isActive = False


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released by each note."""
    count = threading.Semaphore(0)
    store = SimpleNamespace(close=lambda: None)
    for module in (noting, query):
        monkeypatch.setattr(module, "open_store", lambda _spec: store)
    monkeypatch.setattr(noting, "NOTE_SECONDS", 0.01)
    monkeypatch.setattr("spark.join.noting.health.note", lambda *_: count.release())
    return count


def watching(monkeypatch: pytest.MonkeyPatch, deferred: Any) -> JoinedQuery:
    watched = object.__new__(JoinedQuery)
    watched._flow, watched._stop = FLOW, threading.Event()
    monkeypatch.setattr(watched, "_make_deferred", deferred)
    return watched


def test_batches_are_noted_while_a_fan_out_is_worked_off(
    monkeypatch: pytest.MonkeyPatch, noted: threading.Semaphore
) -> None:
    """A row store that was restarted during one had its last note of before it: the checkpoint no longer knew what to
    replay, and a rebuild was asked for."""
    seen = list[bool]()

    def deferred(_store: Any) -> None:
        seen.extend(noted.acquire(timeout=LONG) for _ in range(5))
        watched._stop.set()

    watched = watching(monkeypatch, deferred)
    watched._watch(Query())  # type: ignore[arg-type]
    assert seen == [True] * 5


def test_what_a_note_meets_ends_the_flow(monkeypatch: pytest.MonkeyPatch, noted: threading.Semaphore) -> None:
    def fails(*_: Any) -> None:
        raise SinkUnavailable("the row store's server was restarted")

    monkeypatch.setattr("spark.join.noting.health.note", fails)
    followed = Query()
    with pytest.raises(SinkUnavailable, match="was restarted"):
        watching(monkeypatch, lambda _store: None)._watch(followed)  # type: ignore[arg-type]
    assert not followed.isActive


class Waiting:
    """A row store in which a shard waits; its server may be restarted."""

    def __init__(self, server: str) -> None:
        self.now, self.told = server, list[str]()

    def waiting(self) -> int:
        return 0 if "settle" in self.told else 3

    def server(self) -> str:
        return self.now

    def claim(self) -> list[int]:
        self.told.append("claim")
        return [5]

    def settle(self, shards: list[int]) -> None:
        assert shards == [5]
        self.told.append("settle")


@pytest.mark.parametrize(
    ("before", "after", "settles"),
    [("A1", "A1", True), ("A1", "A2", False), ("A1 B1", "A1 B1 C1", True), ("A1 B1", "A1 B2", False)],
    ids=["nothing", "restarted", "a node was added", "a node was restarted"],
)
def test_what_was_deferred_stays_claimed_if_the_server_was_restarted_under_the_job(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str, settles: bool
) -> None:
    """A task that went on with a cursor of the former server has passed over roots, and does not know it."""
    store = Waiting(before)

    def job(_spark: Any, _flow: Any, shards: list[int]) -> None:
        assert store.told == ["claim"] and shards == [5]
        store.now = after

    monkeypatch.setattr(query, "make_deferred", job)
    watched = object.__new__(JoinedQuery)
    context = SimpleNamespace(setLocalProperty=lambda *_: None, setJobGroup=lambda *_, **__: None)
    watched._spark, watched._flow = cast(Any, SimpleNamespace(sparkContext=context)), FLOW
    watched._pool, watched._table = None, None
    if settles:
        watched._make_deferred(cast(Any, store))
    else:
        with pytest.raises(SinkUnavailable, match="was restarted"):
            watched._make_deferred(cast(Any, store))
    assert (store.told, watched.waiting) == ((["claim", "settle"], 0) if settles else (["claim"], 3))
