"""Joined views against pgsync 7.3: the same rows, the same documents, the same changes, one after the other in one run.

Each side has the machine to itself while it is measured: pgsync, then we twice, then pgsync again. The mean of a side's
two turns counts, for on a machine that others use too the speed of one and the same program changes in the course of an
hour. Before a side's first turn it builds once for nothing, and updates, fan-out and idle commits are measured after
rounds of updates and a fan-out that are not, so that virtual machines have compiled what they run, whenever the servers
were started; of several rounds the median counts. pgsync writes to an Elasticsearch 7.17, because its client takes no
other, which is started once a run; ours to the local stack's 8.19, with the same heap. In the end every document is
compared: ours by ``verify``, pgsync's here.

``python -m benchmarks.run joins``; ``joins_1m`` is the same with a million documents, which takes half an hour.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import redis

from benchmarks.changes import ROUNDS, WARM_UP, Changed, changed
from benchmarks.peers import pgsync
from benchmarks.peers.copies import copied
from benchmarks.peers.daemon import Pgsync
from benchmarks.peers.documents import FLIGHT_CARD
from benchmarks.peers.index import Index
from benchmarks.peers.measuring import COUNT_SECONDS, PATIENCE_SECONDS, Settings, wait_until
from benchmarks.peers.workload import Workload
from benchmarks.piped import Piped
from benchmarks.processor import ours_of, theirs_of
from benchmarks.results import Measurement, quantile
from benchmarks.stack import ready
from deploy.local.stack import LocalStack

INDEX = "bench_card"
# A side's second turn: its servers have compiled what they run. pgsync's daemon is an interpreter; our Spark is new.
WARM_AGAIN, OURS_WARM_AGAIN = 3, 10
TEXT = """
version: 1
name: benchcard
source:
  host: ${HEADWATER_POSTGRES_HOST}
  port: ${HEADWATER_POSTGRES_PORT}
  database: DATABASE
  user: headwater
  password: ${HEADWATER_SOURCE_PASSWORD}
  setup_user: flights_owner
  setup_password: ${HEADWATER_SETUP_PASSWORD}
  tables: [public.flights, public.airlines, public.planes, public.airports]
kafka: {bootstrap: "${HEADWATER_KAFKA}"}
connect: {url: "${HEADWATER_CONNECT}"}
row_store: {url: "${HEADWATER_REDIS_STORE}"}
views:
  bench_card:
    root: flights
    refs:
      airline: {table: airlines, on: {carrier: carrier}}
      plane: {table: planes, on: {tailnum: tailnum}}
      origin_airport: {table: airports, on: {origin: faa}}
      dest_airport: {table: airports, on: {dest: faa}}
sinks:
  search: {type: elasticsearch, url: "${HEADWATER_ELASTICSEARCH}", view: bench_card}
engine: {state_dir: "FOLDER/state"}
"""


@dataclass(frozen=True)
class Figures:
    """One side's figures; seconds from a start that includes what the side needs to get going."""

    build_docs_s: float
    end_to_end_docs_s: float
    changed: Changed

    def with_after(self, later: Figures) -> Figures:
        """The means of these and of those that the same side reached later, in its second turn."""
        return Figures(
            mean((self.build_docs_s, later.build_docs_s)),
            mean((self.end_to_end_docs_s, later.end_to_end_docs_s)),
            self.changed.with_after(later.changed),
        )


def measure(flights: int = 200_000, updates: int = 10_000, samples: int = 50) -> list[Measurement]:
    """Both sides on one copy of the flights."""
    settings = Settings(flights=flights, updates=updates, samples=samples)
    with _side_by_side(settings) as (stack, workload, peer, folder):
        theirs, (ours, mib, others), wrong = _in_turns(stack, workload, peer, folder)
    return [
        *_all(ours, theirs, settings),
        Measurement("view_fanout_other_keys_p50_s", quantile(others, 0.5), "s", len(others)),
        Measurement("view_fanout_other_keys_p99_s", quantile(others, 0.99), "s", len(others)),
        Measurement("row_store_mib_per_million_rows", mib, "MiB", flights),
        Measurement("pgsync_wrong_documents", wrong, "documents", flights),
    ]


