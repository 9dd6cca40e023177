"""The initial snapshot's position after it was interrupted: both attempts' records are in the marker's topic."""

from __future__ import annotations

import json
import secrets
import time

import pytest
from confluent_kafka import Producer, TopicPartition

from cdc.errors import KafkaError
from cdc.log.client import Kafka, Topic
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import Decoder
from connectors.debezium import marker_topic
from connectors.marker import read_position
from connectors.marker_watch import MarkerWatch, read_snapshot_lsn
from deploy.local.endpoints import Endpoints
from tests.support.decoder_cases import TABLE, event
from tests.support.source import eventually

pytestmark = pytest.mark.stack

FIRST, SECOND = 1_000, 2_000


def read_at(lsn: int) -> bytes:
    return event("r", lsn=lsn, sequence=f'[null,"{lsn}"]', snapshot="first")


def pipeline_of(stack: Endpoints) -> Pipeline:
    return Pipeline.model_validate(
        {
            "version": 1,
            "name": f"m{secrets.token_hex(4)}",
            "source": {"database": "d", "user": "u", "tables": ["public.t"]},
            "kafka": {"bootstrap": stack.kafka},
            "connect": {"url": stack.connect_url},
            "views": {"t": {"root": "t"}},
            "sinks": {"cache": {"type": "redis", "url": stack.redis_cache_url, "view": "t"}},
        }
    )


def test_the_last_attempt_counts_everywhere(stack: Endpoints) -> None:
    pipeline = pipeline_of(stack)
    kafka, topic = Kafka(pipeline), marker_topic(pipeline)
    producer = Producer({"bootstrap.servers": stack.kafka})
    kafka.create(Topic(topic, 1, 1, {"cleanup.policy": "compact"}))
    try:
        assert read_position(kafka, pipeline) is None
        producer.produce(topic, key=b"{}", value=read_at(FIRST))
        producer.flush(10)
        assert read_snapshot_lsn(pipeline) == FIRST  # a sink fills while the first attempt reads
        watch = MarkerWatch(pipeline, FIRST)
        time.sleep(1)
        assert watch.newer() is None
        producer.produce(topic, key=b"{}", value=read_at(SECOND))
        producer.flush(10)
        assert eventually(lambda: watch.newer() == SECOND), "and learns of the second"
        assert watch.newer() is None
        watch.close()
        position = read_snapshot_lsn(pipeline)
        assert position == read_position(kafka, pipeline) == SECOND
    finally:
        kafka.delete([topic])
    # A transaction that began before the second attempt and ended after it is newer than what either has read.
    key, late = b'{"a":1,"b":"x|y"}', event("u", lsn=1_500, sequence='[null,"1500"]')
    decoder = Decoder(TABLE, snapshot_lsn=position)
    records = [read_at(FIRST), read_at(SECOND), late]
    changes = [decoder.decode(key, value, "t", 0, offset) for offset, value in enumerate(records)]
    assert max(changes, key=lambda change: (change.position, change.offset)).offset == 2
    assert json.loads(late)["op"] == "u"


def test_a_marker_that_was_deleted_is_not_waited_for(stack: Endpoints) -> None:
    pipeline = pipeline_of(stack)
    kafka, topic = Kafka(pipeline), marker_topic(pipeline)
    producer = Producer({"bootstrap.servers": stack.kafka})
    kafka.create(Topic(topic, 1, 1, {"cleanup.policy": "delete"}))  # as somebody has set it
    try:
        producer.produce(topic, key=b"{}", value=read_at(FIRST))
        producer.flush(10)
        for future in kafka.admin.delete_records([TopicPartition(topic, 0, 1)]).values():
            future.result()
        began = time.monotonic()
        with pytest.raises(KafkaError, match="has lost the position of the initial snapshot"):
            read_snapshot_lsn(pipeline, patience=20)
        assert time.monotonic() - began < 10
    finally:
        kafka.delete([topic])
