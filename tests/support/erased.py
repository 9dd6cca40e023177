"""Persons and their orders in every kind of sink, and where on the servers' disks a value of one of them lies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from elasticsearch import Elasticsearch
from redis import Redis

from cdc.pipeline import Pipeline, load
from examples.common import ensure_database
from operations.standing.place import Caching, standing_place
from operations.standing.queries import put_query
from tests.support.disks import holding, needles
from tests.support.own_tables import OwnTables

OWNER, LAKE, NAMESPACE = "erased_owner", "lake", "erased"
ROWS = 20
TABLES = """
CREATE TABLE persons (id int PRIMARY KEY, name text, secret text, code text);
CREATE TABLE orders (id int PRIMARY KEY, person int, item text, code text);
"""
VIEWS: dict[str, Any] = {
    "person": {"root": "persons"},
    "order_card": {
        "root": "orders",
        "refs": {"who": {"table": "persons", "on": {"person": "id"}, "columns": ["id", "name", "secret"]}},
    },
}


@dataclass
class Erased(OwnTables):
    """Both views in an index, a cache and a warehouse that keeps history. The index takes numbers only as codes."""

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES.encode())
            for table in ("persons", "orders"):
                values = "i, 'n', 's', '7'" if table == "persons" else "i, i, 'thing', '7'"
                insert = f"INSERT INTO {table} SELECT {values} FROM generate_series(1, {ROWS}) i"
                connection.execute(insert.encode())
        self.write_pipeline()
        self.run("apply", "--wait")

    def write_pipeline(self) -> None:
        sinks = {
            "search": self.search(VIEWS, mapping={"code": {"type": "integer"}}),
            "cache": self.cache(VIEWS) | {"changes": {"keep": 1_000}},
            LAKE: {
                "type": "iceberg",
                **self.lake(),
                "namespace": NAMESPACE,
                "views": [self.view(name) for name in VIEWS],
                "trigger_seconds": 1,
                "history": True,
            },
        }
        queries = {self.view(name): {"search": "search", "changes": "cache"} for name in VIEWS}
        source = {"heartbeat_seconds": 1, **self.form()}
        self.write_own(["public.persons", "public.orders"], VIEWS, sinks, source, queries=queries)

    def lake(self) -> dict[str, Any]:
        """Where the warehouse is."""
        folder = self.folder / "warehouse"
        return {"catalog_uri": str(folder / "catalog.db"), "warehouse": str(folder)}

    def lake_files(self) -> Path:
        """A folder with every file of the warehouse."""
        return self.folder / "warehouse"

    def form(self) -> dict[str, Any]:
        """What the file says of how records are written."""
        return {}

    def plant(self, key: int, value: str) -> None:
        """A person, of whom the index first refuses the document; an order that it refuses and one that shows her; and
        then she changes, and is in every sink; queries that stand on both views find her."""
        for name in VIEWS:
            put_query(self.pipeline(), self.view(name), "all", b'{"match_all": {}}')
        self.execute("INSERT INTO persons VALUES (%s, 'Ann', %s, 'no number')", key, value)
        self.execute("INSERT INTO orders VALUES (901, %s, 'book', 'no number'), (902, %s, 'pen', '5')", key, key)
        self.eventually(lambda: len(self.dead_letters()) >= 2)
        self.execute("UPDATE persons SET code = '5' WHERE id = %s", key)
        self.eventually(lambda: str(key) in self.in_elasticsearch("person"))
        self.eventually(lambda: value in str(self.in_elasticsearch("order_card")))
        self.eventually(lambda: value in str(self.in_redis("order_card")))
        self.eventually(lambda: all(self.was_judged(name, value) for name in VIEWS))
        self.run("as-of", "--tag", "before", "--wait", "300")  # history may not have begun

    def remove(self, key: int, value: str) -> None:
        """She is deleted at the source, and gone from what readers see."""
        self.execute("DELETE FROM persons WHERE id = %s", key)
        self.eventually(lambda: str(key) not in self.in_redis("person"))
        self.eventually(lambda: value not in str(self.in_redis("order_card")))
        self.eventually(lambda: not any(self.erase(key, ok=(0, 2))[word] for word in ("refused", "waits")))

    def was_judged(self, view: str, value: str) -> bool:
        """Whether a document with a value was held against the queries that stand on a view."""
        caching = Caching(standing_place(self.pipeline(), self.view(view)))
        try:
            return value in str(caching.client.xrange(caching.matches.keys.matches))
        finally:
            caching.close()

    def erase(self, key: int, *options: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """What ``headwater erase --json`` prints."""
        report: dict[str, Any] = json.loads(self.run("erase", "persons", str(key), "--json", *options, ok=ok))
        return report

    @property
    def places(self) -> set[str]:
        """Where her value lies when it has been everywhere, also after her delete; named as ``found`` does.

        In the cache it is in streams then: of changes, and of matches.
        """
        topics = {f"{self.name}.public.persons", f"{self.name}.dead-letters"}
        return topics | {"elasticsearch", "judged", "row-store", "cache", LAKE}

    def judged(self) -> list[str]:
        """Folders of the indices in which documents are held against standing queries."""
        with Elasticsearch(self.stack.endpoints.elasticsearch_url) as client:
            names = ",".join(f"{self.view(name)}_g*_percolator" for name in VIEWS)
            found = client.indices.get_settings(index=names, expand_wildcards="all").body
        return [one["settings"]["index"]["uuid"] for one in found.values()]

    def pipeline(self) -> Pipeline:
        """The loaded file."""
        return load(self.file, self.environment())

    def found(self, value: str) -> dict[str, list[str]]:
        """Place -> where in it a value is: every place that can be searched from outside."""
        data = self.stack.site.home / "data"
        found: dict[str, list[str]] = {}
        for path in holding(data / "kafka", value):
            # Of a topic's partitions whichever it is.
            place = re.sub(r"-\d+$", "", path.relative_to(data / "kafka").parts[1])
            found.setdefault(place, []).append(path.name)
        folders = {"elasticsearch": data / "elasticsearch", "row-store": data / "redis-store"}
        folders |= {
            "cache-files": data / "redis-cache",
            LAKE: self.lake_files(),
            "state": self.folder / "state",
        }
        for place, folder in folders.items():
            if paths := holding(folder.resolve(), value):
                found[place] = [str(path) for path in paths]
        judged = set(self.judged())
        if paths_judged := [path for path in found.get("elasticsearch", ()) if judged & set(Path(path).parts)]:
            found["judged"] = paths_judged
        for place, url in (
            ("cache", self.stack.endpoints.redis_cache_url),
            ("row-store-memory", self.stack.endpoints.redis_store_url),
        ):
            if keys := in_memory(url, value):
                found[place] = keys
        return found

    def eventually(self, read: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait until it is so."""
        until = time.monotonic() + seconds
        while not read():
            assert time.monotonic() < until, f"not so after {seconds} s\n{self.log()}"
            time.sleep(0.3)


def in_memory(url: str, value: str) -> list[str]:
    """Keys of a Redis whose value, of whichever type, holds a value."""
    wanted, found = needles(value), []
    with Redis.from_url(url) as client:
        for key in client.scan_iter(count=1000):
            kind = client.type(key)
            read: dict[bytes, Callable[[Any], Any]] = {
                b"string": client.get,
                b"hash": client.hgetall,
                b"set": client.smembers,
                b"zset": lambda one: client.zrange(one, 0, -1),
                b"stream": client.xrange,
            }
            text = repr(read[kind](key)).encode() + key if kind in read else key
            if any(needle in text for needle in wanted):
                found.append(key.decode(errors="replace"))
    return found
