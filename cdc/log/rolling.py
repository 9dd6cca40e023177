"""Closes the open segment of a partition: compaction never cleans that one."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError as CoreError
from confluent_kafka import KafkaException, Producer

from cdc.errors import KafkaUnavailable
from cdc.log.client import Kafka
from cdc.log.opening import opened
from cdc.log.refusals import translate, untaken

FLUSH_SECONDS = 30.0


def touch(kafka: Kafka, topic: str, partition: int, key: bytes) -> None:
    """Append a record that no reader of committed records ever sees: a tombstone, in a transaction that is aborted.

    A broker closes a segment whose time is over when the next record comes, so it takes a record. A plain tombstone
    would be one of a row that may have come again in this very moment, and would take it out of every sink.

    Args:
        kafka: the brokers.
        topic: its name.
        partition: its number.
        key: the record's; of a row that is gone, for whoever reads what was not committed.

    Raises:
        KafkaError: refused: the client needs the right to write, and to use transactional ids (terminal).
        KafkaUnavailable: no answer (transient).
    """
    failed: list[CoreError] = []

    def delivered(error: CoreError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    try:
        # One id a topic: who was killed in the middle of it is fenced by the next.
        own = {"transactional.id": f"headwater-erase.{topic}", "linger.ms": 0}
        producer = opened(Producer, {**kafka.settings, **own})
        producer.init_transactions(FLUSH_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, key=key, value=None, partition=partition, on_delivery=delivered)
        unsent = producer.flush(FLUSH_SECONDS)
        producer.abort_transaction(FLUSH_SECONDS)
    except KafkaException as error:
        raise translate(f"closing a segment of topic {topic}", error, kafka.bootstrap, kafka.heard) from error
    if failed:
        raise untaken(f"closing a segment of topic {topic}", failed, kafka.bootstrap, kafka.heard)
    if unsent:
        raise KafkaUnavailable(f"topic {topic} did not take a record in {FLUSH_SECONDS:.0f} s", fix="run it again")
