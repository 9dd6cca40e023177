"""Reads a topic's partition to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from cdc.errors import KafkaUnavailable
from cdc.log.client import PARTITION_EOF, Kafka
from cdc.log.refusals import of_the_group, translate

# A fetch of an idle partition answers within half a second; no answer for this long is an outage.
SILENCE_SECONDS = 30.0


def records(
    kafka: Kafka, topic: str, partition: int, start: int = OFFSET_BEGINNING, *, uncommitted: bool = False
) -> Iterator[Message]:
    """Every committed record of a partition, from an offset, or its first, to the end that it has now.

    A partition that is written to all the time never shows its end to a reader: what comes after the end that there was
    at the beginning is left for the next time.

    Args:
        kafka: the brokers.
        topic: its name.
        partition: its number.
        start: the first offset.
        uncommitted: with those of transactions that were aborted: they lie on the brokers' disks as others do.

    Raises:
        KafkaUnavailable: no answer (transient).
        KafkaError: it is not there, or may not be read (terminal).
    """
    more = {"isolation_level": "read_uncommitted"} if uncommitted else {}
    consumer: Consumer = kafka.consumer(**more)
    try:
        place = TopicPartition(topic, partition, start)
        end = _end(kafka, consumer, place)
        consumer.assign([place])
        heard = time.monotonic()
        while True:
            message = consumer.poll(SILENCE_SECONDS)
            error = None if message is None else message.error()
            if message is not None and error is None:
                if (message.offset() or 0) >= end:
                    return
                yield message
                heard = time.monotonic()
            elif error is not None and error.code() == PARTITION_EOF:
                return
            elif error is not None and not of_the_group(error):
                raise translate(f"topic {topic} could not be read", KafkaException(error), kafka.bootstrap, kafka.heard)
            elif error is None or time.monotonic() - heard > SILENCE_SECONDS:
                why = error or "no answer"
                raise KafkaUnavailable(f"topic {topic} could not be read: {why}", fix="run the same command again")
    finally:
        consumer.close()


def _end(kafka: Kafka, consumer: Consumer, place: TopicPartition) -> int:
    try:
        found = consumer.get_watermark_offsets(place, timeout=SILENCE_SECONDS)
    except KafkaException as error:
        raise kafka.told(f"the end of topic {place.topic} could not be read", error, consumer) from error
    return int(found[1])
