"""Registering standing queries: what there are, another one, one less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from cdc.errors import ConfigError, QueryRefused, UnknownName
from cdc.pipeline import Pipeline
from operations.push.source import TROUBLES, told
from operations.standing.place import Caching, Searching, StandingPlace, standing_place
from operations.standing.registered import revision_of
from sinks.elasticsearch.queries import MOST, Query, next_revision
from sinks.redis.matches import State

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
MAX_BYTES = 64 << 10


def list_queries(pipeline: Pipeline, view: str, name: str | None = None) -> dict[str, Any]:
    """A view's standing queries, in the shape of ``headwater queries list --json``.

    Args:
        pipeline: the loaded file.
        view: its name.
        name: only this query.

    Raises:
        UnknownName: no queries stand on this view, or there is none of this name (terminal).
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    place = standing_place(pipeline, view)
    with _searching(place) as server:
        found = server.store.all()
    if name is not None and name not in found:
        raise _unknown(view, name)
    state = _state(place)
    shown = [_shown(one, state) for key, one in sorted(found.items()) if name in (None, key)]
    return {"pipeline": pipeline.name, "view": view, "queries": shown}


def put_query(pipeline: Pipeline, view: str, name: str, query: bytes) -> dict[str, Any]:
    """Register a query, or change one; in the shape of ``headwater queries put --json``.

    One that stands already as it is given stays as it is.

    Args:
        pipeline: the loaded file.
        view: its name.
        name: the query's.
        query: Query DSL as JSON, or a search's body that has nothing but ``query``.

    Raises:
        QueryRefused: the server can't parse it, or it is no JSON object (terminal).
        ConfigError: no such name can be, or there are too many (terminal).
        UnknownName: no queries stand on this view (terminal).
        SinkUnavailable: a server does not answer, or somebody else changes the same query (transient).
        SinkRefused: a server refuses.
    """
    place = standing_place(pipeline, view)
    wanted = _clause(name, query)
    with _searching(place) as server:
        server.store.setup()
        old = server.store.get(name)
        if old is None or orjson.loads(old.query) != orjson.loads(wanted):
            if old is None and server.store.count() >= MOST:
                raise ConfigError(f"view {view} has {MOST:,} standing queries", fix="remove some first")
            judge = server.percolator(server.living())
            judge.setup()
            judge.try_out(next_revision(old, name, wanted))
            old = server.store.put(old, name, wanted)
    return {"pipeline": pipeline.name, "view": view, **_shown(old, _state(place))}


def remove_query(pipeline: Pipeline, view: str, name: str) -> dict[str, Any]:
    """Forget a query; in the shape of ``headwater queries remove --json``.

    Raises:
        UnknownName: there is none of this name (terminal).
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    place = standing_place(pipeline, view)
    with _searching(place) as server:
        # A look first: to an index that is not there, nothing is a delete that would make it.
        if server.store.change() is None or not server.store.remove(name):
            raise _unknown(view, name)
    return {"pipeline": pipeline.name, "view": view, "name": name, "removed": True}


def _clause(name: str, query: bytes) -> bytes:
    """What stands under ``query`` of a search, as JSON in one form."""
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            "this can't be the name of a query",
            fix="1 to 64 letters, digits, '_', '.' and '-', beginning with a letter or digit",
        )
    if len(query) > MAX_BYTES:
        raise QueryRefused(f"query {name} has {len(query):,} bytes", fix=f"at most {MAX_BYTES:,} are taken")
    try:
        found = orjson.loads(query)
    except ValueError as error:
        raise QueryRefused(f"query {name} is no JSON: {error}", fix='like {"term": {"status": "open"}}') from error
    if isinstance(found, dict) and found.keys() == {"query"}:
        found = found["query"]
    if not isinstance(found, dict) or not found:
        raise QueryRefused(f"query {name} is no JSON object", fix='like {"term": {"status": "open"}}')
    return orjson.dumps(found)


def _shown(query: Query, state: State | None) -> dict[str, Any]:
    judged = None if state is None or state.notes.get("full") else state.standing.get(query.name)
    active = judged is not None and revision_of(judged) == query.revision
    refused = orjson.loads(judged)["refused"] if active and judged is not None else None
    return {
        "name": query.name,
        "revision": query.revision,
        "state": "pending" if not active else "refused" if refused else "active",
        "refused": refused,
        "query": orjson.loads(query.query),
    }


def _state(place: StandingPlace) -> State | None:
    cache = Caching(place)
    try:
        return cache.matches.state()
    except TROUBLES as error:
        raise told(error, place) from error
    finally:
        cache.close()


def _unknown(view: str, name: str) -> UnknownName:
    return UnknownName(f"no query {name} stands on view {view}", fix="`headwater queries list FILE VIEW` has all")


@contextmanager
def _searching(place: StandingPlace) -> Iterator[Searching]:
    server = Searching(place)
    try:
        yield server
    finally:
        server.close()
