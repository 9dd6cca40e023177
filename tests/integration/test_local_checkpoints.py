"""Files of a checkpoint without a process for each (deploy/spark/LocalCheckpoints.java)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deploy.local import artifacts
from spark.machine.session import build_session
from tests.support.own_classes import own_classes_at_hand
from tests.support.programs import OTHERS, of_ended_children

BATCHES = 10


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_classes_at_hand():
        jars, log = artifacts.spark_jars()[0].parent, tmp_path_factory.mktemp("spark") / "spark.log"
        session = build_session("t", master="local[2]", jars=jars, log=log)
        yield session
        session.stop()


def test_batches_start_no_program(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        at = reached(query, 1)  # the folders are made by then
        before = of_ended_children(spark)
        reached(query, at + BATCHES)
        assert of_ended_children(spark) < before + OTHERS
    finally:
        query.stop()
    files = {path.name for path in (tmp_path / "commits").iterdir()}
    assert {str(number) for number in range(BATCHES)} <= files
    assert not list(tmp_path.rglob(".*")), "neither temporary files nor checksums stay behind"


def reached(query: Any, number: int) -> int:
    """The number of a batch that has ended, when it is at least this one."""
    until = time.monotonic() + 120
    while not (report := query.lastProgress) or report["batchId"] < number:
        assert query.isActive and time.monotonic() < until, query.exception()
        time.sleep(0.05)
    return int(report["batchId"])


@pytest.fixture
def manager(spark: SparkSession, tmp_path: Path) -> Any:
    """The file manager that a checkpoint in a folder of its own gets."""
    package: Any = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    made = package.CheckpointFileManager.create(path_of(spark, tmp_path), conf)
    assert made.getClass().getName() == "headwater.spark.LocalCheckpoints"
    return made


def path_of(spark: SparkSession, path: Path) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(path.as_uri())


def put(spark: SparkSession, manager: Any, path: Path, text: str, *, overwrite: bool = False) -> None:
    stream = manager.createAtomic(path_of(spark, path), overwrite)
    stream.write(text.encode())
    stream.close()


def test_a_second_writer_of_the_same_batch_is_refused(spark: SparkSession, manager: Any, tmp_path: Path) -> None:
    put(spark, manager, tmp_path / "7", "first")
    with pytest.raises(Py4JJavaError) as refused:
        put(spark, manager, tmp_path / "7", "second")
    assert "hadoop.fs.FileAlreadyExistsException" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert (tmp_path / "7").read_text() == "first"


def test_what_may_be_replaced_is(spark: SparkSession, manager: Any, tmp_path: Path) -> None:
    put(spark, manager, tmp_path / "metadata", "first")
    put(spark, manager, tmp_path / "metadata", "second", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["metadata"]
    assert (tmp_path / "metadata").read_text() == "second"


def test_a_file_that_was_given_up_leaves_nothing(spark: SparkSession, manager: Any, tmp_path: Path) -> None:
    stream = manager.createAtomic(path_of(spark, tmp_path / "7"), False)
    stream.write(b"half")
    stream.cancel()
    assert list(tmp_path.iterdir()) == []
