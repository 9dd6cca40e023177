"""Queries that are documents of another view, held against what stands: without a server."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cdc.errors import SinkUnavailable
from operations.push import events as told
from operations.push.cursor import Cursor
from operations.push.envelope import Batch
from operations.push.events import Told
from operations.standing import saved
from operations.standing.register import Following, Registering
from operations.standing.saved import SavedQueries, SearchServer
from sinks.elasticsearch.standing.queries import Query


class Store:
    """What is registered, and how often somebody has asked for all of it."""

    def __init__(self) -> None:
        self.queries: dict[str, Query] = {}
        self.lists = self.looks = 0
        self.away = False

    def all(self) -> dict[str, Query]:
        self.lists += 1
        return dict(self.queries)

    def get(self, name: str) -> Query | None:
        self.looks += 1
        if self.away:
            raise SinkUnavailable("away", fix="wait")
        return self.queries.get(name)

    def remove_known(self, old: Query) -> None:
        del self.queries[old.name]

    def setup(self) -> None: ...

    def refresh(self) -> None: ...


class Lease:
    """Nobody else has it."""

    def hold(self, fields: Mapping[str, Any] | None = None) -> None: ...

    def kept(self) -> Mapping[str, str]:
        return {}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store()

    def put(_self: Registering, name: str, wanted: bytes, before: Any, **_: Any) -> None:
        found.get(name)
        before()
        found.queries[name] = Query(name, len(found.queries), wanted)

    monkeypatch.setattr(Registering, "put", put)
    monkeypatch.setattr(saved, "Searching", lambda _: SimpleNamespace(store=found, close=lambda: None))
    return found


@pytest.fixture
def carrier() -> SavedQueries:
    return SearchServer(cast("Any", None), "query").open()


def documents(**terms: int) -> Told:
    shown = [{"key": name, "document": {"query": {"term": {"n": n}}}} for name, n in terms.items()]
    return Told("snapshot", orjson.dumps({"documents": shown}))


def change(name: str, n: int | None) -> Told:
    after = None if n is None else {"query": {"term": {"n": n}}}
    return Told("change", orjson.dumps({"key": name, "after": after}))


READY = told.ready(Cursor(1, "0" * 16, b"1-0"), "saved")


def carried(carrier: SavedQueries, *events: Told) -> str:
    return carrier.carry(Batch(list(events), None), "msg_1", 0, Lease()).done


def stands(store: Store) -> dict[str, int]:
    return {name: orjson.loads(query.query)["term"]["n"] for name, query in store.queries.items()}


def test_a_walk_through_all_documents_lists_what_stands_once_and_once_more_at_its_end(
    carrier: SavedQueries, store: Store
) -> None:
    """Each event of documents read all of it again: of 50,000 queries, 4,000 searches at every start."""
    known = {f"q{n}": n for n in range(50)}
    store.queries = {name: Query(name, n, b'{"term":{"n":%d}}' % n) for name, n in known.items()}
    store.queries["gone"] = Query("gone", 1, b'{"term":{"n":1}}')
    assert carried(carrier, told.reset("why"), *(documents(**{name: n}) for name, n in known.items())) == "delivered"
    for name, n in known.items():
        assert carried(carrier, documents(**{name: n})) == "delivered"
    assert carried(carrier, documents(q1=1, more=7), READY) == "delivered"
    assert (store.lists, store.looks) == (2, 2), "and looks at what differs only: one more, and one less"
    assert stands(store) == {**known, "more": 7}


def test_what_a_walk_has_changed_itself_is_known_to_it(carrier: SavedQueries, store: Store) -> None:
    carried(carrier, told.reset("why"), documents(a=1, b=1, c=1))
    carried(carrier, change("a", 2), change("b", None), change("c", None), documents(a=2))
    carried(carrier, change("a", 1), change("b", 1), documents(a=1, b=1), READY)
    assert stands(store) == {"a": 1, "b": 1} and store.lists == 2
    store.queries.clear()  # lost
    carried(carrier, told.reset("why"), documents(a=1, b=1), READY)
    assert stands(store) == {"a": 1, "b": 1}, "the next walk reads it anew"


def test_after_a_failure_what_stands_is_read_anew(carrier: SavedQueries, store: Store) -> None:
    carried(carrier, told.reset("why"), documents(a=1, b=1))
    store.away = True
    assert carried(carrier, documents(b=2)) == "again"
    store.away = False
    store.queries.clear()
    assert carried(carrier, documents(b=2)) == "delivered" and carried(carrier, documents(a=1), READY) == "delivered"
    assert stands(store) == {"a": 1, "b": 2}


def test_a_list_that_took_longer_than_the_lease_is_not_gone_by(store: Store) -> None:
    class Lost(Exception):
        pass

    class Nobody(Lease):
        def hold(self, fields: Mapping[str, Any] | None = None) -> None:
            raise Lost

    following = Following(cast("Any", SimpleNamespace(store=store)), Nobody())
    with pytest.raises(Lost):
        following.all()
    assert store.lists == 1
