"""The initial snapshot's position, read from the marker's record in Kafka.

Rows of a transaction that was open during the snapshot can bear log positions from before it although they are newer
(docs/decisions/positions.md). Every decoder must know the snapshot's LSN to tell; it is in the log, next to the data.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from cdc.debezium_json import snapshot_lsn
from cdc.encoding import Encoding
from cdc.errors import KafkaError, RegistryUnavailable
from cdc.pipeline import Pipeline
from cdc.registry import encoding_of
from connectors.debezium import marker_topic

# Debezium reads the tables in an order of its own: the marker may come after a large one.
PATIENCE_SECONDS = 300.0


def read_snapshot_lsn(pipeline: Pipeline, patience: float = PATIENCE_SECONDS) -> int:
    """LSN of the initial snapshot, in bytes; waits for it while the snapshot runs.

    Raises:
        KafkaError: there is no such record after ``patience`` seconds.
        RegistryError: the schema registry can't be asked (RegistryUnavailable: transient).
    """
    topic, encoding = marker_topic(pipeline), encoding_of(pipeline.source.reader())
    settings = {"group.id": "headwater-marker", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**pipeline.kafka.client(), **settings, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        until = time.monotonic() + patience
        while time.monotonic() < until:
            message = consumer.poll(1.0)
            value = None if message is None or message.error() else message.value()
            found = None if value is None else _patiently(value, encoding, until)
            if found is not None:
                return found
    finally:
        consumer.close()
    raise KafkaError(
        f"topic {topic} does not tell the position of the initial snapshot after {patience:.0f} s",
        means="the snapshot has not begun, or the connector has failed",
        fix="run `headwater apply FILE --wait` and look at what it says about the connector",
    )


def _patiently(value: bytes, encoding: Encoding, until: float) -> int | None:
    """What the record tells, once the schema registry answers."""
    while True:
        try:
            return snapshot_lsn(value, encoding)
        except RegistryUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)
