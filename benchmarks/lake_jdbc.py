"""The load of the warehouse's sink beside that of Debezium's JDBC sink: the same rows, each from a topic to its store.

``python -m benchmarks.run lake_jdbc``: the JDBC sink 3.6 upserts them into a second database of the local Postgres.
Each side's first load is left out: its virtual machine compiles what it runs.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from benchmarks.lake_peers import SETTINGS, TEXT
from benchmarks.loads import load_seconds
from benchmarks.peers import jdbc
from benchmarks.peers.copies import copied
from benchmarks.peers.workload import Workload
from benchmarks.piped import Piped
from benchmarks.results import Measurement
from benchmarks.stack import ready
from cdc.errors import StackError
from deploy.local.stack import LocalStack
from examples.common import connect, conninfo, drop_database, ensure_database

COMMAND, PEER = "python -m benchmarks.run lake_jdbc", "Debezium's JDBC sink 3.6"
TARGET, OWNER = "bench_jdbc", "flights_owner"
LOADS = 2
QUESTION = "SELECT count(*), sum(air_time), sum(distance), count(DISTINCT tailnum), max(time_hour) FROM flights"


def measure() -> list[Measurement]:
    """Both loads."""
    stack = ready()
    stack.up(more=["registry"])
    ensure_database(stack.endpoints, TARGET, OWNER)
    try:
        with (
            copied(stack.endpoints, SETTINGS, print) as workload,
            tempfile.TemporaryDirectory(prefix="headwater-jdbc-") as folder,
        ):
            ours = _ours(Piped(stack, Path(folder), TEXT))
            theirs = _theirs(stack, workload)
    finally:
        drop_database(stack.endpoints, TARGET)
    rows, name = SETTINGS.flights, "warehouse_load_vs_debezium_jdbc"
    return [
        Measurement(f"{name}{way}", ours, "rows/s", rows, PEER, rate, ours / rate, COMMAND)
        for way, rate in theirs.items()
    ]


def _ours(run: Piped) -> float:
    os.environ.update(run.env)  # the engine is measured in this process
    with run.applied():
        found = [rows / seconds for seconds, rows in (load_seconds(run, "warehouse") for _ in range(LOADS + 1))]
    print(f"ours: {', '.join(f'{rate:,.0f}' for rate in found)} rows/s", flush=True)
    return statistics.mean(found[1:])


def _theirs(stack: LocalStack, workload: Workload) -> dict[str, float]:
    """Rates by what follows the figure's name: with its defaults, and tuned."""
    rows, found = SETTINGS.flights, dict[str, float]()
    with jdbc.worker(stack, print) as url:
        sink = jdbc.JdbcSink(stack, url, SETTINGS.database, TARGET)
        with sink.captured(rows):
            for way, options in (("", {}), ("/tuned", jdbc.TUNED)):
                rates = [rows / sink.load_seconds(rows, options) for _ in range(LOADS + 1)]
                print(f"JDBC sink{way}: {', '.join(f'{rate:,.0f}' for rate in rates)} rows/s", flush=True)
                found[way] = statistics.mean(rates[1:])
    with connect(conninfo(stack.endpoints, TARGET)) as database:
        there, right = database.execute(QUESTION).fetchone(), workload.database.execute(QUESTION).fetchone()
    if there != right:
        raise StackError(f"the JDBC sink's table answers {there}, Postgres {right}")
    return found


__all__ = ["measure"]
