"""Elasticsearch and Redis as an application sees them: put, remove, read everything; by hand and without versions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson
import redis
from elasticsearch import Elasticsearch, NotFoundError

Document = dict[str, Any]
# Far more than the shelf holds: an index with more was not made by this example.
MOST_DOCUMENTS = 1_000
TIMEOUT_S = 10


@dataclass
class Stores:
    """An index and a key space. ``index`` may be an alias; ``prefix`` is what every Redis key begins with."""

    search: Elasticsearch
    cache: redis.Redis
    index: str
    prefix: str

    @classmethod
    def connect(cls, index: str, prefix: str, environ: Mapping[str, str] | None = None) -> Self:
        """Clients for ``HEADWATER_ELASTICSEARCH`` and ``HEADWATER_REDIS_CACHE``; default: the local stack."""
        env = os.environ if environ is None else environ
        search = env.get("HEADWATER_ELASTICSEARCH") or "http://127.0.0.1:15200"
        cache = env.get("HEADWATER_REDIS_CACHE") or "redis://127.0.0.1:15379/0"
        return cls(
            Elasticsearch(search, request_timeout=TIMEOUT_S),
            redis.Redis.from_url(cache, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S),
            index,
            prefix,
        )

    def put(self, key: int, document: Document) -> None:
        """What an application does after its commit: index the document, set the key."""
        self.search.index(index=self.index, id=str(key), document=document)
        self.cache.set(f"{self.prefix}{key}", orjson.dumps(document))

    def remove(self, key: int) -> None:
        """The same for a delete."""
        self.search.options(ignore_status=404).delete(index=self.index, id=str(key))
        self.cache.delete(f"{self.prefix}{key}")

    def clear(self) -> None:
        """Empty both, and make the index anew (never called on what headwater writes)."""
        self.search.options(ignore_status=404).indices.delete(index=self.index)
        self.search.indices.create(index=self.index, settings={"number_of_replicas": 0})
        for key in self.cache.scan_iter(match=f"{self.prefix}*"):
            self.cache.delete(key)

    def forget(self) -> None:
        """Remove what headwater left under these names: the index behind the alias, its fences, and all keys.

        The next run begins with a new log; what this one had indexed could never be deleted by it.
        """
        found = self.search.options(ignore_status=404).indices.get(index=f"{self.index}_g*", expand_wildcards="all")
        for index in found.body:
            self.search.indices.delete(index=index)
        for key in self.cache.scan_iter(match=f"*{self.prefix}*"):
            self.cache.delete(key)

    def in_search(self) -> dict[int, Document]:
        """Every document of the index."""
        try:
            self.search.indices.refresh(index=self.index)
            found = self.search.search(index=self.index, size=MOST_DOCUMENTS, query={"match_all": {}})
        except NotFoundError:
            return {}
        return {int(hit["_id"]): hit["_source"] for hit in found["hits"]["hits"]}

    def in_cache(self) -> dict[int, Document]:
        """Every document under the prefix."""
        documents = {}
        for key in self.cache.scan_iter(match=f"{self.prefix}*"):
            value = self.cache.get(key)
            if isinstance(value, bytes):
                documents[int(key.decode().removeprefix(self.prefix))] = orjson.loads(value)
        return documents

    def close(self) -> None:
        """Close both clients."""
        self.search.close()
        self.cache.close()
