"""The newest record of a few rows, from the log: what a repair writes anew."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import orjson
from confluent_kafka import Message

from cdc.errors import DecodeError
from cdc.keys import is_stray
from cdc.log.client import Kafka
from cdc.log.parts import PIECE, TopicReader
from cdc.log.registry import encoding_of
from cdc.outbox import other_events
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import Decoder
from cdc.records.events import EventDecoder
from cdc.resolve.views import topics_of
from cdc.view import View
from operations.records.standing import Standing
from spark.reading.entries import Entry, EntryDecoder
from spark.reading.record import batch_of
from spark.reading.spec import FlowSpec


class Record(NamedTuple):
    """A record as the log has it."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int


def record_of(message: Message, topic: str) -> Record:
    """What a consumer was given, as a record."""
    return Record(message.key(), message.value(), topic, message.partition() or 0, message.offset() or 0)


class Newest(NamedTuple):
    """A row's newest entry, and the record that it came from."""

    entry: Entry
    record: Record


def newest_records(pipeline: Pipeline, spec: FlowSpec, view: View, ids: Sequence[str]) -> dict[str, Newest]:
    """The newest record of these documents' root rows; rows that the log has never had are left out.

    The whole topic is read (all of a view's of events), but only the keys of other rows: the log has no index.

    Args:
        pipeline: the loaded file.
        spec: of the view's flow.
        view: a view of one table.
        ids: the documents.

    Raises:
        KafkaError, KafkaUnavailable: the log can't be read.
    """
    decoders, decoder = spec.decoders(), EntryDecoder(spec)
    standing = Standing[Newest](lambda newest: newest.entry)
    for topic in topics_of(pipeline, view):
        asked = Asked(decoders[topic], view, topic, ids)
        for records in _pieces(pipeline, topic):
            mine = [record for record in records if asked(record)]
            for start in range(0, len(mine), PIECE):
                take(standing, decoder, view, mine[start : start + PIECE])
    return standing.by_key()


def newest_transactions(pipeline: Pipeline, view: View, ids: Sequence[str]) -> dict[str, int | None]:
    """The transaction of these documents' newest records, a delete's too; None of a row that was read.

    Args:
        pipeline: the loaded file.
        view: a view of one table.
        ids: the documents; those that the log has never had are left out.

    Raises:
        KafkaError, KafkaUnavailable: the log can't be read.
    """
    newest = dict[str, tuple[int, int | None]]()
    encoding = encoding_of(pipeline.source.reader())
    for topic, table in topics_of(pipeline, view).items():
        decoder = (EventDecoder if view.topics else Decoder)(table, encoding=encoding)
        asked = Asked(decoder, view, topic, ids)
        for records in _pieces(pipeline, topic):
            for record in filter(asked, records):
                told, one = decoder.told(record.value), asked.document(record)
                if one is not None and told[0] >= newest.get(one, (1, None))[0]:  # a tombstone says nothing, and has 0
                    newest[one] = told
    return {one: transaction for one, (_, transaction) in newest.items()}


def routed_elsewhere(pipeline: Pipeline, view: View, ids: Collection[str]) -> set[str]:
    """Those of some events that the log has in the topic of types without one of their own, and in none of the view's:
    they were written before their type was named in the file, and stay where they are.

    Args:
        pipeline: the loaded file.
        view: a view of events of some types alone.
        ids: the documents.

    Raises:
        KafkaError, KafkaUnavailable: the log can't be read.
    """
    found = set(ids)
    for topic, has in ((other_events(pipeline), True), *((one, False) for one in view.topics)):
        if found:
            there = _in_topic(pipeline, view, topic, found)
            found = there if has else found - there
    return found


def _in_topic(pipeline: Pipeline, view: View, topic: str, ids: Collection[str]) -> set[str]:
    decoder = EventDecoder(view.table, encoding=encoding_of(pipeline.source.reader()))
    asked = Asked(decoder, view, topic, ids)
    named = (asked.document(record) for records in _pieces(pipeline, topic) for record in records if asked(record))
    return {one for one in named if one is not None}


def take(standing: Standing[Newest], decoder: EntryDecoder, view: View, records: Sequence[Record]) -> None:
    """Take in a piece of the log."""
    by_place = {(record.partition, record.offset): record for record in records}
    entries = decoder.decode(batch_of(records)).entries
    mine = (entry for entry in entries if entry.view == view.name)
    standing.add(Newest(entry, by_place[entry.partition, entry.offset]) for entry in mine)


class Asked:
    """Whether a record is about one of some documents.

    To decode a key takes ten microseconds, and all but a few of the topic's millions are others'. A key of one integer
    or of one plain text is written in one way only, so these are looked for as bytes.

    Args:
        decoder: of the topic.
        view: a view of its table.
        topic: its name.
        ids: the documents.
    """

    def __init__(self, decoder: Decoder, view: View, topic: str, ids: Collection[str]) -> None:
        self._decoder, self._view, self._topic, self._ids = decoder, view, topic, set(ids)
        self._exact = None if view.topics else _exact(view, ids)  # the key of an event is its aggregate's
        self._tried = False

    def __call__(self, record: Record) -> bool:
        """Whether it is."""
        if record.key is None:
            return False
        if not self._tried:
            self._tried = True
            if not _as_we_write(record.key, self._view.key):
                self._exact = None
        return record.key in self._exact if self._exact is not None else self.document(record) in self._ids

    def document(self, record: Record) -> str | None:
        """The document that a record is about; None if it does not say."""
        try:
            change = self._decoder.named(record.key, record.value, self._topic, record.partition, record.offset)
            return self._view.document_id(change)
        except DecodeError:
            return None  # in the dead letters since it came


def _exact(view: View, ids: Collection[str]) -> frozenset[bytes] | None:
    """The keys of these documents as the log has them; None if they might be written in another way."""
    if len(view.key) != 1 or view.key != view.table.primary_key:
        return None
    column = view.table.by_name[view.key[0]]
    plain = [one for one in ids if not is_stray(one)]
    if column.array or column.base_type not in ("int2", "int4", "int8", "text", "varchar"):
        return None
    if column.base_type in ("text", "varchar"):
        simple = all(one.isascii() and one.isprintable() and not set(one) & {'"', "\\"} for one in plain)
        return frozenset(orjson.dumps({column.name: one}) for one in plain) if simple else None
    # 007 is the id of no document: the record of 7 would be taken for that of a row which is gone.
    numbers = [int(one) for one in plain if re.fullmatch("0|-?[1-9][0-9]{0,18}", one)]
    return frozenset(orjson.dumps({column.name: number}) for number in numbers if -(1 << 63) <= number < 1 << 63)


def _as_we_write(key: bytes, columns: Sequence[str]) -> bool:
    """Whether a key of the topic has just these columns, and no blanks."""
    try:
        found = orjson.loads(key)
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, dict) and list(found) == list(columns) and orjson.dumps(found) == key


def _pieces(pipeline: Pipeline, topic: str) -> Iterator[list[Record]]:
    """All records of a topic, up to its ends as they are now."""
    with TopicReader(Kafka(pipeline), topic) as reader:
        for piece in reader.pieces(reader.bounds()):
            yield [record_of(message, topic) for message in piece]
