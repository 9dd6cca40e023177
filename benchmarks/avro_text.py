"""What it takes Spark's virtual machine to make JSON of Avro."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deploy.local import artifacts
from deploy.local.stack import LocalStack
from spark.machine import class_archive
from spark.machine.session import build_session
from spark.reading.avro_text import values_as_text
from spark.reading.record import RECORD_DDL

Records = list[tuple[bytes, bytes, int, int]]
ROUNDS = 8


def as_text(records: Records, registry: Mapping[str, str]) -> tuple[Records, float]:
    """Records with their values as JSON, and the processor seconds that took, the best of some rounds.

    Args:
        records: key, value, partition, offset.
        registry: settings of the schema registry.
    """
    os.environ[class_archive.VARIABLE] = str(LocalStack().endpoints.spark_archive)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        log = Path(folder) / "spark.log"
        spark = build_session("bench", master="local[1]", jars=artifacts.spark_jars()[0].parent, log=log)
        try:
            rows = [(key, value, "t", part, at) for key, value, part, at in records]
            given = spark.createDataFrame(rows, RECORD_DDL).coalesce(1).cache()
            made = values_as_text(given, registry)
            found = [(bytes(row.key), bytes(row.value), row.partition, row.offset) for row in made.collect()]
            return found, _best(spark, made) - _best(spark, given)
        finally:
            spark.stop()


def _best(spark: SparkSession, frame: DataFrame) -> float:
    """Processor time of the virtual machine's threads that run tasks, while a frame is read."""
    found = []
    for _ in range(ROUNDS):
        before = _of_tasks(spark)
        frame.write.format("noop").mode("overwrite").save()
        found.append(_of_tasks(spark) - before)
    return min(found)


def _of_tasks(spark: SparkSession) -> float:
    gateway: Any = spark.sparkContext._gateway
    nanoseconds = 0
    for thread in Path(f"/proc/{gateway.proc.pid}/task").iterdir():
        with suppress(OSError):  # one that ends
            if "Executor task" in (thread / "comm").read_text():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9
