"""A row store is told how far it is also while a flow waits for something else, without Spark or a server."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

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
