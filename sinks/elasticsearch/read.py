"""Reading back what the index holds: by key (for checks and repairs) and everything (for verification)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from elastic_transport import TransportError
from elasticsearch import ApiError, Elasticsearch

from cdc.errors import SinkRefused, SinkUnavailable
from cdc.paging import FIRST, PageSize
from sinks.contract import Held
from sinks.elasticsearch.client import NO_INDEX, each_document, is_too_much, part_of
from sinks.elasticsearch.opensearch import close_point, open_point
from sinks.elasticsearch.settings import Address, Target

KEEP_ALIVE = "5m"
MAX_PAGE = 5000  # Elasticsearch's own limit is 10,000 hits
GET_COUNT = 500


def get(client: Elasticsearch, target: Target, keys: Sequence[str]) -> dict[str, Held]:
    """Multi-get, realtime: sees a write before it was refreshed. Raises the client's errors, and SinkRefused when
    somebody has closed the index; in one that is not there is nothing."""
    found: dict[str, Held] = {}
    for key, doc in _docs(client, target, target.concrete, keys):
        if "error" in doc and doc["error"].get("type") != NO_INDEX:
            raise _unreadable(target.concrete, doc)
        # A shard looks at the id alone; what has another routing is what `scan` tells under a stray key.
        if doc.get("found") and doc.get("_routing") == target.address(key).routing:
            found[key] = Held(key, doc["_version"], _whole(target.concrete, doc))
    return found


def _docs(
    client: Elasticsearch, target: Target, index: str, keys: Sequence[str], *, source: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the server says of each key."""
    size = PageSize(GET_COUNT, FIRST if source else GET_COUNT)
    asked = [_asked(target.address(key)) for key in keys]

    def ask(start: int, count: int) -> list[dict[str, Any]]:
        return each_document(client.mget(index=index, docs=asked[start : start + count], source=source))

    start = 0
    while start < len(keys):
        size.count = min(size.count, len(keys) - start)  # else half of it might be the same request again
        found = size.asked(partial(ask, start), is_too_much)
        yield from zip(keys[start : start + len(found)], found, strict=True)
        start += len(found)
        # Keys that are not there are no reason to go on one by one.
        size.read([len(doc["_source"]) for doc in found if "_source" in doc] or [0])


def _asked(address: Address) -> dict[str, str]:
    return {"_id": address.id} if address.routing is None else {"_id": address.id, "routing": address.routing}


def versions(client: Elasticsearch, target: Target, index: str, keys: Sequence[str]) -> dict[str, int]:
    """Held versions by key, realtime, without the documents. Raises the client's errors, and SinkRefused when there is
    no such index or alias, or it is closed (the server says so document by document)."""
    found: dict[str, int] = {}
    for key, doc in _docs(client, target, index, keys, source=False):
        if "error" in doc:
            raise _unreadable(index, doc)
        if doc.get("found"):
            found[key] = doc["_version"]
    return found


def _unreadable(index: str, doc: dict[str, Any]) -> SinkRefused:
    return SinkRefused(f"{index} can't be read: {doc['error'].get('reason')}")


def _whole(index: str, doc: dict[str, Any]) -> bytes:
    """A document as it came; an index that was made under a template of somebody's may keep none."""
    if "_source" not in doc:
        raise SinkRefused(
            f"{index} keeps no documents, only what is searched: its mapping has `_source` turned off",
            means="what it holds can't be compared with Postgres",
            fix="take `_source` out of the server's index template (GET _index_template), then `headwater rebuild FILE"
            " SINK --auto`: an index that is there can't be changed",
        )
    source: bytes = doc["_source"]
    return source


def refresh(client: Elasticsearch, index: str) -> None:
    """Let searches find all that was written. Raises the client's errors, and SinkUnavailable: a shard did not."""
    failed = client.indices.refresh(index=index)["_shards"]["failed"]
    if failed:
        raise SinkUnavailable(f"{failed} shards of {index} were not refreshed")


def scan(client: Elasticsearch, target: Target) -> Iterator[Held]:
    """Everything as of one point in time (refreshed first). Raises the client's errors."""
    return _pages(client, target, {"match_all": {}}, [{"_shard_doc": "asc"}])


def sample(client: Elasticsearch, target: Target, count: int, seed: int) -> Iterator[Held]:
    """Documents in an order shuffled by ``seed``, the first ``count`` of them. Raises the client's errors."""
    shuffled = {"function_score": {"random_score": {"seed": seed, "field": "_seq_no"}, "boost_mode": "replace"}}
    return islice(_pages(client, target, shuffled, [{"_score": "desc"}, {"_shard_doc": "asc"}]), count)


def _pages(client: Elasticsearch, target: Target, query: dict[str, Any], sort: list[dict[str, Any]]) -> Iterator[Held]:
    refresh(client, target.concrete)
    pit = open_point(client, target.concrete, KEEP_ALIVE)
    try:
        after: list[Any] | None = None
        size = PageSize(MAX_PAGE)

        def ask(count: int) -> Any:
            return client.search(
                pit={"id": pit, "keep_alive": KEEP_ALIVE},
                size=count,
                query=query,
                sort=sort,
                search_after=after,
                version=True,
                track_total_hits=False,
                # Else the documents of a shard that is lost under way are left out, and nothing says so.
                allow_partial_search_results=False,
            )

        while True:
            answer = size.asked(ask, is_too_much)
            pit = part_of(answer, "pit_id")
            hits = part_of(answer, "hits", "hits")
            if not hits:
                return
            for hit in hits:
                key = target.key(hit["_id"], hit.get("_routing"))
                yield Held(key, hit["_version"], _whole(target.concrete, hit))
            after = hits[-1]["sort"]
            size.read(len(hit["_source"]) for hit in hits)
    finally:
        with suppress(ApiError, TransportError):  # it runs out by itself
            close_point(client, pit)
