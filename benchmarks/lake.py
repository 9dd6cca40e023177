"""The warehouse by itself: an initial load beside a plain append of the same rows, and a batch of 10,000 updates into a
table and into one of ten times the size.

``python -m benchmarks.run lake`` brings a pipeline of its own (336,776 flights) to the local stack. Everything but what
is called cold is measured after rounds that are not counted: the virtual machine has compiled what it runs. Loads and
appends take turns, because a shared machine drifts.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.loads import filled, load_seconds
from benchmarks.peers.measuring import PATIENCE_SECONDS, wait_until
from benchmarks.pipeline import Bench
from benchmarks.results import Measurement
from cdc.log.ends import LogEnds, reached
from examples.common import conninfo
from operations.run.engine import Engine
from operations.run.session import open_spark
from sinks.iceberg.rows import VERSION_COLUMN
from spark.disk.batches import read_batches
from spark.disk.checkpoint import committed_offsets, planned
from spark.pulse import MERGES

COMMAND = "python -m benchmarks.run lake"
SINK, TABLE, CEILING = "warehouse", "`hw_warehouse`.`bench`.`bench_flight`", "`hw_warehouse`.`bench`.`ceiling`"
SOURCE = "public.flights"
# Loads and appends, in turns; batches, of which the first are left out.
TURNS, BATCHES, COLD_BATCHES = 5, 9, 3
CHANGED, TIMES = 10_000, 10
# As many tasks as Spark has here, so that an append has them all at work.
TASKS = 4
# Records come in transactions of some thousands: the log's end has to stay where it is for so long.
SETTLED_SECONDS = 1.0


def measure() -> list[Measurement]:
    """Load and batches."""
    with tempfile.TemporaryDirectory(prefix="headwater-lake-") as folder:
        bench = Bench(Path(folder))
        with bench.applied():
            return [*_loads(bench), *_batches(bench)]


def _loads(bench: Bench) -> list[Measurement]:
    seconds, rows = load_seconds(bench, SINK)
    cold = rows / seconds
    print(f"load, cold: {cold:,.0f} rows/s", flush=True)
    ours, memory, log = [], [], []
    for _ in range(TURNS):
        seconds, rows = load_seconds(bench, SINK)
        appended = append_seconds(bench, rows)
        ours.append(rows / seconds)
        memory.append(rows / appended["memory"])
        log.append(rows / appended["log"])
        print(
            f"load: {ours[-1]:,.0f} rows/s, appended from memory {memory[-1]:,.0f}, from the log {log[-1]:,.0f}",
            flush=True,
        )
    mean = statistics.mean(ours)

    def against(name: str, peer: str, rates: list[float]) -> Measurement:
        ceiling = statistics.mean(rates)
        return Measurement(name, mean, "rows/s", rows, peer, ceiling, mean / ceiling, COMMAND)

    return [
        Measurement("warehouse_load_rows_s", mean, "rows/s", rows, command=COMMAND),
        Measurement("warehouse_load_rows_s/cold", cold, "rows/s", rows, command=COMMAND),
        against("warehouse_load_vs_append_ceiling", "Spark's append of the same rows from memory", memory),
        against("warehouse_load_vs_append_ceiling/from_log", "Spark's from_json and append of the same topic", log),
    ]


def append_seconds(bench: Bench, rows: int) -> dict[str, float]:
    """Seconds of a plain append of the loaded table's rows to an empty one: from Spark's memory, and from the topic by
    ``from_json``, which asks no record whether it is right, the newest of its key, or a delete."""
    pipeline = bench.pipeline
    spark = open_spark(pipeline, [SINK], "ceiling")
    try:
        held = spark.table(TABLE).repartition(TASKS).cache()
        assert held.count() == rows
        records = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", pipeline.kafka.bootstrap)
            .option("subscribe", pipeline.topic(SOURCE))
            .option("kafka.isolation.level", "read_committed")
        )

        def from_log() -> DataFrame:
            row = ", ".join(f"`{name}`: {kind}" for name, kind in held.dtypes if name != VERSION_COLUMN)
            event = F.from_json(F.col("value").cast("string"), f"after STRUCT<{row}>")
            version = F.lit(1).cast("bigint").alias(VERSION_COLUMN)
            return records.load().select(event.alias("event")).select("event.after.*", version)

        return {name: _appended(spark, read, rows) for name, read in (("memory", lambda: held), ("log", from_log))}
    finally:
        spark.stop()


def _appended(spark: SparkSession, read: Callable[[], DataFrame], rows: int) -> float:
    """The second of two appends: the first has planned and compiled."""
    seconds = 0.0
    for _ in range(2):
        spark.sql(f"DROP TABLE IF EXISTS {CEILING} PURGE")
        made = f"CREATE TABLE {CEILING} USING iceberg TBLPROPERTIES ('format-version'='3')"
        spark.sql(f"{made} AS SELECT * FROM {TABLE} LIMIT 0")  # noqa: S608 (our own names)
        began = time.perf_counter()
        read().writeTo(CEILING).append()
        seconds = time.perf_counter() - began
        assert spark.table(CEILING).where("flight_id IS NOT NULL").count() == rows
    spark.sql(f"DROP TABLE {CEILING} PURGE")
    return seconds


def _batches(bench: Bench) -> list[Measurement]:
    with filled(bench, SINK) as (engine, _, rows):
        merges = Merges(bench, engine, rows)
        try:
            small = merges.rounds()
            multiply(engine.spark, rows)
            large = merges.rounds()
        finally:
            merges.close()
    one, ten = statistics.median(small), statistics.median(large)
    counted, peer = len(small), f"{rows:,} rows"
    return [
        Measurement("warehouse_batch_10k_s", one, "s", counted, command=COMMAND),
        Measurement("warehouse_batch_10k_s/10x", ten, "s", counted, command=COMMAND),
        Measurement("warehouse_batch_10x_table_ratio", ten / one, "ratio", counted, peer, 1.0, ten / one, COMMAND),
    ]


def multiply(spark: SparkSession, rows: int) -> None:
    """Make the table ten times as large behind the engine's back: each row with copies of other keys, all mixed, so
    that the rows that will change lie in all files, as they would in such a table."""
    spark.catalog.refreshTable(TABLE)  # a session loads a table once, and the batches are of another session
    copies = spark.range(TIMES).withColumnRenamed("id", "copy")
    many = spark.table(TABLE).crossJoin(copies).withColumn("flight_id", F.expr(f"flight_id + copy * {rows}"))
    many.drop("copy").repartition(TASKS).writeTo(TABLE).overwrite(F.lit(True))
    spark.catalog.refreshTable(TABLE)
    assert spark.table(TABLE).count() == TIMES * rows


class Merges:
    """Batches of exactly so many updates, as the running engine makes and times them.

    Args:
        bench: whose database is changed.
        engine: which has filled the warehouse, and goes on.
        rows: keys are from 1 to this.
    """

    def __init__(self, bench: Bench, engine: Engine, rows: int) -> None:
        self.engine, self.rows = engine, rows
        (run,) = engine.runner.running
        self.flow = run.flow
        self._log = LogEnds(bench.pipeline.kafka.bootstrap, {})
        self._random = Random(1)  # noqa: S311 (which rows, not secrets)
        self._database = psycopg.connect(conninfo(bench.stack.endpoints, "flights"), autocommit=True)

    def close(self) -> None:
        """Let go of database and log."""
        self._log.close()
        self._database.close()

    def rounds(self) -> list[float]:
        """Seconds of each batch but the first ones, upkeep after its commit included."""
        found = [self.one() for _ in range(BATCHES)]
        print(f"batches of {CHANGED:,}: {', '.join(f'{seconds:.2f}' for seconds in found)} s", flush=True)
        return found[COLD_BATCHES:]

    def one(self) -> float:
        """Seconds of one batch, from its trigger to its commit. It can't begin before all its records are in the log: a
        batch of one record before it has to wait for its turn until then."""
        with MERGES.turn("benchmark"):
            self._change(1)
            self._until(lambda: planned(self.flow.checkpoint) > committed_offsets(self.flow.checkpoint)[0], "a batch")
            before = self._end()
            self._change(CHANGED)
            self._until(lambda: self._end() >= before + CHANGED, "the updates in the log")
            end = -1
            while end != self._end():
                end = self._end()
                time.sleep(SETTLED_SECONDS)
        goal = self._log.ends(self.flow.spec.topics)
        self._until(lambda: reached(committed_offsets(self.flow.checkpoint)[1], goal), "the updates in the table")
        self._until(lambda: self._newest().records == CHANGED, f"a batch of {CHANGED:,}")
        return float(self._newest().ms) / 1000

    def _change(self, count: int) -> None:
        keys = self._random.sample(range(1, self.rows + 1), count)
        value = self._random.randrange(10**6, 10**9)  # that no flight has
        self._database.execute("UPDATE flights SET air_time = %s WHERE flight_id = ANY(%s)", (value, keys))

    def _newest(self) -> Any:
        return next(iter(read_batches(self.flow.folder)))

    def _end(self) -> int:
        ends = self._log.ends(self.flow.spec.topics)
        return sum(end for parts in ends.values() for end in parts.values())

    def _until(self, done: Callable[[], bool], what: str) -> None:
        def check() -> None:
            assert not self.engine.runner.all_failed, self.engine.runner.step()

        def stepped() -> bool:
            self.engine.runner.step()
            return done()

        wait_until(stepped, check, 0.05, what, PATIENCE_SECONDS)


__all__ = ["measure"]
