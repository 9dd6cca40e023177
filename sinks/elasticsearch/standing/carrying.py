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

# view -> its queries, by their names.
Carried = Mapping[str, Mapping[str, Query]]


def carry_queries(before: Mapping[str, Any], after: Mapping[str, Any], known: Carried | None = None) -> Carried:
    """Have the queries of one place at another one, and no others, with the revisions that they have.

    Args:
        before: plain data of the sink, of ``sinks.configure``: where they are.
        after: the same of where they are to be.
        known: what an earlier call has taken along: then only what has changed since.

    Returns:
        all that there are, of each view that has another place.

    Raises:
        SinkUnavailable: transient; the same again goes on.
        SinkRefused: the server refuses, or an index of that name is not ours.
    """
    settings, carried = read_settings(after), dict[str, Mapping[str, Query]]()
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
            stood = there.all() if known is None else known.get(view, {})
            new = [query for name, query in found.items() if stood.get(name) != query]
            gone = stood.keys() - found.keys()
            if new or gone:
                _write(client, settings, there.index, new, gone)
            carried[view] = found
    finally:
        client.close()
    return carried


def _write(
    client: Elasticsearch, settings: Settings, index: str, queries: Sequence[Query], gone: Collection[str]
) -> None:
    lines: list[tuple[Any, ...]] = [(orjson.dumps({"delete": {"_id": name}}),) for name in sorted(gone)]
    for one in queries:
        body = {"name": one.name, "revision": one.revision, "query": orjson.Fragment(one.query)}
        lines.append((orjson.dumps({"index": {"_id": one.name}}), orjson.dumps(body)))
    with translated(settings.who, "taking standing queries along"):
        for part in parts(lines):
            operations = [line for each in part for line in each]
            answer = client.bulk(index=index, operations=operations, refresh=True).body
            for item in answer["items"]:
                _refuse(settings, next(iter(item.values())))


def _refuse(settings: Settings, told: Mapping[str, Any]) -> None:
    if "error" not in told:
        return
    what = f"{settings.who}: standing query {told['_id']} could not be taken along: {words(told['error'])}"
    if told["status"] in PASSING or told["error"].get("type") == "cluster_block_exception":
        raise SinkUnavailable(what, fix="wait, or make room on its disks; then do it again")
    raise SinkRefused(what)
