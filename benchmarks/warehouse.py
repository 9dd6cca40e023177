"""The warehouse under a mixed load: how old its tables get beside search and cache, how soon it is back after a kill.

``python -m benchmarks.run warehouse``: eight tables in three sinks, 15 transactions a second over all of them, and one
probe a second, which is a row that must show in its Iceberg table, and in the cache.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import psycopg
import redis

from benchmarks.piped import Piped
from benchmarks.results import Measurement, quantile
from benchmarks.stack import ready
from cdc.errors import StackError
from cdc.pipeline import IcebergSink, load
from examples.common import drop_database, ensure_database
from sinks.iceberg import catalogue as iceberg
from tests.support.background import Background

COMMAND = "python -m benchmarks.run warehouse"
DATABASE, OWNER = "bench_lake", "flights_owner"
TABLES, ROWS, RATE = 8, 50_000, 15.0
WARM_UP_SECONDS, LOAD_SECONDS, PATIENCE_SECONDS, PROBE_SECONDS = 30.0, 120.0, 300.0, 1.0
CACHE_LOOK_SECONDS = 0.05
# Where probes begin: beyond every row of the load.
FIRST_PROBE = 10_000_000
TEXT = """
version: 1
name: benchlake
source:
  host: ${HEADWATER_POSTGRES_HOST}
  port: ${HEADWATER_POSTGRES_PORT}
  database: bench_lake
  user: headwater
  password: ${HEADWATER_SOURCE_PASSWORD}
  setup_user: flights_owner
  setup_password: ${HEADWATER_SETUP_PASSWORD}
  tables: ["public.*"]
kafka: {bootstrap: "${HEADWATER_KAFKA}"}
connect: {url: "${HEADWATER_CONNECT}"}
sinks:
  cache: {type: redis, url: "${HEADWATER_REDIS_CACHE}", tables: all, key_prefix: "lake:"}
  search: {type: elasticsearch, url: "${HEADWATER_ELASTICSEARCH}", tables: all}
  warehouse:
    type: iceberg
    tables: all
    catalog_uri: FOLDER/warehouse/catalog.db
    warehouse: FOLDER/warehouse
    namespace: lake
