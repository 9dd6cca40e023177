"""Many tables: what `check`, `plan`, `apply` without a change and the start of `run` take, and what it costs at rest.

``python -m benchmarks.run tables``: 500 tables of which 20 are written, 50 views, three sinks.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from benchmarks.costs import mib_of
from benchmarks.piped import Piped
from benchmarks.processor import Processor, servers_of
from benchmarks.rest import shares
from benchmarks.results import Measurement
from benchmarks.stack import ready
from deploy.local.stack import LocalStack
from examples.common import drop_database, ensure_database

COMMAND = "python -m benchmarks.run tables"
DATABASE, OWNER = "bench_tables", "flights_owner"
TABLES, BUSY, VIEWS, ROWS = 500, 20, 50, 20
START_SECONDS, SETTLE_SECONDS = 900.0, 60.0
TEXT = """
version: 1
name: benchtables
source:
  host: ${HEADWATER_POSTGRES_HOST}
  port: ${HEADWATER_POSTGRES_PORT}
  database: bench_tables
  user: headwater
  password: ${HEADWATER_SOURCE_PASSWORD}
  setup_user: flights_owner
  setup_password: ${HEADWATER_SETUP_PASSWORD}
  tables: ["public.*"]
kafka: {bootstrap: "${HEADWATER_KAFKA}"}
connect: {url: "${HEADWATER_CONNECT}"}
row_store: {url: "${HEADWATER_REDIS_STORE}"}
views:
VIEWS
sinks:
  cache: {type: redis, url: "${HEADWATER_REDIS_CACHE}", views: [HALF]}
  search: {type: elasticsearch, url: "${HEADWATER_ELASTICSEARCH}", views: [HALF]}
  more: {type: redis, url: "${HEADWATER_REDIS_CACHE}", views: [OTHERS]}
engine: {state_dir: "FOLDER/state"}
"""


def measure() -> list[Measurement]:
    """Everything once, on a database of its own."""
    stack = ready()
    conninfo = ensure_database(stack.endpoints, DATABASE, OWNER)
    try:
        _fill(conninfo)
        with tempfile.TemporaryDirectory(prefix="headwater-tables-") as folder:
            return _measured(stack, conninfo, Path(folder))
    finally:
        drop_database(stack.endpoints, DATABASE)


def _fill(conninfo: str) -> None:
    create = SQL("CREATE TABLE {} (id int PRIMARY KEY, name text, parent int, {} text)")
    insert = SQL("INSERT INTO {} SELECT i, 'n', i FROM generate_series(1, %s) i")
    with psycopg.connect(conninfo) as connection:
        for number in range(TABLES):
            # A name of its own: no two tables have the same columns, as in a real database.
            connection.execute(create.format(Identifier(f"t{number}"), Identifier(f"label{number}")))
            connection.execute(insert.format(Identifier(f"t{number}")), [ROWS])


def _measured(stack: LocalStack, conninfo: str, folder: Path) -> list[Measurement]:
    names = [f"v{number}" for number in range(VIEWS)]
    views = "\n".join(f"  {name}: {{root: t{number}}}" for number, name in enumerate(names))
    half, others = ", ".join(names[: VIEWS // 2]), ", ".join(names[VIEWS // 2 :])
    run = Piped(stack, folder, TEXT.replace("VIEWS", views).replace("HALF", half).replace("OTHERS", others))
    found = {"first_apply_s": _took(run, "apply", "--wait")}
    try:
        found |= {
            "check_s": _took(run, "check"),
            "plan_s": _took(run, "plan"),
            "apply_unchanged_s": _took(run, "apply"),
        }
        began = time.perf_counter()
        with run.running() as runner:
            run.await_caught_up(runner, patience=START_SECONDS)
            found["run_start_s"] = time.perf_counter() - began
            found["status_s"] = _took(run, "status")
            found["busy_applied_s"] = _busy(conninfo, run, runner)
            time.sleep(SETTLE_SECONDS)
            used = shares(Processor({**servers_of(stack), "run": runner.pid}))
            print(", ".join(f"{name} {share:.1f}" for name, share in sorted(used.items(), key=lambda one: -one[1])))
            found["idle_cpu_percent"] = sum(used.values())
            found["run_rss_mib"] = mib_of(runner.pid)
    finally:
        _took(run, "drop", "--topics", "--yes")
    units = {"idle_cpu_percent": "% of a core", "run_rss_mib": "MiB"}
    return [
        Measurement(f"tables_{TABLES}_{name}", round(value, 2), units.get(name, "s"), 1, command=COMMAND)
        for name, value in found.items()
    ]


def _took(run: Piped, verb: str, *options: str) -> float:
    began = time.perf_counter()
    run.headwater(verb, *options)
    seconds = time.perf_counter() - began
    print(f"{verb} {' '.join(options)}: {seconds:.1f} s", flush=True)
    return seconds


def _busy(conninfo: str, run: Piped, runner: subprocess.Popen[bytes]) -> float:
    """Seconds from a change of every row of the busy tables until nothing lags."""
    began = time.perf_counter()
    with psycopg.connect(conninfo) as connection:
        for number in range(BUSY):
            connection.execute(SQL("UPDATE {} SET name = 'other'").format(Identifier(f"t{number}")))
    time.sleep(1)
    run.await_caught_up(runner, patience=START_SECONDS)
    return time.perf_counter() - began


__all__ = ["measure"]