def measure_million(flights: int = 1_000_000) -> list[Measurement]:
    """The same with a million, one turn each and one fan-out, at which pgsync writes for two minutes; and how soon a
    million is searchable, from a database that nobody has read yet. pgsync's documents are not compared, for which
    they are held in memory: a million are more than 3 GB."""
    settings = Settings(flights=flights)
    with _side_by_side(settings) as (stack, workload, peer, folder):
        theirs = _peer(peer, workload, stack, fanouts=1)
        peer.teardown()
        _build_for_nothing(stack, workload, settings, folder)
        ours, _, _ = _ours(stack, workload, settings, folder, fanouts=1)
        first = _from_nothing(stack, workload, settings, folder)
    command = "python -m benchmarks.run joins_1m"
    found = [replace(one, name=f"{one.name}_1m", command=command) for one in _all(ours, theirs, settings)]
    first_of_all = _against("first_million_vs_pgsync", first, theirs.end_to_end_docs_s, flights)
    return [*found, replace(first_of_all, command=command)]


@contextmanager
def _side_by_side(settings: Settings) -> Iterator[tuple[LocalStack, Workload, Pgsync, Path]]:
    stack = ready()
    with (
        copied(stack.endpoints, settings, print) as workload,
        pgsync.running(workload, stack, FLIGHT_CARD, progress=print) as peer,
        tempfile.TemporaryDirectory(prefix="headwater-joins-") as folder,
    ):
        pgsync.warm_up(peer, workload)
        yield stack, workload, peer, Path(folder)


def _in_turns(
    stack: LocalStack, workload: Workload, peer: Pgsync, folder: Path
) -> tuple[Figures, tuple[Figures, float, list[float]], int]:
    before = _peer(peer, workload, stack)
    peer.teardown()
    _build_for_nothing(stack, workload, workload.settings, folder)
    first, *_ = _ours(stack, workload, workload.settings, folder)
    second, mib, others = _ours(stack, workload, workload.settings, folder, warm_up=OURS_WARM_AGAIN)
    after = _peer(peer, workload, stack, warm_up=WARM_AGAIN)
    wrong = workload.wrong(peer, FLIGHT_CARD)
    print(f"pgsync: {wrong} documents differ from plain SQL's")
    peer.stop()
    return before.with_after(after), (first.with_after(second), mib, others), wrong


def _all(ours: Figures, theirs: Figures, settings: Settings) -> list[Measurement]:
    flights = settings.flights
    return [
        _against("view_build_vs_pgsync", ours.build_docs_s, theirs.build_docs_s, flights),
        _against("view_build_end_to_end_vs_pgsync", ours.end_to_end_docs_s, theirs.end_to_end_docs_s, flights),
        *_compared(ours.changed, theirs.changed, settings),
    ]


def _compared(ours: Changed, theirs: Changed, settings: Settings) -> list[Measurement]:
    flights, updates, samples = settings.flights, settings.updates, settings.samples
    return [
        _against("view_update_vs_pgsync", ours.update_docs_s, theirs.update_docs_s, updates),
        _against("view_fanout_vs_pgsync", ours.fanout_docs_s, theirs.fanout_docs_s, flights),
        _against("cpu_seconds_per_million_changes", ours.update_cpu_s, theirs.update_cpu_s, updates, "s"),
        Measurement("pgsync_cpu_seconds_per_million_changes", theirs.update_cpu_s, "s", updates),
        _against("cpu_seconds_per_million_fanout", ours.fanout_cpu_s, theirs.fanout_cpu_s, flights, "s"),
        Measurement("view_idle_applied_p50_s", ours.idle_p50_s, "s", samples),
        Measurement("view_idle_applied_p99_s", ours.idle_p99_s, "s", samples),
        Measurement("pgsync_idle_applied_p50_s", theirs.idle_p50_s, "s", samples),
        Measurement("pgsync_idle_applied_p99_s", theirs.idle_p99_s, "s", samples),
        _against("view_idle_vs_pgsync_ratio", ours.idle_p50_s, theirs.idle_p50_s, samples, "s"),
    ]


def _against(name: str, ours: float, theirs: float, n: int, unit: str = "documents/s") -> Measurement:
    return Measurement(name, ours, unit, n, peer="pgsync 7.3.0", peer_value=theirs, ratio=ours / theirs)


