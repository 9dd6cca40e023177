"""Rebuilding a joined view from offset 0: against Elasticsearch's own ceiling, against pgsync, and ten times as much.

Side by side in one run over the same flights: pgsync's bootstrap, ``headwater rebuild``, and ``parallel_bulk`` of the
very documents that it wrote, into an index with the same mapping. Then the new generation is verified, and promoted
under a client that reads in a loop. ``HEADWATER_REBUILD_ROWS`` says how many flights the smaller of two more rebuilds
has (340000 makes 3.4 million in the larger one).

The rate of a rebuild is taken from when its fill is prepared to its last document; starting Spark, which takes some
seconds whatever the size, is in ``seconds`` of what is printed. Of two rebuilds and two ceilings the better ones are
held against each other; against pgsync's one bootstrap the first rebuild counts.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticsearch import Elasticsearch

from benchmarks.costs import mib_of
from benchmarks.joins import INDEX, TEXT
from benchmarks.loads import ceiling_seconds, documents
from benchmarks.peers import pgsync
from benchmarks.peers.copies import copied, multiply
from benchmarks.peers.documents import FLIGHT_CARD
from benchmarks.peers.measuring import Settings, wait_until
from benchmarks.peers.workload import Workload
from benchmarks.piped import Piped
from benchmarks.results import Measurement
from benchmarks.stack import ready
from cdc.log.ends import LogEnds
from deploy.local.stack import LocalStack
from spark.disk.filling import load
from tests.support.background import Background

# All of the flights example: the index that its users have.
FLIGHTS = 336_776
ROWS = 100_000
# A sample a second of what all processes of a run hold; memory that forked workers share counts once.
SAMPLE_SECONDS = 1.0


@dataclass(frozen=True)
class Filled:
    """One fill: rows of the root, seconds of the fill, seconds with the process's start and end, and peak memory."""

    rows: int
    seconds: float
    whole: float
    peak_mib: float

    @property
    def docs_s(self) -> float:
        """Documents a second of the fill."""
        return self.rows / self.seconds


def measure(flights: int = FLIGHTS, rows: int | None = None) -> list[Measurement]:
    """Everything.

    Args:
        flights: of the comparison.
        rows: of the smaller of the two rebuilds whose time and memory are compared.
    """
    stack = ready()
    found = _compared(stack, flights)
    return found + _tenfold(stack, rows or int(os.environ.get("HEADWATER_REBUILD_ROWS", ROWS)))


# -- side by side ---------------------------------------------------------------------------------------------


def _compared(stack: LocalStack, flights: int) -> list[Measurement]:
    settings = Settings(flights=flights)
    with copied(stack.endpoints, settings, print) as workload:
        with pgsync.running(workload, stack, FLIGHT_CARD, progress=print) as peer:
            pgsync.warm_up(peer, workload)
            theirs = pgsync.build(peer, workload).docs_s
        with _pipeline(stack, settings.database) as run:
            run.headwater("run", "--until-caught-up")  # generation 1; both sides are measured with a warm server
            ours = run.rebuilt(2, flights)
            raw = _ceiling(stack)
            again = run.rebuilt_anew(3, flights)
            best = max(ours, again, key=lambda filled: filled.docs_s)
            raw = max(raw, _ceiling(stack))
            print(f"rebuilt at {ours.docs_s:,.0f} and {again.docs_s:,.0f} documents/s; parallel_bulk {raw:,.0f}")
            began = time.perf_counter()
            run.headwater("verify", "--sink", "search", "--generation", "3", "--wait", "60")
            verified = flights / (time.perf_counter() - began)
            with _Reader(stack, workload) as reader:
                run.headwater("promote", "search")
                time.sleep(1.0)
    return [
        _against("rebuild_vs_bulk_ceiling", best.docs_s, "parallel_bulk", raw, flights),
        _against("rebuild_vs_pgsync_bootstrap", flights / ours.whole, "pgsync 7.3.0", theirs, flights),
        Measurement("verify_rows_s", verified, "rows/s", flights),
        Measurement("promote_failed_reads", len(reader.failed), "reads", reader.reads),
        Measurement("promote_wrong_reads", len(reader.wrong), "reads", reader.reads),
    ]


def _against(name: str, ours: float, peer: str, theirs: float, n: int) -> Measurement:
    return Measurement(name, ours, "documents/s", n, peer=peer, peer_value=theirs, ratio=ours / theirs)


