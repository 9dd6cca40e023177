"""What 50,000 standing queries cost while nothing changes: neither are they fetched, nor are their notes read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from operations.standing import registered as module
from operations.standing.registered import Registered, ServerSearches
from sinks.elasticsearch.standing.percolator import Percolator
from sinks.elasticsearch.standing.queries import Query
from sinks.redis.stream.matches import State


class Judging(Percolator):
    """A percolator without a server."""

    def __init__(self) -> None:
        self.at, self.looked = "i1", 0

    def setup(self) -> str:
        self.looked += 1
        return self.at


class Server:
    """Registered queries, and how often they were fetched."""

    def __init__(self) -> None:
        self.changed, self.fetched, self.judge = ("a", 1), 0, Judging()
        self.store = SimpleNamespace(change=lambda: self.changed, all=self.all)
        self.queries = {"q": Query("a", 1, b"{}")}

    def all(self) -> dict[str, Query]:
        self.fetched += 1
        return dict(self.queries)

    def living(self) -> int:
        return 1

    def percolator(self, _generation: int) -> Percolator:
        return self.judge


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    return clock


def test_queries_are_fetched_when_they_change_and_fields_are_looked_at_meanwhile(now: list[float]) -> None:
    server = Server()
    searches = ServerSearches(cast(Any, server))
    known = searches.look(None)
    for _ in range(5):
        now[0] += module.FIELDS_SECONDS
        assert searches.look(known) is known
    assert (server.fetched, server.judge.looked) == (1, 6)
    assert searches.look(known) is known and server.judge.looked == 6  # not twice in ten seconds
    server.judge.at = "i2"  # the documents' index has other fields: judged elsewhere
    now[0] += module.FIELDS_SECONDS
    other = searches.look(known)
    assert other.index == "i2" and other.mark != known.mark
    server.changed, server.queries = ("a", 2), {}
    none = searches.look(other)
    assert (none.queries, none.index, server.fetched) == ({}, "", 3)
    now[0] += module.FIELDS_SECONDS
    assert searches.look(none) is none and server.fetched == 3


def test_a_note_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = Registered("m", "i", {name: Query(name, 1, b"{}") for name in "abc"})
    state = State(1, "m", {"index": "i"}, {name: registered.judged(name) for name in "ab"})
    assert registered.pending(state) == ["c"]
    monkeypatch.setattr(module.orjson, "loads", lambda _: pytest.fail("read again"))
    assert registered.pending(state) == ["c"]
    monkeypatch.undo()
    state.standing["a"] = module.UNJUDGED
    assert registered.pending(state) == ["a", "c"]
