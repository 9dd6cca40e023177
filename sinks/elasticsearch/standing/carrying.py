"""Takes standing queries along to another index: where readers of a view are led to another alias."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.elasticsearch.client import PASSING, connect, translated
from sinks.elasticsearch.settings import Settings, read_settings
from sinks.elasticsearch.standing.percolator import parts, words
from sinks.elasticsearch.standing.queries import Query, QueryStore

# view -> its queries, by their names, with the revisions that they have.
Carried = Mapping[str, Mapping[str, int]]
# Somebody who registers at the new place at this moment is not overwritten: it is looked again, so often at most.
TRIES = 5
_CONFLICT = 409


def carry_queries(before: Mapping[str, Any], after: Mapping[str, Any], known: Carried | None = None) -> Carried:
    """Have the queries of one place at another one, and no others, with the revisions that they have.

    Args:
        before: plain data of the sink, of ``sinks.configure``: where they are.
        after: the same of where they are to be.
        known: what an earlier call has taken along: then only what was put or removed since, and only where nobody has
            put or removed it at the other place, which is newer.

    Returns:
        all that there are, of each view that has another place.

    Raises:
        SinkUnavailable: transient; the same again goes on.
        SinkRefused: the server refuses, or an index of that name is not ours.
    """
    settings, carried = read_settings(after), dict[str, Mapping[str, int]]()
    places = read_settings(before).targets
    client = connect(settings)
    try:
        for view, target in settings.targets.items():
            if view not in places or places[view].queries == target.queries:
                continue
            there, here = QueryStore(client, settings, target), QueryStore(client, settings, places[view])
            if not here.ours():
                continue  # nobody has registered one yet
            there.setup()
            found = here.all()
            _carry(client, settings, there, found, None if known is None else known.get(view, {}))
            carried[view] = {name: query.revision for name, query in found.items()}
    finally:
        client.close()
    return carried


def _carry(
    client: Elasticsearch,
    settings: Settings,
    there: QueryStore,
    found: Mapping[str, Query],
    known: Mapping[str, int] | None,
) -> None:
    for _ in range(TRIES):
        standing = there.standing()
        stood = {name: query for name, (query, _) in standing.items()}
        new, gone = _unlike(found, stood) if known is None else _since(found, stood, known)
        if not (new or gone):
            return
        lines = _lines(new, gone, {name: at for name, (_, at) in standing.items()})
        if not _write(client, settings, there.index, lines):
            return
    raise SinkUnavailable(
        f"{settings.who}: standing queries are changed by somebody else while they are taken along", fix="do it again"
    )


def _unlike(found: Mapping[str, Query], stood: Mapping[str, Query]) -> tuple[list[Query], set[str]]:
    """What is to be written and removed for one place to be as another one. Pure."""
    return [query for name, query in found.items() if stood.get(name) != query], set(stood.keys() - found.keys())


def _since(
    found: Mapping[str, Query], stood: Mapping[str, Query], known: Mapping[str, int]
) -> tuple[list[Query], set[str]]:
    """What has changed since it was taken along, unless it was put or removed at the other place later. Pure."""
    new = []
    for name, query in found.items():
        at = stood.get(name)
        later = name not in known if at is None else at.revision < query.revision
        if later and known.get(name) != query.revision:
            new.append(query)
    gone = {name for name in known.keys() - found.keys() if name in stood and stood[name].revision == known[name]}
    return new, gone


def _lines(
    new: Sequence[Query], gone: Collection[str], standing: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Any, ...]]:
    """Writes that fail where what stands is not that any more. Pure."""
    lines: list[tuple[Any, ...]] = [
        (orjson.dumps({"delete": {"_id": name, **standing[name]}}),) for name in sorted(gone)
    ]
    for one in new:
        body = {"name": one.name, "revision": one.revision, "query": orjson.Fragment(one.query)}
        how = (
            {"index": {"_id": one.name, **standing[one.name]}}
            if one.name in standing
            else {"create": {"_id": one.name}}
        )
        lines.append((orjson.dumps(how), orjson.dumps(body)))
    return lines


def _write(client: Elasticsearch, settings: Settings, index: str, lines: list[tuple[Any, ...]]) -> bool:
    """Whether something of it is to be looked at again, for somebody else has changed it meanwhile."""
    raced = False
    with translated(settings.who, "taking standing queries along"):
        for part in parts(lines):
            operations = [line for each in part for line in each]
            answer = client.bulk(index=index, operations=operations, refresh=True).body
            for item in answer["items"]:
                told = next(iter(item.values()))
                raced |= told["status"] == _CONFLICT
                _refuse(settings, told)
    return raced


def _refuse(settings: Settings, told: Mapping[str, Any]) -> None:
    if "error" not in told or told["status"] == _CONFLICT:
        return
    what = f"{settings.who}: standing query {told['_id']} could not be taken along: {words(told['error'])}"
    if told["status"] in PASSING or told["error"].get("type") == "cluster_block_exception":
        raise SinkUnavailable(what, fix="wait, or make room on its disks; then do it again")
    raise SinkRefused(what)
