"""A query on a real Spark and Kafka that is woken: what woke it is its batch; and the sink of work done in tasks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.disk.checkpoint import committed_offsets
from spark.drain import DRAIN, OUR_DRAIN, drained
from spark.flow import Flow, Reading, begin, changelog
from spark.reading.spec import FlowSpec
from spark.write import SUMMARY, SUMMARY_DDL
from tests.support.own_session import brokers, own_session, wait

pytestmark = [
    pytest.mark.stack,
    # PySpark leaves sockets to the garbage collector, also those of an earlier test's machine.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
# Records that a micro-batch may hold.
MOST = 6


@pytest.fixture(scope="module")
def kafka() -> str:
    return brokers()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_session(tmp_path_factory.mktemp("spark")) as session:
        assert session.conf.get(DRAIN) == OUR_DRAIN
        yield session


@pytest.fixture
def topic(kafka: str) -> str:
    name = f"t{token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})  # whose answers end with it
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def flow_on(kafka: str, topic: str, folder: Path) -> Flow:
    spec = FlowSpec("s", {}, {topic: ("v",)}, {}, {}, {})
    return Flow("main", spec, Reading(kafka, {}, MOST), folder / "main")


def test_what_woke_a_query_is_read_once_whatever_becomes_of_transactions(
    spark: SparkSession, kafka: str, topic: str, tmp_path: Path
) -> None:
    """Transactions that are committed, given up, and open for a while, larger ones than a batch may be, and a partition
    that comes later: each committed record once, in its partition's order, and no other."""
    batches: list[list[tuple[int, int, str]]] = []

    def each(batch: Any, _: int) -> None:
        batches.append([(row.partition, row.offset, row.value.decode()) for row in batch.collect()])

    def values() -> list[str]:
        return [value for rows in batches for _, _, value in rows]

    frame = changelog(spark, flow := flow_on(kafka, topic, tmp_path))
    taking = frame.writeStream.foreachBatch(cast(Any, each)).option("checkpointLocation", str(flow.checkpoint))
    query = begin(taking, flow)
    try:
        kept = [value for number in range(12) for value in transaction(kafka, topic, number)]
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
        # On the new partition alone: a look at the known ones would not tell of it.
        producer = Producer({"bootstrap.servers": kafka})
        producer.produce(topic, value=b"late", partition=2)
        producer.flush()
        wait(query, lambda: "late" in values() and set(kept) <= set(values()))
        time.sleep(1.5)  # whatever might come a second time
    finally:
        query.stop()
    assert sorted(values()) == sorted([*kept, "late"])
    assert max(len(rows) for rows in batches) <= MOST
    for partition in range(3):
        offsets = [offset for rows in batches for of, offset, _ in rows if of == partition]
        assert offsets == sorted(offsets)


def transaction(kafka: str, topic: str, number: int) -> list[str]:
    """Some records in a transaction that may be given up; those that it has committed."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic}.{number}", "linger.ms": 0})
    producer.init_transactions()
    producer.begin_transaction()
    values = [f"{number}/{n}" for n in range(random.choice((1, 2, 3, 20)))]
    for n, value in enumerate(values):
        producer.produce(topic, value=value.encode(), partition=n % 2)
    producer.flush()
    time.sleep(random.uniform(0, 1.5))
    if number % 3 == 2:
        producer.abort_transaction()
        return []
    producer.commit_transaction()
    return values


def work(place: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task's work: a line for each record, and a summary; a record says that it shall fail."""
    seen = 0
    for batch in batches:
        for value in batch.column("value").to_pylist():
            assert value != b"poison"
            with place.open("ab") as out:
                out.write(value + b"\n")
            seen += 1
    row = dict.fromkeys(SUMMARY.names, 0) | {"view": "v", "records": seen, "position": seen}
    yield pa.RecordBatch.from_pylist([row], schema=SUMMARY)


@pytest.mark.parametrize("kind", [OUR_DRAIN, "noop"])
def test_a_drained_batch_is_worked_through_once_counted_and_ends_the_query_where_it_fails(
    spark: SparkSession, kafka: str, topic: str, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "seen"
    flow = flow_on(kafka, topic, tmp_path)
    spark.conf.set(DRAIN, kind)
    try:
        summary = changelog(spark, flow).mapInArrow(cast(Any, partial(work, place)), SUMMARY_DDL)
        query = begin(drained(summary).option("checkpointLocation", str(flow.checkpoint)), flow)
    finally:
        spark.conf.set(DRAIN, OUR_DRAIN)
    producer = Producer({"bootstrap.servers": kafka})

    def send(*values: str) -> None:
        for value in values:
            producer.produce(topic, value=value.encode(), partition=0)
        producer.flush()

    try:
        send(*(str(number) for number in range(15)))
        wait(query, lambda: committed_offsets(flow.checkpoint)[1].get(topic, {}).get(0) == 15)
        assert place.read_bytes().split() == [str(number).encode() for number in range(15)]
        wait(query, lambda: sum(report.observedMetrics["applied"].records or 0 for report in done(query)) == 15)
        send("poison")
        with pytest.raises(StreamingQueryException, match="AssertionError"):
            query.awaitTermination(30)
        assert committed_offsets(flow.checkpoint)[1][topic][0] == 15
    finally:
        with suppress(StreamingQueryException):
            query.stop()


def done(query: StreamingQuery) -> list[Any]:
    return [report for report in query.recentProgress if report.numInputRows]
