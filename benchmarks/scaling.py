"""One Spark worker and two: how much faster is a joined view built, what does it cost, and where does the time go?

A real standalone cluster on this machine (one task slot a worker), topics with 8 partitions, a Redis Cluster of three
nodes as the row store, an index of three shards. The same view is rebuilt from offset 0 with one worker and with two,
in turns, and each side's best fill counts. All of it shares the machine's cores, Kafka, Elasticsearch and Redis too:
the CPU seconds that are printed say what was at its limit. Then rows are updated while two workers run.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from benchmarks.costs import Costs, Group, below, is_java
from benchmarks.joins import INDEX, TEXT, OurIndex, documents_of
from benchmarks.peers.copies import copied
from benchmarks.peers.measuring import Settings
from benchmarks.peers.workload import Workload
from benchmarks.piped import Piped
from benchmarks.processor import servers_of
from benchmarks.results import Measurement
from benchmarks.stack import ready
from deploy.local.rediscluster import RedisCluster
from deploy.local.sparkcluster import SparkCluster
from deploy.local.stack import LocalStack
from spark.disk.filling import FillState

COMMAND = "python -m benchmarks.run scaling"
FLIGHTS, UPDATES, ROUNDS = 40_000, 10_000, 2
PARTITIONS, NODES, SHARDS = 8, 3, 3
CAUGHT_UP_SECONDS = 180.0


def measure(flights: int | None = None) -> list[Measurement]:
    """One worker against two, in turns.

    Args:
        flights: documents of the view; ``HEADWATER_SCALING_ROWS`` or 40,000.
    """
    flights = flights or int(os.environ.get("HEADWATER_SCALING_ROWS", FLIGHTS))
    settings = Settings(flights=flights, updates=UPDATES, database="bench_scaling")
    stack = ready()
    with (
        tempfile.TemporaryDirectory(prefix="headwater-scaling-") as name,
        copied(stack.endpoints, settings, print) as workload,
        RedisCluster(Path(name) / "redis", NODES) as store,
    ):
        run = _Run(stack, Path(name), settings.database, store)
        with run.applied():
            rates = run.in_turns(flights)
            updated, costs = run.updated(workload)
    print(f"\nupdates with two workers, {UPDATES:,} rows: {updated:,.0f}/s\n{costs.table(UPDATES)}")
    one, two = max(rates[1]), max(rates[2])
    return [
        Measurement(
            "two_workers_vs_one_rate_ratio", two / one, "ratio", flights, "one worker", one, two / one, command=COMMAND
        ),
        Measurement("two_workers_build_docs_s", two, "documents/s", flights, command=COMMAND),
        Measurement("two_workers_update_docs_s", updated, "documents/s", UPDATES, command=COMMAND),
        Measurement(
            "cluster_cpu_seconds_per_million_changes",
            sum(cost.cpu_s for cost in costs.found.values()) / UPDATES * 1e6,
            "s",
            UPDATES,
            command=COMMAND,
        ),
    ]


class _Run(Piped):
    """The pipeline that is measured."""

    def __init__(self, stack: LocalStack, folder: Path, database: str, store: RedisCluster) -> None:
        self.store = store
        text = TEXT.replace("DATABASE", database)
        text = text.replace("${HEADWATER_REDIS_STORE}", store.url).replace("}\nviews:", ", cluster: true}\nviews:")
        text = text.replace('KAFKA}"}', f'KAFKA}}", partitions: {PARTITIONS}}}')
        text = text.replace("view: bench_card}", f"view: bench_card, settings: {{number_of_shards: {SHARDS}}}}}")
        super().__init__(stack, folder, text)

    def in_turns(self, flights: int) -> dict[int, list[float]]:
        """Documents a second of fills with one and with two workers; generation 1 warms the servers up."""
        self.headwater("run", "--until-caught-up")
        rates: dict[int, list[float]] = {1: [], 2: []}
        generation = 2
        for _ in range(ROUNDS):
            for workers in (1, 2):
                if generation > 2:
                    self.headwater("retire", "search", "--generation", str(generation - 1), "--yes")
                with SparkCluster(self.folder / f"spark{generation}", workers) as machines:
                    seconds, costs = self._rebuilt(machines, generation)
                rates[workers].append(flights / seconds)
                print(f"\n{workers} worker(s): {flights:,} documents in {seconds:.1f} s, {flights / seconds:,.0f}/s")
                print(
                    f"{costs.table(flights)}\ncores busy: {_busy(costs, seconds):.2f} of {os.cpu_count()}", flush=True
                )
                generation += 1
        return rates

    def _rebuilt(self, machines: SparkCluster, generation: int) -> tuple[float, Costs]:
        """Seconds of a fill, and its costs from its first slice to its last."""
        fill = self.folder / "state" / "benchcard" / "search" / f"g{generation}" / INDEX / "fill.json"
        words = self.command("rebuild", "search", "--master", machines.url)
        with (self.folder / "rebuild.log").open("ab") as log:
            process = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)
        while not fill.exists():
            if process.poll() is not None:
                raise RuntimeError(f"the rebuild ended:\n{(self.folder / 'rebuild.log').read_text()[-3000:]}")
            time.sleep(0.05)
        with Costs(self._groups(machines, process.pid)) as costs:
            until = time.monotonic() + CAUGHT_UP_SECONDS
            while not _filled(fill) and process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
        if process.wait(CAUGHT_UP_SECONDS) != 0:
            raise RuntimeError(f"the rebuild failed:\n{(self.folder / 'rebuild.log').read_text()[-3000:]}")
        state = FillState.from_json(fill.read_text())
        return state.at - state.begun, costs

    def updated(self, workload: Workload) -> tuple[float, Costs]:
        """Updates a second while two workers keep the sink, and their costs."""
        with SparkCluster(self.folder / "spark-live", 2) as machines, self._kept(machines) as index:
            workload.updates(index)  # once for the virtual machines
            with Costs(self._groups(machines, index.runner.pid)) as costs:
                rate = workload.updates(index)
        return rate.docs_s, costs

    @contextmanager
    def _kept(self, machines: SparkCluster) -> Iterator[OurIndex]:
        with documents_of(self, "--master", machines.url) as index:
            self.await_caught_up(index.runner, patience=CAUGHT_UP_SECONDS)
            yield index

    def _groups(self, machines: SparkCluster, driver: int) -> dict[str, Group]:
        def executors(*, java: bool) -> list[psutil.Process]:
            found = [p for worker in machines.running.values() for p in below(worker.pid)[1:]]
            return [process for process in found if is_java(process) == java]

        daemons = [machines.master, *machines.running.values()]
        servers = servers_of(self.stack)
        groups: dict[str, Group] = {
            "executors: Python": lambda: executors(java=False),
            "executors: JVM": lambda: executors(java=True),
            "driver: Python": lambda: [p for p in below(driver) if not is_java(p)],
            "driver: JVM": lambda: [p for p in below(driver) if is_java(p)],
            "Spark's master and workers": lambda: [psutil.Process(one.pid) for one in daemons if one],
            "Redis Cluster": lambda: [psutil.Process(node.pid) for node in self.store.running],
        }
        for name in ("elasticsearch", "kafka", "connect", "postgres"):
            groups[name] = partial(below, servers.get(name))
        return groups


def _filled(fill: Path) -> bool:
    """Whether every offset of both passes is done."""
    return FillState.from_json(fill.read_text()).done


def _busy(costs: Costs, seconds: float) -> float:
    return sum(cost.cpu_s for cost in costs.found.values()) / seconds
