"""A query that replays the batch which a crash has cut goes on living: it is not started a second time for it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deploy.local import artifacts
from spark.flow import Flow, Reading, begin, changelog
from spark.session import build_session
from spark.spec import FlowSpec
from spark.state import committed_offsets
from tests.support.servers import servers

pytestmark = pytest.mark.stack
SECONDS = 60.0


@pytest.fixture(scope="module")
def kafka() -> str:
    """The brokers; nothing else is needed."""
    made = servers()
    made.up(["kafka"])
    return made.endpoints.kafka


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = artifacts.spark_jars()[0].parent
    session = build_session("t", master="local[2]", jars=folder, log=tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()


def wait(query: StreamingQuery, good: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not good():
        assert query.isActive, query.exception()
        assert time.monotonic() < until
        time.sleep(0.05)


def flow_on(kafka: str, folder: Path, records: int, partitions: int) -> tuple[Flow, Callable[[int], None]]:
    """A flow that reads a topic of its own, and what sends records there."""
    topic = f"t{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka})

    def send(count: int) -> None:
        for number in range(count):
            producer.produce(topic, key=str(number), value=b"{}")
        producer.flush()

    send(records)
    spec = FlowSpec("s", {}, {topic: ("v",)}, {}, {}, {})
    return Flow("main", spec, Reading(kafka, {}, 6), folder / "main"), send


def start(spark: SparkSession, flow: Flow, each: Callable[[Any, int], None] | None) -> StreamingQuery:
    frame = changelog(spark, flow)
    writer = frame.writeStream.format("noop") if each is None else frame.writeStream.foreachBatch(cast(Any, each))
    return begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow)


@pytest.mark.parametrize("each", [None, lambda batch, _: batch.count()], ids=["noop", "foreachBatch"])
def test_a_query_lives_on_after_the_batch_that_it_replays(
    spark: SparkSession, kafka: str, tmp_path: Path, each: Callable[[Any, int], None] | None
) -> None:
    flow, send = flow_on(kafka, tmp_path, records=12, partitions=2)
    query = start(spark, flow, each)
    wait(query, lambda: sum(committed_offsets(flow.checkpoint)[1].get(*flow.spec.topics, {}).values()) == 12)
    query.stop()
    newest, _ = committed_offsets(flow.checkpoint)
    (flow.checkpoint / "commits" / str(newest)).unlink()  # as kill -9 before the commit leaves it

    query = start(spark, flow, each)
    try:
        wait(query, lambda: committed_offsets(flow.checkpoint)[0] >= newest)
        wait(query, lambda: len(query.recentProgress) > 0)  # the source was asked for its metrics, and did not fail
        send(3)
        wait(query, lambda: sum(committed_offsets(flow.checkpoint)[1].get(*flow.spec.topics, {}).values()) == 15)
        assert query.recentProgress[0].batchId == newest
    finally:
        query.stop()
