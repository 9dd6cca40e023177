"""The dead letters of a pipeline, read and cleared."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as Refusal

from cdc.errors import KafkaError, KafkaUnavailable
from cdc.letters.book import Book
from cdc.letters.deadletter import DeadLetter
from cdc.log.client import PARTITION_EOF, Kafka
from cdc.log.letters import THROUGH, clear, letters_config, publish
from cdc.log.records import SILENCE_SECONDS, records
from cdc.pipeline import Pipeline

_UNKNOWN = (Refusal.UNKNOWN_TOPIC_OR_PART, Refusal._UNKNOWN_TOPIC, Refusal._UNKNOWN_PARTITION)
# Letters cleared at once.
PAGE = 5_000


class Raw(NamedTuple):
    """A record of the log as it is there."""

    key: bytes | None
    value: bytes | None


class LetterLog:
    """The letters' topic; one partition, so one offset says where one is.

    Args:
        pipeline: the loaded file.
        most: letters to remember at the most; None for all.
        since_ms: letters that came before are left out (epoch milliseconds); None for all.

    Attributes:
        book: what stands, as of the last ``follow``.
    """

    def __init__(self, pipeline: Pipeline, most: int | None = None, *, since_ms: int | None = None) -> None:
        self._since_ms = since_ms
        self.pipeline, self.topic = pipeline, pipeline.dead_letter_topic
        self.book = Book(most)
        self._kafka = Kafka(pipeline)
        self._next = OFFSET_BEGINNING
        self._there = False

    def there(self) -> bool:
        """Whether there is such a topic.

        Raises:
            KafkaError: this may not be asked (terminal). KafkaUnavailable: no answer (transient).
        """
        return self._there or bool(self._kafka.describe([self.topic]))

    def follow(self) -> Book:
        """Read what has come since the last time, or from where it begins; what stands now.

        Raises:
            KafkaError: there is no such topic. KafkaUnavailable: no answer (transient).
            NewerFormat: a newer Headwater's letter (terminal).
        """
        if not self._there:
            if not self.there():
                raise KafkaError(
                    f"topic {self.topic} does not exist",
                    means="the pipeline was not applied yet: nothing can have been refused",
                    fix="run `headwater apply FILE`",
                )
            if self._since_ms is not None:
                self._next = self._kafka.since(self.topic, self._since_ms)
            self._there = True
        for message in records(self._kafka, self.topic, 0, self._next):
            at = message.offset() or 0
            self.book.take(message.key() or b"", message.value(), at, _through(message))
            self._next = at + 1
        return self.book

    def again(self) -> Book:
        """Read on from the first letter that was not remembered: there may be room for it by now.

        Raises:
            KafkaError, KafkaUnavailable, NewerFormat: as ``follow``.
        """
        start = self.book.back()
        self._next = self._next if start is None else start
        return self.follow()

    def clear(self, cleared: Mapping[bytes, int]) -> None:
        """Clear letters; of one that has come again since it was looked at, the newer one stands.

        Args:
            cleared: record key -> the letter's offset here.

        Raises:
            KafkaError: not all were acknowledged; KafkaUnavailable: no answer (transient). Repeat it.
        """
        config, items = letters_config(self.pipeline), list(cleared.items())
        for start in range(0, len(items), PAGE):
            clear(config, dict(items[start : start + PAGE]))
        if items:
            self.follow()
            self.write_covered_again()

    def write_covered_again(self) -> None:
        """Letters that stand behind a tombstone are written once more, before compaction loses them.

        Raises:
            KafkaError, KafkaUnavailable: as ``clear``.
        """
        for key in list(self.book.covered):
            logged = self.book.standing[key]
            raw = self.raw(self.topic, 0, logged.at)
            if raw is not None and raw.key == key and raw.value is not None:
                publish(letters_config(self.pipeline), [(key, raw.value, None)])
        if self.book.covered:
            self.follow()

    def whole(self, at: int) -> DeadLetter | None:
        """A letter with its document; None if the topic has let it go.

        Args:
            at: its offset here.
        """
        raw = self.raw(self.topic, 0, at)
        return None if raw is None or raw.value is None else DeadLetter.from_json(raw.value)

    def raw(self, topic: str, partition: int, offset: int) -> Raw | None:
        """The record at an offset; None if compaction has removed it, or it was never committed.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        return self.raws([(topic, partition, offset)]).get((topic, partition, offset))

    def raws(self, places: Collection[tuple[str, int, int]]) -> dict[tuple[str, int, int], Raw]:
        """The records at some places (topic, partition, offset); those that are not there are left out.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        found: dict[tuple[str, int, int], Raw] = {}
        if not places:
            return found
        consumer = self._kafka.consumer()
        try:
            for place in sorted(places):
                message = _at(self._kafka, consumer, *place)
                if message is not None:
                    found[place] = Raw(message.key(), message.value())
        finally:
            consumer.close()
        return found


def _at(kafka: Kafka, consumer: Consumer, topic: str, partition: int, offset: int) -> Message | None:
    """The record at an offset, if it is there: a seek behind the log's end would lead to its beginning."""
    place = TopicPartition(topic, partition, offset)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SILENCE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() in _UNKNOWN:
            return None  # the topic is gone, and its records with it
        raise kafka.told(f"topic {topic} could not be read", error, consumer) from error
    if not low <= offset < high:
        return None
    consumer.assign([place])
    message = consumer.poll(SILENCE_SECONDS)
    if message is None:
        raise KafkaUnavailable(f"topic {topic} gave nothing for {SILENCE_SECONDS:.0f} s", fix="run it again")
    wrong = message.error()
    if wrong is not None and wrong.code() != PARTITION_EOF:
        raise KafkaUnavailable(f"topic {topic} could not be read: {wrong}", fix="run the same command again")
    return message if wrong is None and message.offset() == offset else None


def _through(message: Message) -> int | None:
    found = dict(message.headers() or ()).get(THROUGH)
    return None if found is None else int(found)
