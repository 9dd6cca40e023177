"""Queries on a Spark session of the test's own, with our own classes, and on Kafka alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deploy.local import artifacts
from spark.machine.session import build_session
from tests.support.own_classes import own_classes_at_hand
from tests.support.servers import servers

SECONDS = 60.0


def brokers() -> str:
    """Kafka's, which is started; nothing else is needed."""
    made = servers()
    made.up(["kafka"])
    return made.endpoints.kafka


@contextmanager
def own_session(folder: Path) -> Iterator[SparkSession]:
    """A session on two threads; its log is in the folder."""
    with own_classes_at_hand():
        jars = artifacts.spark_jars()[0].parent
        yield build_session("t", master="local[2]", jars=jars, log=folder / "spark.log")


def wait(query: StreamingQuery, good: Callable[[], bool]) -> None:
    """Until it is; the query must live meanwhile."""
    until = time.monotonic() + SECONDS
    while not good():
        assert query.isActive, query.exception()
        assert time.monotonic() < until
        time.sleep(0.05)