engine: {state_dir: FOLDER/state}
"""


def measure() -> list[Measurement]:
    """Everything once, on a database of its own."""
    stack = ready()
    conninfo = ensure_database(stack.endpoints, DATABASE, OWNER)
    try:
        _fill(conninfo)
        with tempfile.TemporaryDirectory(prefix="headwater-lake-") as folder:
            run = Piped(stack, Path(folder), TEXT)
            with run.applied():
                return _measured(run, conninfo)
    finally:
        drop_database(stack.endpoints, DATABASE)


def _fill(conninfo: str) -> None:
    with psycopg.connect(conninfo) as connection:
        for number in range(TABLES):
            connection.execute(
                f"CREATE TABLE lake{number} (id bigint PRIMARY KEY, name text, amount numeric(12,2), at timestamptz,"
                f" note{number} text)"
            )
            connection.execute(
                f"INSERT INTO lake{number} SELECT i, 'n' || i, i / 7.0, now(), repeat('x', 60)"  # noqa: S608
                f" FROM generate_series(1, {ROWS}) i"
            )


def _measured(run: Piped, conninfo: str) -> list[Measurement]:
    probes = Probes(run)
    began = time.perf_counter()
    with run.running() as runner:
        run.await_caught_up(runner)
        loaded = time.perf_counter() - began
        print(f"{TABLES * ROWS:,} rows in three sinks after {loaded:.1f} s, start included", flush=True)
        writers = [
            Background(partial(_load, conninfo)),
            Background(partial(probes.write, conninfo)),
            Background(partial(probes.watch_cache, run.env["HEADWATER_REDIS_CACHE"])),
        ]
        with ExitStack() as beside:  # one that dies fails the run: without it there is no load, or nothing is seen
            for writer in writers:
                beside.enter_context(writer)
            time.sleep(WARM_UP_SECONDS)
            first = time.monotonic()
            probes.watch(LOAD_SECONDS)
            under_load = probes.ages(first, first + LOAD_SECONDS - PATIENCE_SECONDS / 10)
            in_cache = probes.ages(first, first + LOAD_SECONDS - PATIENCE_SECONDS / 10, probes.cached)
            runner.send_signal(signal.SIGKILL)
            runner.wait()
            killed = time.monotonic()
            with run.running() as again:
                back = _back(probes, killed, again, run)
    p50, p95 = quantile(under_load, 0.5), quantile(under_load, 0.95)
    print(f"under load: p50 {p50:.1f} s, p95 {p95:.1f} s of {len(under_load)}; back after {back:.1f} s", flush=True)
    cache50, cache95 = quantile(in_cache, 0.5), quantile(in_cache, 0.95)
    print(f"cache meanwhile: p50 {cache50:.2f} s, p95 {cache95:.2f} s", flush=True)
    return [
        Measurement("cache_beside_warehouse_p50_s", cache50, "s", len(in_cache), command=COMMAND),
        Measurement("cache_beside_warehouse_p95_s", cache95, "s", len(in_cache), command=COMMAND),
        Measurement("warehouse_p50_under_load_s", p50, "s", len(under_load), command=COMMAND),
        Measurement("warehouse_p95_under_load_s", p95, "s", len(under_load), command=COMMAND),
        Measurement("warehouse_back_after_kill_s", back, "s", 1, command=COMMAND),
    ]


def _back(probes: Probes, killed: float, runner: subprocess.Popen[bytes], run: Piped) -> float:
    """Seconds from the kill until every row from before it shows, and one from after it that came within 30 s.

    Raises:
        StackError: it did not come to that, or the runner has ended.
    """
    while time.monotonic() - killed < PATIENCE_SECONDS:
        probes.watch(1.0)
        run.check(runner)
        now = time.monotonic()
        if not probes.waiting(before=killed) and probes.fresh(since=killed, age=30.0):
            return now - killed
    raise StackError(
        f"the warehouse was not back {PATIENCE_SECONDS:.0f} s after the kill",
        means=f"{probes.waiting(before=killed)} rows from before it do not show, or none from after it came within"
        " 30 s: how long it takes is not known, and nothing of this run is written",
        fix="look at the runner's log and at the machine's load; then run the benchmark again",
    )


def _load(conninfo: str, stop: threading.Event) -> None:
    """15 transactions a second of one to four steps."""
    rng, due = Random(1), time.monotonic()  # noqa: S311 (which rows, not secrets)
    with psycopg.connect(conninfo) as connection:
        while not stop.wait(max(due - time.monotonic(), 0)):
            due += 1 / RATE
            for _ in range(rng.choice((1, 1, 2, 4))):
                table, key = f"lake{rng.randrange(TABLES)}", rng.randrange(1, ROWS)
                if rng.random() < 0.8:
                    connection.execute(f"UPDATE {table} SET amount = amount + 1 WHERE id = %s", [key])  # noqa: S608
                else:
                    connection.execute(f"DELETE FROM {table} WHERE id = %s", [key])  # noqa: S608
                    connection.execute(f"INSERT INTO {table} VALUES (%s, 'new', 1, now(), 'y')", [key])  # noqa: S608
            connection.commit()


@dataclass
class Probes:
    """Rows that are written one after the other, and when each was seen in its table."""

    run: Piped
    written: dict[tuple[int, int], float] = field(default_factory=dict)
    seen: dict[tuple[int, int], float] = field(default_factory=dict)
    cached: dict[tuple[int, int], float] = field(default_factory=dict)
    _known: dict[int, str] = field(default_factory=dict)

    def write(self, conninfo: str, stop: threading.Event) -> None:
        """One a second, in another table each time."""
        with psycopg.connect(conninfo, autocommit=True) as connection:
            key = FIRST_PROBE
            while not stop.wait(PROBE_SECONDS):
                key += 1
                table = key % TABLES
                connection.execute(f"INSERT INTO lake{table} VALUES (%s, 'probe', 0, now(), '')", [key])  # noqa: S608
                self.written[table, key] = time.monotonic()

    def watch(self, seconds: float) -> None:
        """Look at the tables for so long."""
        sink = load(self.run.file, self.run.env).sinks["warehouse"]
        assert isinstance(sink, IcebergSink)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with iceberg.open_catalog(sink, "hw_warehouse") as catalog:
                waiting = defaultdict(list)
                for table, key in set(self.written) - set(self.seen):
                    waiting[table].append(key)
                for table, keys in waiting.items():
                    found = iceberg.load_table(catalog, sink, f"lake{table}")
                    if self._known.get(table) == found.metadata_location:
                        continue
                    at = time.monotonic()
                    rows = found.scan(row_filter=f"id > {min(keys) - 1}", selected_fields=("id",)).to_arrow()
                    for key in set(rows.column("id").to_pylist()) & set(keys):
                        self.seen[table, key] = at
                    self._known[table] = found.metadata_location
            time.sleep(0.25)

    def watch_cache(self, url: str, stop: threading.Event) -> None:
        """Look into the cache until told to stop."""
        with redis.Redis.from_url(url) as cache:
            while not stop.wait(CACHE_LOOK_SECONDS):
                waiting = [one for one in list(self.written) if one not in self.cached]
                values = cache.mget([f"lake:lake{table}:{key}" for table, key in waiting]) if waiting else []
                at = time.monotonic()
                self.cached.update({one: at for one, value in zip(waiting, values, strict=True) if value})

    def ages(self, first: float, last: float, seen: dict[tuple[int, int], float] | None = None) -> list[float]:
        """Seconds from commit to the table (or where else it was seen), of rows written in a span; of one that was not
        seen, till now."""
        now, seen = time.monotonic(), self.seen if seen is None else seen
        return [seen.get(one, now) - at for one, at in self.written.items() if first <= at <= last]

    def fresh(self, since: float, age: float) -> bool:
        """Whether a row that was written since a moment was seen within so many seconds."""
        return any(at >= since and self.seen.get(one, at + 2 * age) - at <= age for one, at in self.written.items())

    def waiting(self, before: float) -> int:
        """How many rows from before a moment are not there."""
        return sum(at < before and one not in self.seen for one, at in list(self.written.items()))
