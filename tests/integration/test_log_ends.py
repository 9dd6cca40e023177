"""The log's ends beside transactions: of what is written, and, some milliseconds later, of what can be read."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from cdc.errors import KafkaError
from cdc.log.client import Kafka, Topic
from cdc.log.ends import LogEnds, reached
from cdc.pipeline import loads
from deploy.local.endpoints import Endpoints
from operations.query import complete as as_of

pytestmark = pytest.mark.stack
PARTS, TRANSACTIONS = 6, 60
TEXT = """\
version: 1
name: {name}
source: {{database: d, user: u, tables: [public.t]}}
kafka: {{bootstrap: "{kafka}"}}
connect: {{url: "http://127.0.0.1:1"}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1:1", tables: all}}}}
"""


@pytest.fixture
def log(stack: Endpoints) -> Iterator[tuple[Kafka, str, Producer]]:
    """A topic, and who writes to it as Connect does."""
    name = f"t{secrets.token_hex(4)}"
    kafka = Kafka(loads(TEXT.format(name=name, kafka=stack.kafka), "p.yaml"))
    kafka.create(Topic(name, PARTS, 1, {}))
    producer = Producer({"bootstrap.servers": stack.kafka, "transactional.id": name})
    producer.init_transactions()
    yield kafka, name, producer
    kafka.delete([name])


def write(producer: Producer, topic: str) -> dict[str, dict[int, int]]:
    """A record into each partition: behind which offsets they are."""
    found: dict[int, int] = {}

    def written(_error: object, one: Message) -> None:
        found[one.partition() or 0] = (one.offset() or 0) + 1

    for part in range(PARTS):
        producer.produce(topic, b"x", partition=part, on_delivery=written)
    producer.flush()
    return {topic: found}


def test_what_is_committed_lies_below_the_ends_of_what_is_written(log: tuple[Kafka, str, Producer]) -> None:
    """A cut of a history, a write that was waited for and the age of a sink were concluded from the other ends, which
    two of five times were before a record whose transaction had been committed."""
    kafka, topic, producer = log
    readable = 0
    for number in range(10 * TRANSACTIONS):  # a busy machine may ask so late that it sees none for a while
        if number >= TRANSACTIONS and readable < number:
            break
        producer.begin_transaction()
        goal = write(producer, topic)
        producer.commit_transaction()
        found = kafka.ends({topic: PARTS})
        assert reached(kafka.ends({topic: PARTS}, written=True), goal)
        readable += reached(found, goal)
    else:
        raise AssertionError("markers are in all partitions at once: nothing of this is needed")


def test_who_reads_up_to_the_ends_waits_until_they_can_be_read(
    log: tuple[Kafka, str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_of, "SETTLE_SECONDS", 1.0)
    kafka, topic, producer = log
    producer.begin_transaction()
    goal = write(producer, topic)
    ends = kafka.ends({topic: PARTS}, written=True)
    found, whole = as_of._settled(kafka, ends)
    assert not whole and found == {topic: dict.fromkeys(range(PARTS), 0)}, "it is under way"
    producer.commit_transaction()
    found, whole = as_of._settled(kafka, ends)
    assert whole and reached(found, goal)


def test_the_bounds_of_many_are_those_that_each_partition_tells(
    stack: Endpoints, log: tuple[Kafka, str, Producer]
) -> None:
    """Also below a transaction that is under way, and behind records that were removed."""
    kafka, topic, producer = log
    for _ in range(2):
        producer.begin_transaction()
        write(producer, topic)
        producer.commit_transaction()
    removed = kafka.admin.delete_records([TopicPartition(topic, 1, 1)])
    for future in removed.values():
        future.result()
    producer.begin_transaction()
    write(producer, topic)
    consumer, asked = kafka.consumer(), LogEnds(stack.kafka, {})
    try:
        first, ends = asked.bounds([topic])
        told = {part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=10) for part in range(PARTS)}
        assert {part: (first[topic][part], ends[topic][part]) for part in range(PARTS)} == told
        assert first[topic][1] == 1 and ends[topic][0] == 4, "two records and their markers"
        asked.keep([topic, "no-such-topic"])
        assert asked.bounds([topic]) == (first, ends)
        with pytest.raises(KafkaError, match="topic no-such-topic does not exist"):
            asked.ends(["no-such-topic"])
        assert asked.lag(ends, {topic: dict.fromkeys(range(PARTS), 3)}).events == PARTS
    finally:
        asked.close()
        consumer.close()
        producer.abort_transaction()
