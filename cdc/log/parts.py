"""Reads parts of one topic, of all its partitions at once, up to ends that were noted before."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from cdc.errors import KafkaUnavailable
from cdc.log.client import PARTITION_EOF, Kafka
from cdc.log.records import SILENCE_SECONDS
from cdc.log.refusals import denied

# Records a poll brings.
PIECE = 5_000
# A poll waits for all of its records, also at the end of the log, where there are no more.
POLL_SECONDS = 0.5

# Partition -> the first offset, and the offset to stop before.
Parts = Mapping[int, tuple[int, int]]


class TopicReader:
    """A context manager: one consumer, for as long as it lasts; not for two threads at once.

    Args:
        kafka: the brokers.
        topic: its name.
        silent_seconds: brokers that give nothing for so long do not answer.
    """

    def __init__(self, kafka: Kafka, topic: str, silent_seconds: float = SILENCE_SECONDS) -> None:
        self._topic, self._silent, self._kafka = topic, silent_seconds, kafka
        # The log's beginning may move between a look at the bounds and the fetch. What is left is read then: at the
        # end, where librdkafka goes by itself, it would seem that the log has none of it.
        self._consumer: Consumer = kafka.consumer(auto_offset_reset="earliest")

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Where each partition begins and ends now.

        Raises:
            KafkaError: there is no topic, or it may not be read. KafkaUnavailable: no answer (transient).
        """
        with self._translated():
            known = self._consumer.list_topics(self._topic, timeout=self._silent).topics[self._topic]
            if known.error is not None:
                raise KafkaException(known.error)
            places = [TopicPartition(self._topic, part) for part in known.partitions]
            return {at.partition: self._consumer.get_watermark_offsets(at, self._silent) for at in places}

    def pieces(self, parts: Parts) -> Iterator[list[Message]]:
        """Every committed record of these parts that the log still has: of each partition in its order.

        A piece may be empty: who has no more time, or enough, is asked at least twice a second.

        Raises:
            KafkaUnavailable: no answer (transient).
            KafkaError: it may not be read (terminal).
        """
        left = {part: end for part, (start, end) in parts.items() if start < end}
        heard, why = time.monotonic(), ""
        with self._translated():
            self._consumer.assign([TopicPartition(self._topic, part, parts[part][0]) for part in left])
            while left:
                piece = []
                for message in self._consumer.consume(PIECE, POLL_SECONDS):
                    part, offset, error = message.partition() or 0, message.offset() or 0, message.error()
                    if denied(error):
                        raise KafkaException(error)
                    if error is not None and error.code() != PARTITION_EOF:
                        why = f": {error.str()}"  # librdkafka tries again by itself; if that lasts, it is silence
                        continue
                    heard = time.monotonic()
                    if part not in left:
                        continue  # behind the end of its part
                    if error is None and offset < left[part]:
                        piece.append(message)
                    if error is not None or offset + 1 >= left[part]:
                        del left[part]
                if time.monotonic() - heard > self._silent:
                    raise KafkaUnavailable(f"topic {self._topic} gave nothing for {self._silent:.0f} s{why}")
                yield piece

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._kafka.told(f"topic {self._topic}", error, self._consumer) from error
