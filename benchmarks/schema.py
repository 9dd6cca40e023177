"""How long sinks stand still while a table is altered, and whether a reader of an index notices a new generation.

``python -m benchmarks.run schema`` brings a pipeline of its own to the local stack: 200 rows, all three kinds of sinks.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import redis
import requests

from benchmarks.results import Measurement
from tests.support.background import Background
from tests.support.local import ready
from tests.support.migrating import Migrating, Readers

COMMAND = "python -m benchmarks.run schema"
# A row that is written this often shows each sink's stand.
BEAT_SECONDS = 0.05
KEY = 100_000


class Beats(Background):
    """Counts in one row, and notes for each sink how long it went on showing the same number at the longest."""

    def __init__(self, made: Migrating) -> None:
        super().__init__()
        self.made = made
        self.longest: dict[str, float] = {}

    def work(self) -> None:
        """Beat and look."""
        ends = self.made.stack.endpoints
        cache, session = redis.Redis.from_url(ends.redis_cache_url), requests.Session()
        looks: dict[str, Callable[[], str]] = {
            "cache": lambda: self._cached(cache),
            "search": lambda: (
                session.get(f"{ends.elasticsearch_url}/{self.made.view('thing')}/_search?q=id:{KEY}", timeout=20).text
            ),
        }
        seen = {name: ("", time.monotonic()) for name in looks}
        number = 0
        with psycopg.connect(self.made.conninfo, autocommit=True) as connection:
            while not self.over.is_set():
                number += 1
                connection.execute("UPDATE things SET spare = %s WHERE id = %s", [f"beat {number}", KEY])
                for name, look in looks.items():
                    found, now = look().partition("beat ")[2].partition('"')[0], time.monotonic()
                    # Before it is seen to have changed: a look that was long in coming is part of how long it stood.
                    self.longest[name] = max(self.longest.get(name, 0.0), now - seen[name][1])
                    if found != seen[name][0]:
                        seen[name] = found, now
                time.sleep(BEAT_SECONDS)

    def _cached(self, client: redis.Redis) -> str:
        found = client.get(f"{self.made.name}:{self.made.view('thing')}:{KEY}")
        return found.decode() if isinstance(found, bytes) else ""

    def __enter__(self) -> Beats:
        super().__enter__()
        time.sleep(3)
        self.longest.clear()
        return self


def measure() -> list[Measurement]:
    """Add a column with a default; then give another one another type."""
    with tempfile.TemporaryDirectory(prefix="headwater-schema-") as folder:
        made = Migrating(ready(), Path(folder))
        with made.running():
            with Beats(made) as beats:
                made.execute("ALTER TABLE things ADD COLUMN stars int DEFAULT 3")
                made.migrated("public.things", lambda table: "stars" in json.dumps(table))
            gap = max(beats.longest.values())
            with Readers(made, count=True) as readers:
                made.execute("ALTER TABLE things ALTER code TYPE integer USING code::integer")
                made.migrated("public.things", lambda table: _type(table, "code") == "int4")
            made.assert_equal()
    return [
        Measurement("schema_add_column_gap_s", round(gap, 2), "s", 1, command=COMMAND),
        Measurement("schema_retype_index_gap_s", round(readers.gap, 2), "s", readers.reads, command=COMMAND),
    ]


def _type(table: dict[str, object], name: str) -> object:
    columns = table.get("columns", [])
    assert isinstance(columns, list)
    return next((column["base_type"] for column in columns if column["name"] == name), None)
