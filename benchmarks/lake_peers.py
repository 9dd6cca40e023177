"""The warehouse beside Flink: the same rows of the same database, the same updates, the same reads, in one run.

``python -m benchmarks.run lake_peers``: Flink 1.20 with its Postgres CDC source writes an Iceberg table by upserts,
which leave *equality deletes*; its checkpoints, and our batches, are 5 s apart. Each loads alone, in a virtual machine
that has just started (which is not counted). Then both follow the same updates, are stopped, and the same engines read
both tables. No time of a read counts whose answer is not Postgres's: a peer's wrong answer is told and has no figure,
one of ours ends the run.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import duckdb
import duckdb_extensions
from pyspark.sql import SparkSession

from benchmarks.loads import load_seconds
from benchmarks.peers import flink
from benchmarks.peers.copies import copied
from benchmarks.peers.measuring import PATIENCE_SECONDS, Settings
from benchmarks.peers.workload import Workload
from benchmarks.piped import Piped
from benchmarks.results import Measurement
from benchmarks.stack import ready
from cdc.errors import StackError
from cdc.pipeline import IcebergSink
from operations.run.session import open_spark
from sinks.iceberg import catalogue as iceberg

COMMAND, PEER = "python -m benchmarks.run lake_peers", "Flink 1.20 with CDC 3.5 and Iceberg 1.9"
SETTINGS = Settings(flights=336_776, database="bench_lake_peer")
CHECKPOINT_SECONDS = 5
ROUNDS, CHANGED = 20, 10_000
# Reads of one question by one engine; fewer where they take longer than so many seconds, none where twice as long.
READS, COLD_READS, READ_SECONDS = 9, 2, 40.0
OURS, THEIRS = "`hw_warehouse`.`peer`.`flights`", "`hw_flink`.`peer`.`flights`"
# Also of the comparison with the JDBC sink.
TEXT = """
version: 1
name: benchlakepeer
source:
  host: ${HEADWATER_POSTGRES_HOST}
  port: ${HEADWATER_POSTGRES_PORT}
  database: bench_lake_peer
  user: headwater
  password: ${HEADWATER_SOURCE_PASSWORD}
  setup_user: flights_owner
  setup_password: ${HEADWATER_SETUP_PASSWORD}
  tables: [public.flights]
kafka: {bootstrap: "${HEADWATER_KAFKA}"}
connect: {url: "${HEADWATER_CONNECT}"}
views:
  flights: {root: flights}
sinks:
  warehouse:
    type: iceberg
    view: flights
    catalog_uri: FOLDER/warehouse/catalog.db
    warehouse: FOLDER/warehouse
    namespace: peer
engine:
  state_dir: FOLDER/state
  spark_conf:
    spark.sql.catalog.hw_flink: org.apache.iceberg.spark.SparkCatalog
    spark.sql.catalog.hw_flink.type: hadoop
    spark.sql.catalog.hw_flink.warehouse: file://FOLDER/flink/warehouse
