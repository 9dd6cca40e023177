"""Reads parts of several partitions, again and again, through one consumer that stays open."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as CoreError

from cdc.errors import KafkaUnavailable, LogTruncated
from cdc.log.client import PARTITION_EOF, Kafka
from cdc.log.ends import Offsets
from cdc.log.records import SILENCE_SECONDS
from cdc.log.refusals import denied, translate

# How long a broker holds a fetch when there is nothing: what is asked for is there, but for a transaction's marker at
# its end, which a reader never gets to see. The default of 500 ms would be waited for then.
WAIT_MS = 10
# A poll comes back as soon as there is a record.
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Slice:
    """A part of one partition.

    Attributes:
        start: the first offset; None for the first that there is.
        end: the offset to stop before.
    """

    topic: str
    partition: int
    start: int | None
    end: int


def slices(ends: Offsets, starts: Mapping[str, Mapping[int, int]]) -> list[Slice]:
    """The parts between two places; partitions that have nothing between them are left out. Pure.

    Args:
        ends: topic -> partition -> the offset to stop before.
        starts: the same -> the first offset; what is not named is read from its beginning.
    """
    found = [
        Slice(topic, partition, starts.get(topic, {}).get(partition), end)
        for topic, parts in ends.items()
        for partition, end in parts.items()
    ]
    return [one for one in found if (one.start or 0) < one.end]


class SliceReader:
    """One consumer; not for two threads at once.

    Args:
        kafka: the brokers.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def read(self, parts: list[Slice]) -> Iterator[Message]:
        """Every committed record of these parts: of each partition in its order, partitions in none.

        Who has enough closes the iterator.

        Raises:
            LogTruncated: the log begins after a start (terminal).
            KafkaUnavailable: no answer (transient).
            KafkaError: a topic may not be read (terminal).
        """
        if not parts:
            return
        if self._consumer is None:
            self._consumer = self._kafka.consumer(auto_offset_reset="error", fetch_wait_max_ms=WAIT_MS)
        left = {(one.topic, one.partition): one.end for one in parts}
        places = [
            TopicPartition(one.topic, one.partition, OFFSET_BEGINNING if one.start is None else one.start)
            for one in parts
        ]
        self._consumer.assign(places)
        heard = time.monotonic()
        try:
            while left:
                message = self._consumer.poll(POLL_SECONDS)
                if message is None:
                    if time.monotonic() - heard > SILENCE_SECONDS:
                        raise KafkaUnavailable(f"topic {next(iter(left))[0]} gave nothing", fix="try again")
                    continue
                heard = time.monotonic()
                place = (message.topic() or "", message.partition() or 0)
                error, offset = message.error(), message.offset() or 0
                if error is not None and denied(error):
                    raise translate(f"topic {place[0]} could not be read", KafkaException(error), self._kafka.bootstrap)
                if place not in left:
                    continue  # behind the end of its part
                if error is None and offset < left[place]:
                    yield message
                if (error is None and offset + 1 >= left[place]) or _ended(error, place):
                    del left[place]
        finally:
            self._consumer.unassign()


def _ended(error: CoreError | None, place: tuple[str, int]) -> bool:
    """Whether an event tells the end of a partition. librdkafka tries again by itself; if that lasts, it is silence."""
    if error is not None and error.code() == CoreError._AUTO_OFFSET_RESET:
        raise LogTruncated(
            f"topic {place[0]}/{place[1]} begins after the place from which it is to be read",
            means="records that were not applied yet were removed from the log",
            fix="`headwater status FILE` says what is to be done about it",
        )
    return error is not None and error.code() == PARTITION_EOF
