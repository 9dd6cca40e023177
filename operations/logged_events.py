"""The events that views made of events are held against: as the log has them, for the second opinion, which reads no
log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import orjson

from cdc.join.view import JoinedView
from cdc.log.client import Kafka, Topic
from cdc.log.records import records
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import WRITTEN, lsn_of
from cdc.records.position import MAX_LSN
from cdc.resolve.views import topics_of
from cdc.stateful import StatefulView
from cdc.types import REFUSALS
from cdc.view import View
from connectors.marker import read_position
from truth.events.logged import Event
from truth.versions import DELETED, MISSED, Logged, Versions

# topic -> partition -> offset of the next record.
Ends = Mapping[str, Mapping[int, int]]


def logged(pipeline: Pipeline, view: View, ends: Ends | None = None) -> Log | Versions | None:
    """What reads the events of a view that is made of them, or the versions of what a joined one shows as it was; None
    for another view.

    Args:
        pipeline: the loaded file.
        view: the view.
        ends: up to where, of all its topics; None for all that the log has whenever it is read.
    """
    if isinstance(view, StatefulView):
        return Log(pipeline, view, ends)
    if isinstance(view, JoinedView) and (tables := view.tree.versioned()):
        return partial(_versions, pipeline, sorted(tables), ends)
    return None


def _versions(pipeline: Pipeline, tables: Sequence[str], ends: Ends | None) -> Iterator[Logged]:
    """Every change of some tables that the log has up to these ends, or now; what is none is a dead letter.

    Raises:
        KafkaUnavailable, RegistryUnavailable: no answer (transient).
    """
    kafka, encoding = Kafka(pipeline), encoding_of(pipeline.source.reader())
    named = {pipeline.topic(table): table for table in tables}
    for topic, found in kafka.describe([*named]).items():
        for part in range(found.partitions):
            end = None if ends is None else ends.get(topic, {}).get(part, 0)
            for message in records(kafka, topic, part) if end != 0 else ():
                if end is not None and (message.offset() or 0) >= end:
                    break
                try:
                    # Keys are JSON, whatever values are.
                    event, key = encoding.loads(message.value() or b""), orjson.loads(message.key() or b"")
                    source, op = event["source"], str(event["op"])
                    op = MISSED if op == DELETED and source.get(WRITTEN) else op
                    told = (int(source["ts_ms"]), op, dict(key), event["after"])
                    yield Logged(named[topic], message.offset() or 0, *told)
                except REFUSALS:
                    continue


def log_ends(pipeline: Pipeline, view: View) -> dict[str, dict[int, int]]:
    """Where the log of a view's events ends now.

    Raises:
        KafkaUnavailable: no answer (transient).
    """
    kafka = Kafka(pipeline)
    return kafka.ends(_partitions(kafka, pipeline, view))


def _partitions(kafka: Kafka, pipeline: Pipeline, view: View) -> dict[str, int]:
    return {topic: found.partitions for topic, found in kafka.describe(topics_of(pipeline, view)).items()}


class Log:
    """The events of a view, as ``truth.events.logged.Events``: called, it reads them from the log's beginning.

    Args:
        pipeline: the loaded file.
        view: the view.
        ends: up to where; None for all that the log has whenever it is read.

    Attributes:
        begin: once it was read: the position (an LSN) from which on the log has everything; 0 if nothing is lost.
    """

    def __init__(self, pipeline: Pipeline, view: StatefulView, ends: Ends | None) -> None:
        self._pipeline, self._ends = pipeline, ends
        self._topics, self._where = topics_of(pipeline, view), (view.table.name, view.table.schema)
        self._loads = encoding_of(pipeline.source.reader()).loads
        self._attempt: int | None = None
        self.begin = 0

    def __call__(self) -> Iterator[Event]:
        """Every event, those of a partition in their order; what is none is a dead letter, and counts nowhere. Before
        all of them, of each partition that has lost its first ones, that it has.

        Raises:
            DecodeError: somebody else writes into the marker's topic (terminal).
            KafkaUnavailable, RegistryUnavailable: no answer (transient).
        """
        kafka = Kafka(self._pipeline)
        self._attempt = read_position(kafka, self._pipeline)
        topics = kafka.describe(self._topics)
        partitions = {name: topic.partitions for name, topic in topics.items()}
        ends: Ends = self._ends or kafka.ends(partitions)
        begins, complete, self.begin = kafka.ends(partitions, first=True), 0, 0
        for topic, parts in begins.items():
            for part, begin in parts.items():
                if begin > 0:
                    lost = self._lost(kafka, topics[topic], part)
                    complete = max(complete, lost.committed)
                    yield lost
        for topic, upto in ends.items():
            for part, end in upto.items():
                for event, position in self._events(kafka, topic, part, end) if end else ():
                    if complete and event.committed >= complete:
                        self.begin = min(self.begin or position, position)
                    yield event
        if complete and not self.begin:
            self.begin = MAX_LSN

    def _lost(self, kafka: Kafka, topic: Topic, part: int) -> Event:
        """That a partition has lost events, which were committed before ``committed``."""
        first = next(self._events(kafka, topic.name, part, None), None)
        if first is None:  # all of them: what a retention removes is older than that
            committed = int(time.time() * 1000) - max(int(topic.config.get("retention.ms", 0)), 0)
        else:
            committed = first[0].committed
        return Event(part, -1, {}, again=False, topic=topic.name, committed=committed, lost=True)

    def _events(self, kafka: Kafka, topic: str, part: int, end: int | None) -> Iterator[tuple[Event, int]]:
        """A partition's events, with their positions."""
        for message in records(kafka, topic, part):
            offset = message.offset() or 0
            if end is not None and offset >= end:
                return
            try:
                event = self._loads(message.value() or b"")
                source = event["source"]
                # What was changed or deleted happened all the same, as it was when it was inserted.
                if event["op"] in ("c", "r") and (source["table"], source["schema"]) == self._where:
                    again, committed = source["snapshot"] == "incremental", int(source["ts_ms"] or 0)
                    position = lsn_of(source)
                    if event["op"] == "r" and not again and self._attempt not in (None, position):
                        continue  # an attempt of the initial snapshot that was interrupted: the last reads all anew
                    yield Event(part, offset, dict(event["after"]), again, topic, committed), position
            except REFUSALS:
                continue
