"""A pipeline whose tables are migrated while somebody writes and somebody reads: every kind of sink and view."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import redis
import requests

from examples.common import ensure_database
from tests.support.background import Background
from tests.support.own_tables import OwnTables, Writing

OWNER = "evolving_owner"
ROWS = 200
TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE things (id int PRIMARY KEY, a varchar(8) DEFAULT 'new', n int, price numeric(8,2), at timestamp,
                     mood mood, code text, gone text DEFAULT 'x', spare text);
CREATE TABLE parts (id int PRIMARY KEY, thing int, weight int, note text);
"""
VIEWS: dict[str, Any] = {
    "thing": {"root": "things"},
    "named": {"root": "things", "columns": ["id", "a", "price"]},
    "card": {
        "root": "things",
        "columns": ["id", "n", "a", "at", "code"],
        "children": {"parts": {"table": "parts", "on": {"id": "thing"}, "columns": ["id", "weight"]}},
        "aggregates": {
            "heavy": {"table": "parts", "on": {"id": "thing"}, "value": "sum(weight)"},
            "pieces": {"table": "parts", "on": {"id": "thing"}, "value": "count(*)"},
        },
    },
}


@dataclass
class Migrating(OwnTables):
    """The pipeline.

    Attributes:
        form: ``source.format``.
        policy: ``policy.schema``.
        setup: whether the pipeline file names the owner.
        sinks: kinds that are kept.
        more: SQL that makes tables besides, and their rows.
        tables: those that are captured besides.
        rows: of the table ``things``.
    """

    form: str = "json"
    policy: str = "evolve"
    setup: bool = True
    sinks: Sequence[str] = ("search", "cache", "warehouse")
    views: dict[str, Any] = field(default_factory=lambda: dict(VIEWS))
    more: str = ""
    tables: Sequence[str] = ()
    rows: int = ROWS

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute((TABLES + self.more).encode())
            connection.execute(
                "INSERT INTO things SELECT i, CASE WHEN i %% 3 > 0 THEN 'a' || i END, i, i / 3.0,"
                " timestamp '2024-01-01' + i * interval '1 hour', CASE WHEN i %% 2 = 0 THEN 'sad'::mood ELSE 'ok' END,"
                " i::text FROM generate_series(1, %s) i",
                [self.rows],
            )
            connection.execute("INSERT INTO things (id, spare) VALUES (100000, 'is always there')")
            connection.execute(
                "INSERT INTO parts SELECT i, i %% %s + 1, i %% 20 FROM generate_series(1, %s) i",
                [self.rows, 2 * self.rows],
            )
        self.write_pipeline()
        self.run("apply", "--wait")

    def write_pipeline(self) -> None:
        source: dict[str, Any] = {"format": self.form}
        if self.form == "avro":
            source["registry"] = {"url": self.stack.endpoints.registry_url}
        kept = {name: self.kinds()[name] for name in self.sinks}
        tables = ["public.things", "public.parts", *self.tables]
        self.write_own(tables, self.views, kept, source, setup=self.setup, policy={"schema": self.policy})

    def readable(self, *, allowed: bool) -> None:
        """Never taken away: what is built by itself is shown only after it was compared with the tables."""
        super().readable(allowed=True)

    def kinds(self) -> dict[str, dict[str, Any]]:
        """The sinks of the file, by name; ``sinks`` says which of them are there."""
        warehouse = self.folder / "warehouse"
        return {
            "cache": self.cache(self.views),
            "search": self.search(self.views),
            "warehouse": {
                "type": "iceberg",
                "catalog_uri": str(warehouse / "catalog.db"),
                "warehouse": str(warehouse),
                "namespace": self.name,
                "trigger_seconds": 1,
                "views": [self.view("thing")],
            },
        }

    def flows(self) -> list[dict[str, Any]]:
        """Every flow's status, of the living generations."""
        return [flow for sink in self.status()["sinks"] for flow in sink["flows"]]

    # -- what came of a migration --------------------------------------------------------------------------------------

    def evolution(self) -> dict[str, Any]:
        """What `run` keeps of it."""
        found: dict[str, Any] = {"acted": {}, "todo": {}}
        for sink in self.sinks:
            path = self.folder / "state" / self.name / sink / "evolution.json"
            one = json.loads(path.read_text()) if path.exists() else {"acted": {}, "todo": {}}
            for table, shape in one["acted"].items():
                # Its files, too: ALTER … TYPE … USING may leave all else what it was.
                found["acted"].setdefault(table, []).append({**shape["table"], "files": shape["files"]})
            found["todo"] |= one["todo"]
        return found

    def migrated(self, table: str, ready: Any, seconds: float = 600.0) -> None:
        """Wait until a table's new shape was noticed, and nothing is left to do because of it.

        Args:
            table: ``schema.table``.
            ready: whether a shape is the new one.
            seconds: at most.
        """
        until = time.monotonic() + seconds
        while True:
            now = self.evolution()
            tables = now["acted"].get(table, [])
            if not now["todo"] and tables and all(map(ready, tables)):
                return
            assert self.runner is None or self.runner.poll() is None, f"the runner ended:\n{self.log()}"
            assert time.monotonic() < until, f"not so after {seconds} s: {now['todo']}\n{self.log()}"
            time.sleep(0.1)


class Rows(Writing):
    """Writes rows, naming only columns that no migration touches."""

    pause = 0.02

    def row(self, connection: psycopg.Connection[Any]) -> None:
        rng = self.random
        key = rng.randrange(1, ROWS + 50)
        if rng.random() < 0.15:
            connection.execute("DELETE FROM things WHERE id = %s", [key])
        else:
            connection.execute(
                "INSERT INTO things (id, spare) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET spare = excluded.spare",
                [key, str(rng.randrange(1000))],
            )
        connection.execute(
            "UPDATE parts SET note = %s, thing = %s WHERE id = %s",
            [str(rng.random()), key, rng.randrange(1, 2 * ROWS)],
        )


class Readers(Background):
    """Asks an index and a cache, all the time, for a document that is never deleted, as an application does.

    Attributes:
        missed: answers that lacked it.
        gap: the longest time without an answer that had it, in seconds.
    """

    def __init__(self, made: Migrating, key: str = "100000", *, count: bool = False) -> None:
        super().__init__()
        self.made, self.key, self.count = made, key, count
        self.reads, self.missed = 0, list[str]()
        self.gap = 0.0

    def work(self) -> None:
        ends = self.made.stack.endpoints
        index = f"{ends.elasticsearch_url}/{self.made.view('thing')}/_search?q=id:{self.key}"
        cached = f"{self.made.name}:{self.made.view('thing')}:{self.key}"
        client, session = redis.Redis.from_url(ends.redis_cache_url), requests.Session()
        well = time.monotonic()
        while not self.over.is_set():
            self.reads += 1
            found, key = session.get(index, timeout=20), client.get(cached)
            self.gap = max(self.gap, time.monotonic() - well)  # an answer that was long in coming, too
            if found.status_code != 200 or not found.json()["hits"]["hits"]:
                self.missed.append(f"search: {found.text[:200]}")
            elif key is None:
                self.missed.append(f"cache: no {cached}")
            else:
                well = time.monotonic()
            time.sleep(0.05)
        client.close()
        session.close()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert self.reads
        assert self.count or not self.missed, self.missed[:3]
