"""Clients that read all the time, as an application does, and remember every answer that failed or was wrong."""

from __future__ import annotations

import json
import threading
import time
from types import TracebackType
from typing import Any

import psycopg
import requests
from redis import Redis
from ruamel.yaml import YAML

from cdc.pipeline import load
from sinks.iceberg import catalogue as iceberg
from tests.support.scenario import Scenario


class Readers(threading.Thread):
    """Reads one sink by its readers' name in a loop; ``with`` ends it.

    A read is wrong when a document that has been there since before the first read is not, or is none of its kind.

    Args:
        scenario: a running shop.
        sink: its sink's name.
    """

    def __init__(self, scenario: Scenario, sink: str) -> None:
        super().__init__(daemon=True)
        self.scenario, self.sink = scenario, sink
        self.reads = 0
        self.failed: list[str] = []
        self.wrong: list[str] = []
        self._stop_reading = threading.Event()
        self._read = {"search": self._search, "cache": self._cache, "warehouse": self._warehouse}[sink]
        self.view = "orders" if sink == "warehouse" else scenario.view("order")
        if sink == "cache":
            self._redis = Redis.from_url(scenario.stack.endpoints.redis_cache_url)

    def __enter__(self) -> Readers:
        self.least = 0
        self.least = self._read()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_reading.set()
        self.join(30)

    def run(self) -> None:
        """Read until the end of the block."""
        while not self._stop_reading.wait(0.01):
            try:
                self._read()
                self.reads += 1
            except Exception as error:
                self.failed.append(f"{time.time():.3f} {type(error).__name__}: {error}"[:500])

    def _search(self) -> int:
        url = f"{self.scenario.stack.endpoints.elasticsearch_url}/{self.view}/_count"
        answer = requests.get(url, timeout=10)
        answer.raise_for_status()
        return self._judge(int(answer.json()["count"]))

    def _cache(self) -> int:
        """A plain GET of each key that was there at the first read: what most applications do."""
        if not self.least:
            pattern = f"{self.scenario.name}:{self.view}:*"
            self._keys = list(self._redis.scan_iter(pattern, count=1000))[:40]
            assert self._keys
            return len(self._keys)
        for key in self._keys:
            value: Any = self._redis.get(key)
            if value is None and self._deleted(key.decode().rpartition(":")[2]):
                continue
            if value is None or "order_id" not in json.loads(value):
                self.wrong.append(f"{key!r} is {value!r}")
        return self.least

    def _deleted(self, order: str) -> bool:
        with psycopg.connect(self.scenario.conninfo) as connection:
            return connection.execute("SELECT 1 FROM orders WHERE order_id::text = %s", [order]).fetchone() is None

    def _warehouse(self) -> int:
        pipeline = load(self.scenario.file, self.scenario.environment())
        return self._judge(iceberg.count(pipeline.sinks["warehouse"], "hw_warehouse", self.view))

    def _judge(self, count: int) -> int:
        if count < self.least * 0.9:  # the workload deletes a few
            self.wrong.append(f"{count} of {self.least}")
        return count

    def leftovers(self, generation: int) -> list[str]:
        """What a retired generation has left in the target."""
        if self.sink == "search":
            url = f"{self.scenario.stack.endpoints.elasticsearch_url}/_cat/indices/{self.scenario.name}*"
            there = requests.get(url, {"format": "json", "expand_wildcards": "all"}, timeout=10).json()
            return [index["index"] for index in there if f"_g{generation}" in index["index"]]
        if self.sink == "cache":
            return [key.decode() for key in self._redis.scan_iter(f"{self.scenario.name}:*@{generation}:*")]
        document = YAML(typ="safe").load(self.scenario.file.read_text())["sinks"]["warehouse"]
        pipeline = load(self.scenario.file, self.scenario.environment())
        with iceberg.open_catalog(pipeline.sinks["warehouse"], "hw_warehouse") as catalog:
            names = [name[-1] for name in catalog.list_tables(document["namespace"])]
        return [name for name in names if name.endswith(f"__g{generation}")]
