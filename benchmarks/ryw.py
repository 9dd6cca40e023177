"""How long who has just written waits until a search finds it, and what waiting costs the index.

``python -m benchmarks.run ryw`` brings a pipeline of its own to the local stack.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import psycopg
from headwater_client import Headwater, take_token

from benchmarks.results import Measurement
from tests.support.local import ready
from tests.support.migrating import Migrating
from tests.support.serving import serving
from tests.support.waiters import Waiters

COMMAND = "python -m benchmarks.run ryw"
# Quiet: one application that writes now and then.
QUIET_WAITS = 200
# Rows of one load, and how many wait meanwhile.
ROWS, WAITERS = 60_000, 20
ROUNDS = 3
LOAD_SECONDS = 60.0


def measure() -> list[Measurement]:
    """Waits of one application on a quiet pipeline, then loads with and without twenty who wait."""
    with tempfile.TemporaryDirectory(prefix="headwater-ryw-") as folder:
        made = Migrating(
            ready(), Path(folder), sinks=("search",), views={"numbered": {"root": "things", "columns": ["id", "n"]}}
        )
        with made.running(), serving(made.file, made.environment()) as url:
            headwater = Headwater(url, timeout=20)
            quiet = _waiters(made, headwater, 1, pause=0.05)
            quiet.run(20, 120)  # warm
            quiet.seconds.clear()
            quiet.states.clear()
            quiet.run(QUIET_WAITS, 300)
            assert not quiet.lies, quiet.lies
            alone, beside = [], []
            for number in range(ROUNDS):
                alone.append(_load(made, headwater, 2 * number))
                with _waiters(made, headwater, WAITERS).at_work():
                    time.sleep(2)
                    beside.append(_load(made, headwater, 2 * number + 1))
    said = (quiet.percentile(0.5), quiet.percentile(0.99))
    ratio = statistics.median(alone) / statistics.median(beside)
    return [
        Measurement("ryw_wait_p50_s", round(said[0], 3), "s", len(quiet.seconds), command=COMMAND),
        Measurement("ryw_wait_p99_s", round(said[1], 3), "s", len(quiet.seconds), command=COMMAND),
        Measurement("ryw_refresh_cost_ratio", round(ratio, 3), "ratio", ROUNDS, command=COMMAND),
    ]


def _waiters(made: Migrating, headwater: Headwater, threads: int, pause: float = 0.0) -> Waiters:
    url = made.stack.endpoints.elasticsearch_url
    return Waiters(made.conninfo, made.name, url, made.view("numbered"), headwater, threads, pause)


def _load(made: Migrating, headwater: Headwater, number: int) -> float:
    """Seconds from the commit of many rows until the index has them all."""
    first = 2_000_000 + number * ROWS
    with psycopg.connect(made.conninfo, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO things (id, n) SELECT i, i FROM generate_series(%s, %s) i", [first, first + ROWS - 1]
        )
        began = time.monotonic()
        token = take_token(cursor, made.name, after_commit=True)
    answer = headwater.wait(token, ["search"], found_by="id", timeout=LOAD_SECONDS)
    assert answer, answer
    return time.monotonic() - began
