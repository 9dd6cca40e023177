"""Registering standing queries: what there are, another one, one less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from cdc.errors import ConfigError, UnknownName
from cdc.pipeline import Pipeline
from operations.push.source import TROUBLES, told
from operations.standing.place import Caching, Searching, StandingPlace, standing_place
from operations.standing.register import Registering, clause
from operations.standing.registered import revision_of
from sinks.elasticsearch.standing.queries import Query
from sinks.redis.stream.matches import State


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
    saved = pipeline.queries[view].saved
    state, refused = _state(place, None if saved is None else saved.view)
    if name is not None and name not in found and name not in refused:
        raise _unknown(view, name)
    every = {key: _shown(one, state) for key, one in found.items()}
    every |= {key: _no_query(key, why) for key, why in refused.items() if key not in found}
    shown = [one for key, one in sorted(every.items()) if name in (None, key)]
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
        ConfigError: no such name can be, there are too many, or documents of another view are the queries (terminal).
        UnknownName: no queries stand on this view (terminal).
        SinkUnavailable: a server does not answer, or somebody else changes the same query (transient).
        SinkRefused: a server refuses.
    """
    place = standing_place(pipeline, view)
    _by_hand(pipeline, view)
    wanted = clause(name, query)
    before: StandingPlace | None = None
    while place != before:  # readers led elsewhere meanwhile: what was written behind that would be left there
        with _searching(place) as server:
            server.store.setup()
            put = Registering(server).put(name, wanted)
        before, place = place, standing_place(pipeline, view)
    return {"pipeline": pipeline.name, "view": view, **_shown(put, _state(place)[0])}


def remove_query(pipeline: Pipeline, view: str, name: str) -> dict[str, Any]:
    """Forget a query; in the shape of ``headwater queries remove --json``.

    Raises:
        UnknownName: there is none of this name (terminal).
        ConfigError: documents of another view are the queries (terminal).
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    place = standing_place(pipeline, view)
    _by_hand(pipeline, view)
    before: StandingPlace | None = None
    removed = False
    while place != before:  # as above
        with _searching(place) as server:
            # A look first: to an index that is not there, nothing is a delete that would make it.
            removed |= server.store.change() is not None and server.store.remove(name)
        before, place = place, standing_place(pipeline, view)
    if not removed:
        raise _unknown(view, name)
    return {"pipeline": pipeline.name, "view": view, "name": name, "removed": True}


def _by_hand(pipeline: Pipeline, view: str) -> None:
    """Refuse where documents decide: what is put or removed by hand would stand until the next of them comes."""
    saved = pipeline.queries[view].saved
    if saved is not None:
        raise ConfigError(
            f"the queries of view {view} are the documents of view {saved.view}",
            means="nothing was changed",
            fix=f"change the rows of {saved.view}, or take `saved` out of the pipeline file",
        )


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


def _no_query(name: str, why: str) -> dict[str, Any]:
    """A document that is none, in the shape of one that is."""
    return {"name": name, "revision": None, "state": "refused", "refused": why, "query": None}


def _state(place: StandingPlace, saved: str | None = None) -> tuple[State | None, dict[str, str]]:
    """What was judged; and which documents of the view that has the queries, if there is one, are none."""
    cache = Caching(place)
    try:
        return cache.matches.state(), {} if saved is None else cache.refusals(saved)
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