"""
# All rows, and what one of them is asked for by: a count that a deleted row would change is in each.
QUESTIONS = {
    "scan": "SELECT count(*), sum(air_time), sum(distance), count(DISTINCT tailnum) FROM {}",
    "filter": "SELECT count(*), sum(air_time), max(dest) FROM {} WHERE carrier = 'UA' AND month BETWEEN 6 AND 8",
}
ENGINES = ("spark", "duckdb")


def measure() -> list[Measurement]:
    """Loads, then reads after the same updates."""
    stack = ready()
    with (
        copied(stack.endpoints, SETTINGS, print) as workload,
        tempfile.TemporaryDirectory(prefix="headwater-peers-") as folder,
    ):
        run = Piped(stack, Path(folder), TEXT)
        os.environ.update(run.env)  # the engine is measured in this process too
        began = time.perf_counter()
        with run.applied():
            captured = time.perf_counter() - began
            seconds, rows = load_seconds(run, "warehouse")
            print(
                f"ours: {rows / seconds:,.0f} rows/s, after {captured:.1f} s for the snapshot into the log", flush=True
            )
            place = Path(folder) / "flink"
            place.mkdir()
            with flink.running(place, stack.endpoints, SETTINGS.database, CHECKPOINT_SECONDS, print) as peer:
                there = peer.await_written(rows, PATIENCE_SECONDS)
                theirs, since_start = there - peer.began, there - peer.asked
                print(f"Flink: {rows / theirs:,.0f} rows/s, {since_start:.1f} s with its start", flush=True)
                _follow(run, peer, workload, rows)
                told = f"{len(peer.commits())} commits"
            found = _loads(rows, seconds, captured, theirs)
            return [*found, *Reads(run, peer, workload).measure(told)]


def _loads(rows: int, ours: float, captured: float, theirs: float) -> list[Measurement]:
    name, rate = "warehouse_load_vs_flink_cdc", rows / theirs

    def against(name: str, seconds: float) -> Measurement:
        mine = rows / seconds
        return Measurement(name, mine, "rows/s", rows, PEER, rate, mine / rate, COMMAND)

    # Flink reads Postgres itself. Our sink reads the log, into which Debezium has brought the same rows before.
    return [against(name, ours), against(f"{name}/from_postgres", captured + ours)]


def _follow(run: Piped, peer: flink.Flink, workload: Workload, rows: int) -> None:
    """Updates of random rows while both sides follow: each round is in both tables before the next one begins."""
    with run.running() as runner:
        for number in range(1, ROUNDS + 1):
            keys = workload.random.sample(range(1, rows + 1), CHANGED)
            value = workload.random.randrange(1, 1_000)
            workload.database.execute(
                "UPDATE flights SET air_time = %s + flight_id %% 60 WHERE flight_id = ANY(%s)", (value, keys)
            )
            peer.await_written(rows + number * CHANGED, PATIENCE_SECONDS)
            run.await_caught_up(runner, patience=PATIENCE_SECONDS)
        print(f"{ROUNDS} rounds of {CHANGED:,} updates are in both tables", flush=True)


class _NoFigure(Exception):
    """The peer has not answered, or not rightly, or both together took too long."""


class Reads:
    """Asks both tables the same, by Spark and by DuckDB, in turns.

    Args:
        run: our pipeline, whose Spark knows Flink's catalogue too.
        peer: Flink, which has ended.
        workload: knows the right answers.
    """

    def __init__(self, run: Piped, peer: flink.Flink, workload: Workload) -> None:
        self.workload = workload
        sink, metadata = run.pipeline.sinks["warehouse"], peer.metadata()
        assert isinstance(sink, IcebergSink) and metadata is not None
        self._files = {OURS: iceberg.metadata_location(sink, "hw_warehouse", "flights"), THEIRS: str(metadata)}
        self._spark: SparkSession = open_spark(run.pipeline, ["warehouse"], "reads")

    def measure(self, told: str) -> list[Measurement]:
        """How often each engine can ask each question in a second; the least favourable ratio is the figure."""
        try:
            found = [one for engine in ENGINES for one in self._of(engine, told)]
        finally:
            self._spark.stop()
        if not found:
            raise StackError("no engine has answered for Flink's table what Postgres answers")
        worst = min(found, key=lambda one: one.ratio or 0.0)
        name = "warehouse_read_vs_flink_cdc"
        return [
            Measurement(name, worst.value, worst.unit, worst.n, worst.peer, worst.peer_value, worst.ratio, COMMAND),
            *found,
        ]

    def _of(self, engine: str, told: str) -> list[Measurement]:
        found = []
        for question, text in QUESTIONS.items():
            right = self._truth(text)
            try:
                took = self._times(engine, text, right)
            except _NoFigure as error:
                print(f"{engine}, {question}: no figure, {error}", flush=True)
                continue
            ours, theirs = (1 / statistics.median(took[table]) for table in (OURS, THEIRS))
            name = f"warehouse_read_vs_flink_cdc/{engine}_{question}"
            peer = f"{PEER}, after {ROUNDS} updates of {CHANGED:,} rows, {told}"
            count = len(took[THEIRS])
            print(f"{engine}, {question}: ours {ours:.2f}, Flink's {theirs:.2f} reads/s of {count}", flush=True)
            found.append(Measurement(name, ours, "reads/s", count, peer, theirs, ours / theirs, COMMAND))
        return found

    def _times(self, engine: str, text: str, right: tuple[Any, ...]) -> Mapping[str, list[float]]:
        with duckdb.connect() as duck:  # a new one each time: an error inside of it may be its end
            timer = Timer(2 * READ_SECONDS, duck.interrupt)
            timer.start()
            try:
                return self._asked(self._by(engine, text, duck), right)
            finally:
                timer.cancel()

    def _by(self, engine: str, text: str, duck: duckdb.DuckDBPyConnection) -> Callable[[str], Any]:
        if engine == "spark":
            return lambda table: self._spark.sql(text.format(table)).collect()[0]
        for extension in ("avro", "iceberg"):
            duckdb_extensions.import_extension(extension)
            duck.execute(f"LOAD {extension}")
        return lambda table: duck.execute(text.format("iceberg_scan(?)"), [self._files[table]]).fetchone()

    @staticmethod
    def _asked(ask: Callable[[str], Any], right: tuple[Any, ...]) -> Mapping[str, list[float]]:
        took: dict[str, list[float]] = {OURS: [], THEIRS: []}
        until = time.perf_counter() + READ_SECONDS
        for number in range(COLD_READS + READS):
            for table, seconds in took.items():  # in turns: what else the machine does meets both
                began = time.perf_counter()
                answer = _answer(ask, table, began)
                seconds.append(time.perf_counter() - began)
                if answer != right:
                    raise _failed(table, f"answers {answer}, Postgres {right}")
            if number >= COLD_READS and time.perf_counter() > until:
                break
        return {table: seconds[COLD_READS:] for table, seconds in took.items()}

    def _truth(self, text: str) -> tuple[Any, ...]:
        row = self.workload.database.execute(text.format("flights").encode()).fetchone()
        assert row is not None
        return tuple(row)


def _answer(ask: Callable[[str], Any], table: str, began: float) -> tuple[Any, ...]:
    try:
        return tuple(ask(table))
    except duckdb.InterruptException as error:
        took = time.perf_counter() - began
        if took < READ_SECONDS:  # the time went by over reads before: whose turn it was says nothing
            raise _NoFigure(f"both tables together took longer than {2 * READ_SECONDS:.0f} s") from error
        raise _failed(table, f"did not answer within {took:.0f} s") from error
    except duckdb.Error as error:
        raise _failed(table, f"can't be read: {error}") from error


def _failed(table: str, what: str) -> Exception:
    """The peer's failure costs a figure; ours, which would be left out as well, is the run's."""
    if table == THEIRS:
        return _NoFigure(f"{table} {what}")
    return StackError(
        f"our table {table} {what}",
        means="the warehouse's table is wrong, or can't be read: nothing of this run is written",
        fix="this is a fault of Headwater: mend it before anything is measured again",
    )


__all__ = ["measure"]
