"""Many tables: what `check`, `plan`, `apply` without a change and the start of `run` take, and what it costs at rest.

``python -m benchmarks.run tables``: 500 tables of which 20 are written, 50 views, three sinks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from benchmarks.processor import Processor, servers_of
from benchmarks.rest import mib_of, shares
from benchmarks.results import Measurement
from benchmarks.stack import ready
from cdc.errors import StackError
from deploy.local.stack import LocalStack
from examples.common import Passwords, drop_database, ensure_database

COMMAND = "python -m benchmarks.run tables"
DATABASE, OWNER = "bench_tables", "flights_owner"
TABLES, BUSY, VIEWS, ROWS = 500, 20, 50, 20
START_SECONDS, SETTLE_SECONDS = 900.0, 60.0
TEXT = """
version: 1
name: benchtables
source:
  host: ${{HEADWATER_POSTGRES_HOST}}
  port: ${{HEADWATER_POSTGRES_PORT}}
  database: {database}
  user: headwater
  password: ${{HEADWATER_SOURCE_PASSWORD}}
  setup_user: {owner}
  setup_password: ${{HEADWATER_SETUP_PASSWORD}}
  tables: ["public.*"]
kafka: {{bootstrap: "${{HEADWATER_KAFKA}}"}}
connect: {{url: "${{HEADWATER_CONNECT}}"}}
row_store: {{url: "${{HEADWATER_REDIS_STORE}}"}}
views:
{views}
sinks:
  cache: {{type: redis, url: "${{HEADWATER_REDIS_CACHE}}", views: [{half}]}}
  search: {{type: elasticsearch, url: "${{HEADWATER_ELASTICSEARCH}}", views: [{half}]}}
  more: {{type: redis, url: "${{HEADWATER_REDIS_CACHE}}", views: [{others}]}}
engine: {{state_dir: "{folder}/state"}}
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
    file = folder / "pipeline.yaml"
    names = [f"v{number}" for number in range(VIEWS)]
    views = "\n".join(f"  {name}: {{root: t{number}}}" for number, name in enumerate(names))
    half, others = ", ".join(names[: VIEWS // 2]), ", ".join(names[VIEWS // 2 :])
    file.write_text(TEXT.format(database=DATABASE, owner=OWNER, folder=folder, views=views, half=half, others=others))
    passwords = Passwords.load(home=stack.site.home).as_environment()
    env = {**os.environ, **stack.endpoints.environment(), **passwords}

    def took(verb: str, *options: str) -> float:
        began = time.perf_counter()
        command = [sys.executable, "-m", "console.cli", verb, str(file), *options]
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        if done.returncode not in (0, 2):
            raise StackError(f"headwater {verb} has failed ({done.returncode}): {done.stderr[-500:]}")
        seconds = time.perf_counter() - began
        print(f"{verb} {' '.join(options)}: {seconds:.1f} s")
        return seconds

    found = {"first_apply_s": took("apply", "--wait")}
    try:
        found |= {"check_s": took("check"), "plan_s": took("plan"), "apply_unchanged_s": took("apply")}
        began = time.perf_counter()
        with _running(file, env, folder / "run.log") as pid:
            _all_run(file, env)
            found["run_start_s"] = time.perf_counter() - began
            found["status_s"] = took("status")
            found["busy_applied_s"] = _busy(conninfo, file, env)
            time.sleep(SETTLE_SECONDS)
            used = shares(Processor({**servers_of(stack), "run": pid}))
            print(", ".join(f"{name} {share:.1f}" for name, share in sorted(used.items(), key=lambda one: -one[1])))
            found["idle_cpu_percent"] = sum(used.values())
            found["run_rss_mib"] = mib_of(pid)
    finally:
        took("drop", "--topics", "--yes")
    units = {"idle_cpu_percent": "% of a core", "run_rss_mib": "MiB"}
    return [
        Measurement(f"tables_{TABLES}_{name}", round(value, 2), units.get(name, "s"), 1, command=COMMAND)
        for name, value in found.items()
    ]


@contextmanager
def _running(file: Path, env: dict[str, str], log: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "console.cli", "run", str(file)]
    with log.open("wb") as out:
        runner = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        yield runner.pid
    finally:
        runner.send_signal(signal.SIGTERM)
        runner.wait(120)


def _status(file: Path, env: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "console.cli", "status", str(file), "--json"]
    done = subprocess.run(command, env=env, check=False, stdout=subprocess.PIPE, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _all_run(file: Path, env: dict[str, str]) -> None:
    """Wait until every sink has begun to read."""
    until = time.monotonic() + START_SECONDS
    while True:
        report = _status(file, env)
        if all(flow["state"] == "running" for sink in report["sinks"] for flow in sink["flows"]):
            return
        if time.monotonic() > until:
            raise StackError(f"not every flow ran within {START_SECONDS:.0f} s")
        time.sleep(1)


def _busy(conninfo: str, file: Path, env: dict[str, str]) -> float:
    """Seconds from a change of every row of the busy tables until nothing lags."""
    began = time.perf_counter()
    with psycopg.connect(conninfo) as connection:
        for number in range(BUSY):
            connection.execute(SQL("UPDATE {} SET name = 'other'").format(Identifier(f"t{number}")))
    time.sleep(1)
    until = time.monotonic() + START_SECONDS
    while any(flow.get("lag") for sink in _status(file, env)["sinks"] for flow in sink["flows"]):
        if time.monotonic() > until:
            raise StackError(f"the changes were not applied within {START_SECONDS:.0f} s")
        time.sleep(0.2)
    return time.perf_counter() - began


__all__ = ["measure"]
