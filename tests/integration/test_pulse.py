"""Spark itself tells a batch that takes long from one that hangs: what no stand-in for it can show."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.machine.settings import JAVA_OPTIONS
from spark.pulse import GROUP, sign_of
from tests.support.plain_spark import session_of

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
PARTS = 40


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with session_of(builder) as session:
            yield session


def signs(spark: SparkSession, folder: Path, work: Any, seconds: float, enough: int = PARTS) -> set[Any]:
    """What is seen of a query's only batch, from its first task on, for so long or until it is ``enough``: a batch as
    the warehouse has it."""

    groups = list[str | None]()

    def apply(batch: DataFrame, _number: int) -> None:
        groups.append(batch.sparkSession.sparkContext.getLocalProperty(GROUP))
        rows = batch.sparkSession.range(0, PARTS, 1, PARTS)
        rows.mapInArrow(work, "id long").write.format("noop").mode("overwrite").save()

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
    query = source.writeStream.foreachBatch(apply).option("checkpointLocation", str(folder)).start()
    try:
        until, found = time.monotonic() + 60, set[Any]()
        while not found and time.monotonic() < until:
            found = {sign_of(spark, query)} - {None}
            time.sleep(0.1)
        assert found, query.status
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(found) < enough:
            found |= {sign_of(spark, query)} - {None}
            time.sleep(0.2)
        assert groups == [str(query.runId)]  # as who merges knows itself
        assert query.lastProgress is None, "the batch has ended"
        return found
    finally:
        spark.sparkContext.cancelAllJobs()
        query.stop()


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.5)
        yield batch


def hanging(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(30)
        yield batch


@pytest.mark.alone
def test_a_batch_whose_tasks_end_gets_on(spark: SparkSession, tmp_path: Path) -> None:
    assert len(signs(spark, tmp_path, slow, 60, 4)) == 4  # a busy machine takes its time


@pytest.mark.alone
def test_a_batch_that_waits_for_a_slot_gets_on_as_those_do_that_have_one(spark: SparkSession, tmp_path: Path) -> None:
    """Many flows share a few slots: the last one's records wait for minutes, and nothing of it hangs."""

    def others(work: Any) -> None:
        with suppress(Exception):  # it is cancelled at the end
            rows = spark.range(0, PARTS, 1, PARTS).mapInArrow(work, "id long")
            rows.write.format("noop").mode("overwrite").save()

    for work, seconds, gets_on in ((slow, 60.0, True), (hanging, 8.0, False)):
        other = threading.Thread(target=others, args=(work,))
        other.start()
        time.sleep(1.5)  # first come, first served
        try:
            found = signs(spark, tmp_path / work.__name__, hanging, seconds, 4)
        finally:
            other.join(60)
        assert len(found) == 4 if gets_on else len(found) <= 2, found


def test_a_batch_whose_tasks_wait_does_not(spark: SparkSession, tmp_path: Path) -> None:
    found = signs(spark, tmp_path, hanging, 8)
    assert len(found) <= 2, found  # the first may be of before its tasks began
