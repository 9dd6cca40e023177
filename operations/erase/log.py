"""Where the log holds a row: every record of it that is on the brokers' disks, superseded and aborted ones too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Message, TopicPartition

from cdc.errors import KafkaUnavailable
from cdc.log.client import PARTITION_EOF, Kafka
from cdc.log.records import SILENCE_SECONDS, records
from cdc.saying import Say
from operations.erase.subject import Subject
from operations.records.newest import Record

# Between two lines about how far the reading is.
SAY_SECONDS = 5.0
# Records that are left are counted up to here: that some are is what counts.
MOST = 100


@dataclass
class InLog:
    """What a topic holds of the row.

    Attributes:
        topic: its name.
        values: partition -> offsets of the records that hold values.
        keys: partition -> the row's key as the log has it.
        ended: partition -> whether the newest record that was committed, of those from the first with values on, is a
            tombstone; nothing where none was.
    """

    topic: str
    values: dict[int, list[int]] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    ended: dict[int, bool] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many records hold values."""
        return sum(map(len, self.values.values()))

    @property
    def deleted(self) -> bool:
        """Whether nothing comes behind the row's end; also where the log knows nothing of it any more."""
        return all(self.ended.values())


# Whether a record is about the row, and whether it holds values.
Judge = Callable[[Message], tuple[bool, bool]]


def row_in_log(subject: Subject, kafka: Kafka) -> InLog:
    """Read the table's topic, whole.

    Raises:
        KafkaUnavailable: no answer (transient).
    """
    asked, topic = subject.asked(), subject.topic

    def judge(message: Message) -> tuple[bool, bool]:
        record = Record(message.key(), None, topic, message.partition() or 0, message.offset() or 0)
        return asked(record), message.value() is not None

    found = look(kafka, topic, judge, subject.say)
    # Aborted records are no news of the row: what is committed says how it ends.
    for partition, offsets in found.values.items():
        for message in records(kafka, topic, partition, min(offsets)):
            if judge(message)[0]:
                found.ended[partition] = message.value() is None
    return found


def look(kafka: Kafka, topic: str, judge: Judge, say: Say) -> InLog:
    """Read a topic, whole.

    Args:
        kafka: the brokers.
        topic: its name.
        judge: of a record.
        say: told how far it is, now and then.
    """
    found, told, read = InLog(topic), time.monotonic() + SAY_SECONDS, 0
    described = kafka.describe([topic])
    for partition in range(described[topic].partitions if topic in described else 0):
        for message in records(kafka, topic, partition, uncommitted=True):
            read += 1
            mine, values = judge(message)
            if mine:
                _take(found, partition, message, values=values)
            if time.monotonic() > told:
                say(f"topic {topic}: {read:,} records read, {found.count} of them hold values of the row")
                told = time.monotonic() + SAY_SECONDS
    return found


def _take(found: InLog, partition: int, message: Message, *, values: bool) -> None:
    if values:
        found.values.setdefault(partition, []).append(message.offset() or 0)
    found.keys[partition] = message.key() or b""


def still_there(kafka: Kafka, found: InLog) -> int:
    """How many of the records with values the log still holds, by a seek to each; ``MOST`` for that many and more.

    Raises:
        KafkaUnavailable: no answer (transient).
    """
    count = 0
    consumer = kafka.consumer(isolation_level="read_uncommitted")
    try:
        for partition, offsets in found.values.items():
            for offset in offsets:
                count += _is_there(consumer, TopicPartition(found.topic, partition, offset))
                if count >= MOST:
                    return count
    finally:
        consumer.close()
    return count


def _is_there(consumer: Consumer, place: TopicPartition) -> bool:
    consumer.assign([place])
    message = consumer.poll(SILENCE_SECONDS)
    error = None if message is None else message.error()
    if message is None or (error is not None and error.code() != PARTITION_EOF):
        raise KafkaUnavailable(f"topic {place.topic} could not be read: {error or 'no answer'}", fix="run it again")
    return error is None and message.offset() == place.offset and message.value() is not None
