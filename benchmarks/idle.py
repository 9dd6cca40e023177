"""Commit → applied, one commit at a time on an idle pipeline: the latency a user feels who saves and looks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import psycopg
import redis
from elasticsearch import Elasticsearch, NotFoundError

from benchmarks.pipeline import Bench
from benchmarks.results import Measurement, quantile
from cdc.pipeline import ElasticsearchSink, IcebergSink, RedisSink
from sinks.iceberg import catalogue as iceberg

COMMITS, WAREHOUSE_COMMITS, WARM_UP = 200, 40, 15
PATIENCE_SECONDS = 60.0

Probe = Callable[[int], Any]


def measure(bench: Bench) -> list[Measurement]:
    """Idle latency of every sink; then the cache's again while the warehouse merges beside it."""
    found = []
    with bench.following("search", "cache"), Watcher(bench) as watcher:
        fast = {"elasticsearch": watcher.document, "redis": watcher.cached}
        watcher.times(fast, WARM_UP)
        for name, seconds in watcher.times(fast, COMMITS).items():
            found += _quantiles(name, seconds)
    with bench.following("search", "cache", "warehouse"), Watcher(bench) as watcher:
        watcher.times({"redis": watcher.cached}, WARM_UP)
        merging = watcher.times({"redis": watcher.cached}, COMMITS)["redis"]
        found += _quantiles("redis_while_merging", merging)
        found += _quantiles("iceberg", watcher.times({"iceberg": watcher.row}, WAREHOUSE_COMMITS)["iceberg"])
    return found


def _quantiles(name: str, seconds: list[float]) -> list[Measurement]:
    return [
        Measurement(f"idle_applied_p{share}_s/{name}", quantile(seconds, share / 100), "s", len(seconds))
        for share in (50, 99)
    ]


class Watcher:
    """Commits updates of single flights and looks at the sinks until they show them."""

    def __init__(self, bench: Bench) -> None:
        pipeline = bench.pipeline
        search, cache, warehouse = (pipeline.sinks[name] for name in ("search", "cache", "warehouse"))
        assert isinstance(search, ElasticsearchSink) and isinstance(cache, RedisSink)
        assert isinstance(warehouse, IcebergSink)
        self.warehouse = warehouse
        source = pipeline.source
        assert source.setup_password is not None
        self.database = psycopg.connect(
            host=source.host,
            port=source.port,
            dbname=source.database,
            user=source.setup_user,
            password=source.setup_password.get_secret_value(),
            autocommit=True,
        )
        self.elasticsearch = Elasticsearch(search.url)
        url: Any = cache.url
        self.redis = redis.Redis.from_url(url.get_secret_value() if hasattr(url, "get_secret_value") else url)
        # Not seeded: a second watcher with the first one's values would find them there before it commits.
        self.random = random.Random()  # noqa: S311 (which rows, not secrets)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()
        self.elasticsearch.close()
        self.redis.close()

    def times(self, probes: Mapping[str, Probe], commits: int) -> dict[str, list[float]]:
        """Seconds from each commit until each probe shows the new value."""
        out: dict[str, list[float]] = {name: [] for name in probes}
        with ThreadPoolExecutor(len(probes)) as pool:
            for _ in range(commits):
                key, value = self.random.randrange(1, 300_000), self.random.randrange(10**6, 10**9)
                self.database.execute("UPDATE flights SET air_time = %s WHERE flight_id = %s", (value, key))
                committed = time.perf_counter()
                waiting = {name: pool.submit(_until, probe, key, value, committed) for name, probe in probes.items()}
                for name, future in waiting.items():
                    out[name].append(future.result())
                time.sleep(self.random.uniform(0.2, 0.5))
        return out

    def document(self, key: int) -> Any:
        """The flight in Elasticsearch, by GET."""
        try:
            return self.elasticsearch.get(index="bench_flight", id=str(key))["_source"]["air_time"]
        except NotFoundError:
            return None

    def cached(self, key: int) -> Any:
        """The flight in Redis, by GET."""
        value: Any = self.redis.get(f"bench:bench_flight:{key}")
        return None if value is None else orjson.loads(value)["air_time"]

    def row(self, key: int) -> Any:
        """The flight in Iceberg, through pyiceberg."""
        with iceberg.open_catalog(self.warehouse, "hw_warehouse") as catalog:
            table = iceberg.load_table(catalog, self.warehouse, "bench_flight")
            found = table.scan(row_filter=f"flight_id = {key}", selected_fields=("air_time",)).to_arrow()
        values = found.column("air_time").to_pylist()
        return values[0] if values else None


def _until(probe: Probe, key: int, value: int, committed: float) -> float:
    while probe(key) != value:
        if time.perf_counter() - committed > PATIENCE_SECONDS:
            raise RuntimeError(f"a commit was not applied within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.002)
    return time.perf_counter() - committed