def _peer(
    peer: Pgsync, workload: Workload, stack: LocalStack, warm_up: int = WARM_UP, fanouts: int = ROUNDS
) -> Figures:
    filled = pgsync.build(peer, workload)
    daemon = peer.process.pid if peer.process is not None else None
    found = changed(peer, workload, theirs_of(stack, peer.index.url, daemon), print, warm_up, fanouts)
    print(f"pgsync: built {filled.documents:,} documents, {filled.daemon_docs_s:,.0f}/s, {filled.docs_s:,.0f}/s in all")
    return Figures(filled.daemon_docs_s, filled.docs_s, found)


def _others_during_fanout(documents: Any, workload: Workload) -> list[float]:
    """Seconds from single commits to other documents until a GET shows them, while a fan-out is being written."""
    waits: list[float] = []
    done = threading.Event()

    def rename() -> None:
        try:
            workload.fanout(documents)
        finally:
            done.set()

    other = Workload(workload.endpoints, workload.settings)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(rename)
        while not done.is_set():
            waits += other.idle(documents, samples=1, warm_up=0)
        running.result()
    other.close()
    print(f"other keys during the fan-out: p50 {quantile(waits, 0.5):.3f} s of {len(waits)}")
    return waits


class OurIndex(Index):
    """Our documents, and the process that keeps them."""

    def __init__(self, run: Piped, runner: subprocess.Popen[bytes]) -> None:
        super().__init__(run.stack.endpoints.elasticsearch_url, INDEX)
        self.run, self.runner = run, runner

    def check(self) -> None:
        """StackError if the runner has ended."""
        self.run.check(self.runner)


@contextmanager
def documents_of(run: Piped, *options: str) -> Iterator[OurIndex]:
    """``headwater run`` and the documents that it keeps."""
    with run.running(*options) as runner:
        index = OurIndex(run, runner)
        try:
            yield index
        finally:
            index.close()


def _build_for_nothing(stack: LocalStack, workload: Workload, settings: Settings, folder: Path) -> None:
    """Servers that have just started compile their code under the first documents, as pgsync's do in its warm-up."""
    run = Piped(stack, folder, TEXT.replace("DATABASE", settings.database).replace("FOLDER", "FOLDER/warm"))
    with run.applied(), documents_of(run) as index:
        _await_all(index, workload.expected(FLIGHT_CARD))


def _ours(
    stack: LocalStack,
    workload: Workload,
    settings: Settings,
    folder: Path,
    warm_up: int = WARM_UP,
    fanouts: int = ROUNDS,
) -> tuple[Figures, float, list[float]]:
    run = Piped(stack, Path(tempfile.mkdtemp(dir=folder)), TEXT.replace("DATABASE", settings.database))
    wanted = workload.expected(FLIGHT_CARD)
    began = time.perf_counter()
    with run.applied():
        before = _used_mib(stack)
        started = time.perf_counter()
        with documents_of(run) as index:
            _await_all(index, wanted)
            done = time.perf_counter()
            print(f"built {wanted:,} documents in {done - started:.1f} s after {started - began:.1f} s of snapshot")
            rows = wanted + 5000  # and those of the other tables, which are few
            mib = (_used_mib(stack) - before) / rows * 1e6
            changes = changed(index, workload, ours_of(stack, index.runner.pid), print, warm_up, fanouts)
            others = _others_during_fanout(index, workload)
            run.headwater("verify", "--wait", "60")
    return Figures(wanted / (done - started), wanted / (done - began), changes), mib, others


def _from_nothing(stack: LocalStack, workload: Workload, settings: Settings, folder: Path) -> float:
    """Documents a second from ``apply`` on, as a user begins: ``run`` is started while the snapshot goes on."""
    run = Piped(stack, folder, TEXT.replace("DATABASE", settings.database).replace("FOLDER", "FOLDER/first"))
    wanted = workload.expected(FLIGHT_CARD)
    workload.settle()
    began = time.perf_counter()
    with run.applied(wait=False), documents_of(run) as index:
        _await_all(index, wanted)
        return wanted / (time.perf_counter() - began)


def _await_all(index: OurIndex, wanted: int) -> None:
    patience = max(PATIENCE_SECONDS, wanted / 1000)
    wait_until(lambda: index.writes() >= wanted, index.check, COUNT_SECONDS, "the index's filling", patience)
    wait_until(lambda: index.count() == wanted, index.check, COUNT_SECONDS, "the last documents")


def _used_mib(stack: LocalStack) -> float:
    with redis.Redis.from_url(stack.endpoints.redis_store_url) as client:
        info: Any = client.info("memory")
        return float(info["used_memory"]) / 2**20
