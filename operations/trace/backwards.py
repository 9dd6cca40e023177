"""The newest record of one row, looked for from the log's end backwards: what was changed lately is found at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.errors import DecodeError, KafkaError, KafkaUnavailable
from cdc.log.client import PARTITION_EOF
from cdc.pipeline import Pipeline
from cdc.records.change import Change
from cdc.records.debezium_json import Decoder
from cdc.resolve.views import topics_of
from cdc.view import View
from operations.verify.newest_records import Asked, Record

# Offsets of each partition that are read at once, from the end; each step back reads twice as many.
FIRST_STEP = 20_000
PIECE = 5_000
# Brokers that give nothing for so long do not answer.
SILENT_SECONDS = 10.0


@dataclass(frozen=True)
class Newest:
    """What was found.

    Attributes:
        record: None if there is none in what was read.
        change: what it says; None of a record that can't be decoded.
        written_at: when the broker took it (epoch seconds); None if not known.
        whole: what was read goes up to the end, so that no newer one can be there; without a record: all was read.
        error: why it can't be decoded.
    """

    record: Record | None
    change: Change | None
    written_at: float | None
    whole: bool
    error: str | None = None


def newest_record(pipeline: Pipeline, decoder: Decoder, view: View, key: str, seconds: float) -> Newest:
    """The newest record of a row, but for the tombstone that follows a delete.

    Args:
        pipeline: the loaded file.
        decoder: of the table's topic.
        view: all columns of the table.
        key: the row's, as document ids have it.
        seconds: to look for at the most.

    Raises:
        KafkaError: there is no topic. KafkaUnavailable: no answer (transient).
    """
    until = time.monotonic() + seconds
    found = Newest(None, None, None, whole=True)
    for topic in topics_of(pipeline, view):
        newest = _newest_of(pipeline, topic, decoder, view, key, until)
        if newest.record is not None:  # of an event there is none in another topic
            return newest
        found = newest if not newest.whole else found
    return found


def _newest_of(pipeline: Pipeline, topic: str, decoder: Decoder, view: View, key: str, until: float) -> Newest:
    settings = {"group.id": "headwater-trace", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**pipeline.kafka.client(), **settings, "enable.partition.eof": True, "log_level": 0})
    try:
        ends = _bounds(consumer, topic)
        step = FIRST_STEP
        while any(high > low for low, high in ends.values()):
            asked = Asked(decoder, view, topic, [key])
            parts = {part: (max(low, high - step), high) for part, (low, high) in ends.items() if high > low}
            found: list[tuple[Record, float | None]] = []
            for piece in _read(consumer, topic, parts, until):
                found += [one for one in piece if asked(one[0])]
            if found:
                return _newest(decoder, found, whole=time.monotonic() <= until)
            if time.monotonic() > until:
                return Newest(None, None, None, whole=False)
            ends = {part: (ends[part][0], low) for part, (low, _) in parts.items()}
            step *= 2
        return Newest(None, None, None, whole=True)
    except KafkaException as error:
        raise KafkaUnavailable(f"topic {topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _bounds(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    known = consumer.list_topics(topic, timeout=SILENT_SECONDS).topics[topic]
    if known.error is not None:
        raise KafkaError(f"topic {topic}: {known.error.str()}", fix="run `headwater apply FILE`")
    return {
        part: consumer.get_watermark_offsets(TopicPartition(topic, part), SILENT_SECONDS) for part in known.partitions
    }


def _newest(decoder: Decoder, found: list[tuple[Record, float | None]], *, whole: bool) -> Newest:
    """The one of the highest offset: all of a row are in one partition. A tombstone tells less than its delete."""
    told = [one for one in found if one[0].value is not None] or found
    record, at = max(told, key=lambda one: one[0].offset)
    try:
        change = decoder.decode(*record)
    except DecodeError as error:
        return Newest(record, None, at, whole, error.what)
    return Newest(record, change, at, whole)


def _read(
    consumer: Consumer, topic: str, parts: dict[int, tuple[int, int]], until: float
) -> Iterator[list[tuple[Record, float | None]]]:
    """Records within these offsets: partition -> (from, before)."""
    consumer.assign([TopicPartition(topic, part, low) for part, (low, _) in parts.items()])
    left, heard = set(parts), time.monotonic()
    while left:
        messages = consumer.consume(PIECE, 0.5)
        now = time.monotonic()
        if messages:
            heard = now
        elif now - heard > SILENT_SECONDS:
            raise KafkaUnavailable(f"topic {topic} gave nothing for {SILENT_SECONDS:.0f} s")
        piece = []
        for message in messages:
            part, offset, error = message.partition() or 0, message.offset() or 0, message.error()
            if error is None and offset < parts[part][1]:
                kind, stamp = message.timestamp()
                record = Record(message.key(), message.value(), topic, part, offset)
                piece.append((record, stamp / 1000 if kind else None))
            elif error is not None and error.code() != PARTITION_EOF:
                continue  # librdkafka tries again; if that lasts, it is silence
            if error is not None or offset + 1 >= parts[part][1]:
                left.discard(part)
        yield piece
        if now > until:
            return