def _ceiling(stack: LocalStack) -> float:
    with Elasticsearch(stack.endpoints.elasticsearch_url, request_timeout=120) as client:
        client.indices.refresh(index=INDEX)
        docs = documents(client, INDEX)
        seconds = ceiling_seconds(client, INDEX, docs)
        client.indices.delete(index="bench_ceiling", ignore_unavailable=True)
    return len(docs) / seconds


class _Reader(Background):
    """Reads documents by their readers' name all the time, by GET and by count; remembers what failed or was wrong."""

    def __init__(self, stack: LocalStack, workload: Workload) -> None:
        super().__init__()
        self.client = Elasticsearch(stack.endpoints.elasticsearch_url, request_timeout=10)
        self.wanted = workload.expected(FLIGHT_CARD)
        self.reads = 0
        self.failed: list[str] = []
        self.wrong: list[str] = []

    def __enter__(self) -> _Reader:
        self.client.indices.refresh(index=f"{INDEX}*", expand_wildcards="all")
        super().__enter__()
        time.sleep(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()
        finally:
            self.client.close()

    def work(self) -> None:
        """Until the end of the block."""
        while not self.over.is_set():
            key = random.randrange(1, self.wanted + 1)  # noqa: S311 (which rows, not secrets)
            try:
                document = self.client.get(index=INDEX, id=str(key))["_source"]
                count = int(self.client.count(index=INDEX)["count"])
            except Exception as error:  # whatever it is, a reader would have seen it
                self.failed.append(f"{type(error).__name__}: {error}"[:300])
                continue
            finally:
                self.reads += 1
            if document["flight_id"] != key or document["airline"] is None or count != self.wanted:
                self.wrong.append(f"{key}: {count} documents")


# -- ten times as much ----------------------------------------------------------------------------------------


def _tenfold(stack: LocalStack, rows: int) -> list[Measurement]:
    settings = Settings(flights=rows)
    with copied(stack.endpoints, settings, print) as workload, _pipeline(stack, settings.database) as run:
        run.headwater("run", "--until-caught-up")
        small = run.rebuilt(2, rows)
        multiply(workload, rows * 10)
        run.until_logged(rows * 10)
        large = run.rebuilt_anew(3, rows * 10)
    for filled in (small, large):
        print(
            f"{filled.rows:,} rows: {filled.seconds:.1f} s ({filled.whole:.1f} s with start and end), "
            f"{filled.docs_s:,.0f}/s, peak {filled.peak_mib:,.0f} MiB"
        )
    times, memory = large.seconds / small.seconds, large.peak_mib / small.peak_mib
    peer = f"{rows:,} rows instead of {rows * 10:,}"
    return [
        Measurement("rebuild_10x_time_ratio", times, "ratio", large.rows, peer, small.seconds, times),
        Measurement("rebuild_peak_rss_10x_ratio", memory, "ratio", large.rows, peer, small.peak_mib, memory),
    ]


# -- running it -----------------------------------------------------------------------------------------------


class _Run(Piped):
    """The pipeline that is measured."""

    def rebuilt(self, generation: int, rows: int) -> Filled:
        """Fill a new generation, the one of that number, watching the memory of all processes."""
        command = self.command("rebuild", "search")
        began = time.perf_counter()
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.DEVNULL)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, mib_of(process.pid))
            time.sleep(SAMPLE_SECONDS)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        whole = time.perf_counter() - began
        folder = self.folder / "state" / "benchcard" / "search" / f"g{generation}" / INDEX
        fill = load(folder)
        assert fill is not None
        return Filled(rows, fill.at - fill.begun, whole, peak)

    def rebuilt_anew(self, generation: int, rows: int) -> Filled:
        """The same, after the generation before it was removed."""
        self.headwater("retire", "search", "--generation", str(generation - 1), "--yes")
        return self.rebuilt(generation, rows)

    def until_logged(self, flights: int) -> None:
        """Wait until the log holds that many flights."""
        topic = "benchcard.public.flights"
        log = LogEnds(self.env["HEADWATER_KAFKA"], {})
        try:
            wait_until(
                lambda: sum(log.ends([topic])[topic].values()) >= flights,
                lambda: None,
                1.0,
                f"the log's {flights:,} flights",
                patience=3600.0,
            )
        finally:
            log.close()


@contextmanager
def _pipeline(stack: LocalStack, database: str) -> Iterator[_Run]:
    with tempfile.TemporaryDirectory(prefix="headwater-rebuild-") as folder:
        run = _Run(stack, Path(folder), TEXT.replace("DATABASE", database))
        with run.applied():
            yield run
