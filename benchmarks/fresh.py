"""Commit → a query in DuckDB shows it, with the topic's tail and without, while the warehouse is followed.

``python -m benchmarks.run fresh`` brings a pipeline of its own (336,776 rows) to the local stack.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from headwater_client import take_token

from benchmarks.idle import Watcher
from benchmarks.pipeline import NAME, Bench
from benchmarks.results import Measurement, quantile
from cdc.token import parse_token
from operations.query.query import Queries

COMMAND = "python -m benchmarks.run fresh"
COMMITS, TABLE_COMMITS, STARTS, WARM_UP = 100, 30, 5, 10
ASKED = "SELECT air_time FROM bench_flight WHERE flight_id = {}"


def measure() -> list[Measurement]:
    """In one process that stays: fresh queries, those that wait for a token, and those of the tables alone; then how
    long the command takes from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="headwater-fresh-") as folder:
        bench = Bench(Path(folder))
        with bench.applied(), bench.following("warehouse"), Watcher(bench) as watcher:
            queries = Queries(bench.pipeline)
            try:
                return _measured(bench, watcher, queries)
            finally:
                queries.close()


def _measured(bench: Bench, watcher: Watcher, queries: Queries) -> list[Measurement]:
    own = list[float]()

    def asked(key: int, *, fresh: bool) -> Any:
        answer = queries.run(ASKED.format(key), fresh=fresh)
        own.append(answer.seconds)
        return answer.found.rows[0][0] if answer.found.rows else None

    watcher.times({"fresh": lambda key: asked(key, fresh=True)}, WARM_UP)
    own.clear()
    fresh = watcher.times({"fresh": lambda key: asked(key, fresh=True)}, COMMITS)["fresh"]
    found = [*_quantiles("warehouse_fresh_query", fresh), *_quantiles("warehouse_fresh_query_itself", own)]
    found += _quantiles("warehouse_fresh_query_by_token", [_by_token(watcher, queries) for _ in range(COMMITS)])
    own.clear()
    table = watcher.times({"table": lambda key: asked(key, fresh=False)}, TABLE_COMMITS)["table"]
    found += [*_quantiles("warehouse_query", table), *_quantiles("warehouse_query_itself", own)]
    starts = [_command(bench) for _ in range(STARTS)]
    median = statistics.median(starts)
    found.append(Measurement("warehouse_query_command_s", round(median, 3), "s", STARTS, command=COMMAND))
    return found


def _by_token(watcher: Watcher, queries: Queries) -> float:
    """Seconds from a commit to the answer of the one query that waits for it."""
    key, value = watcher.random.randrange(1, 300_000), watcher.random.randrange(10**6, 10**9)
    with watcher.database.cursor() as cursor:
        cursor.execute("UPDATE flights SET air_time = %s WHERE flight_id = %s", (value, key))
        committed = time.perf_counter()
        token = parse_token(take_token(cursor, NAME, after_commit=True) or "")
    answer = queries.run(ASKED.format(key), at_least=token)
    took = time.perf_counter() - committed
    assert answer.found.rows == [(value,)], answer
    time.sleep(watcher.random.uniform(0.2, 0.5))
    return took


def _command(bench: Bench) -> float:
    began = time.perf_counter()
    command = bench.command("query", ASKED.format(1), "--fresh", "--json")
    subprocess.run(command, env=bench.env, check=True, capture_output=True)
    return time.perf_counter() - began


def _quantiles(name: str, seconds: list[float]) -> list[Measurement]:
    return [
        Measurement(f"{name}_p{share}_s", round(quantile(seconds, share / 100), 3), "s", len(seconds), command=COMMAND)
        for share in (50, 99)
    ]
