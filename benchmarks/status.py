"""How soon a connector that is dead is told, and what a scrape of the metrics costs.

``python -m benchmarks.run status`` brings a pipeline of its own to the local stack, with the default heartbeat, and
stops its WAL sender: the connector says RUNNING, the slot is active, and no sink has a record to apply.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import requests

from benchmarks.results import Measurement
from cdc.pipeline import Pipeline, load
from operations.status.facts import judged, sink_limit
from tests.support.local import ready
from tests.support.migrating import Migrating
from tests.support.serving import serving

COMMAND = "python -m benchmarks.run status"
ROUNDS, SCRAPES = 3, 200
MOST_SECONDS = 120.0


def measure() -> list[Measurement]:
    """From the moment of the hang to the moment at which every sink is judged by it."""
    with tempfile.TemporaryDirectory(prefix="headwater-status-") as folder:
        made = Migrating(ready(), Path(folder), sinks=("search", "cache"), views={"thing": {"root": "things"}})
        with made.running(), serving(made.file, made.environment()) as url:
            pipeline = load(made.file, made.environment())
            most = sink_limit(pipeline, "search")
            _until(lambda: _oldest(pipeline) < most / 2)
            told = []
            for _ in range(ROUNDS):
                told.append(_hang(made, pipeline))
                _until(lambda: _oldest(pipeline) < most / 2)  # as in a database at rest
            scrapes = []
            for _ in range(SCRAPES):
                began = time.perf_counter()
                requests.get(f"{url}/metrics", timeout=10).raise_for_status()
                scrapes.append((time.perf_counter() - began) * 1_000)
    print(f"told after {', '.join(f'{one:.1f}' for one in told)} s; the limit is {most:.0f} s")
    scrape = statistics.median(scrapes)
    return [
        Measurement("status_detects_dead_connector_s", round(max(told), 1), "s", ROUNDS, command=COMMAND),
        Measurement("metrics_scrape_ms", round(scrape, 1), "ms", SCRAPES, command=COMMAND),
    ]


def _hang(made: Migrating, pipeline: Pipeline) -> float:
    """Seconds until all sinks are judged to be behind."""
    with psycopg.connect(made.conninfo) as connection:
        row = connection.execute(
            "SELECT active_pid FROM pg_replication_slots WHERE database = %s AND active", [made.name]
        ).fetchone()
    assert row is not None
    os.kill(row[0], signal.SIGSTOP)
    began = time.monotonic()
    try:
        _until(lambda: _judgements(pipeline) == {"behind"})
        return time.monotonic() - began
    finally:
        os.kill(row[0], signal.SIGCONT)


def _judgements(pipeline: Pipeline) -> set[str]:
    return {sink.judged.judgement for sink in judged(pipeline).sinks.values()}


def _oldest(pipeline: Pipeline) -> float:
    return max(MOST_SECONDS if sink.age is None else sink.age for sink in judged(pipeline).sinks.values())


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + MOST_SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)
