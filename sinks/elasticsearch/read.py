"""Reading back what the index holds: by key (for checks and repairs) and everything (for verification)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from elastic_transport import TransportError
from elasticsearch import ApiError, Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import Held
from sinks.elasticsearch.opensearch import close_point, open_point
from sinks.elasticsearch.settings import Address, Target

KEEP_ALIVE = "5m"
# A page is sized by bytes, not count: the next one is scaled so that a response stays near this.
PAGE_BYTES = 4 << 20
FIRST_PAGE, MAX_PAGE = 500, 5000  # Elasticsearch's own limit is 10,000 hits
GET_COUNT = 500


def get(client: Elasticsearch, target: Target, keys: Sequence[str]) -> dict[str, Held]:
    """Multi-get, realtime: sees a write before it was refreshed. Raises the client's errors."""
    found: dict[str, Held] = {}
    for key, doc in _docs(client, target, target.concrete, keys):
        # A shard looks at the id alone; what has another routing is what `scan` tells under a stray key.
        if doc.get("found") and doc.get("_routing") == target.address(key).routing:
            found[key] = Held(key, doc["_version"], doc["_source"])
    return found


def _docs(
    client: Elasticsearch, target: Target, index: str, keys: Sequence[str], *, source: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the server says of each key."""
    for start in range(0, len(keys), GET_COUNT):
        part = keys[start : start + GET_COUNT]
        asked = [_asked(target.address(key)) for key in part]
        yield from zip(part, client.mget(index=index, docs=asked, source=source).body["docs"], strict=True)


def _asked(address: Address) -> dict[str, str]:
    return {"_id": address.id} if address.routing is None else {"_id": address.id, "routing": address.routing}


def versions(client: Elasticsearch, target: Target, index: str, keys: Sequence[str]) -> dict[str, int]:
    """Held versions by key, realtime, without the documents. Raises the client's errors, and SinkRefused when there is
    no such index or alias (the server says so document by document)."""
    found: dict[str, int] = {}
    for key, doc in _docs(client, target, index, keys, source=False):
        if "error" in doc:
            raise SinkRefused(f"{index} can't be read: {doc['error'].get('reason')}")
        if doc.get("found"):
            found[key] = doc["_version"]
    return found


def scan(client: Elasticsearch, target: Target) -> Iterator[Held]:
    """Everything as of one point in time (refreshed first). Raises the client's errors."""
    return _pages(client, target, {"match_all": {}}, [{"_shard_doc": "asc"}])


def sample(client: Elasticsearch, target: Target, count: int, seed: int) -> Iterator[Held]:
    """Documents in an order shuffled by ``seed``, the first ``count`` of them. Raises the client's errors."""
    shuffled = {"function_score": {"random_score": {"seed": seed, "field": "_seq_no"}, "boost_mode": "replace"}}
    return islice(_pages(client, target, shuffled, [{"_score": "desc"}, {"_shard_doc": "asc"}]), count)


def _pages(client: Elasticsearch, target: Target, query: dict[str, Any], sort: list[dict[str, Any]]) -> Iterator[Held]:
    client.indices.refresh(index=target.concrete)
    pit = open_point(client, target.concrete, KEEP_ALIVE)
    try:
        after: list[Any] | None = None
        size = FIRST_PAGE
        while True:
            answer = client.search(
                pit={"id": pit, "keep_alive": KEEP_ALIVE},
                size=size,
                query=query,
                sort=sort,
                search_after=after,
                version=True,
                track_total_hits=False,
            ).body
            pit = answer["pit_id"]
            hits = answer["hits"]["hits"]
            if not hits:
                return
            read = 0
            for hit in hits:
                read += len(hit["_source"])
                yield Held(target.key(hit["_id"], hit.get("_routing")), hit["_version"], hit["_source"])
            after = hits[-1]["sort"]
            size = max(1, min(MAX_PAGE, 2 * size, PAGE_BYTES * len(hits) // max(read, 1)))
    finally:
        with suppress(ApiError, TransportError):  # it runs out by itself
            close_point(client, pit)
