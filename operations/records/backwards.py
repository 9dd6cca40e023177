"""The newest record of one row, looked for from the log's end backwards: what was changed lately is found at once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Message

from cdc.errors import DecodeError
from cdc.log.client import Kafka
from cdc.log.parts import TopicReader
from cdc.pipeline import Pipeline
from cdc.records.change import Change
from cdc.records.debezium_json import Decoder
from cdc.resolve.views import topics_of
from cdc.view import View
from operations.records.newest import Asked, Record, record_of

# Offsets of each partition that are read at once, from the end; each step back reads twice as many.
FIRST_STEP = 20_000
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
    with TopicReader(Kafka(pipeline, SILENT_SECONDS), topic, SILENT_SECONDS) as reader:
        ends, step = reader.bounds(), FIRST_STEP
        while any(high > low for low, high in ends.values()):
            asked = Asked(decoder, view, topic, [key])
            parts = {part: (max(low, high - step), high) for part, (low, high) in ends.items() if high > low}
            found: list[tuple[Record, float | None]] = []
            for piece in reader.pieces(parts):
                found += [(record, _written_at(one)) for one in piece if asked(record := record_of(one, topic))]
                if time.monotonic() > until:
                    break
            if found:
                return _newest(decoder, found, whole=time.monotonic() <= until)
            if time.monotonic() > until:
                return Newest(None, None, None, whole=False)
            ends = {part: (ends[part][0], low) for part, (low, _) in parts.items()}
            step *= 2
        return Newest(None, None, None, whole=True)


def _written_at(message: Message) -> float | None:
    kind, stamp = message.timestamp()
    return stamp / 1000 if kind else None


def _newest(decoder: Decoder, found: list[tuple[Record, float | None]], *, whole: bool) -> Newest:
    """The one of the highest offset: all of a row are in one partition. A tombstone tells less than its delete."""
    told = [one for one in found if one[0].value is not None] or found
    record, at = max(told, key=lambda one: one[0].offset)
    try:
        change = decoder.decode(*record)
    except DecodeError as error:
        return Newest(record, None, at, whole, error.what)
    return Newest(record, change, at, whole)
