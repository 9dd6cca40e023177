"""The log beside the tables: how far it goes, as of when a table is, and what it has besides."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError, QueryRefused, QueryTooLarge, TopicRecreated
from cdc.log.client import Kafka
from cdc.log.registry import encoding_of
from cdc.log.slices import Slice, SliceReader, slices
from cdc.pipeline import Pipeline
from cdc.resolve.views import topics_of
from cdc.token import WriteToken
from cdc.view import View
from connectors.debezium import marker_topic
from connectors.marker import last_attempt
from operations.freshness.log import SourceLog
from operations.freshness.wait import Wait, judge
from operations.opened import Opened, peek
from operations.query.answer import Told
from operations.query.complete import AsOf, Ends, committed, read_ends
from operations.query.histories import Past
from operations.query.tables import Held
from operations.query.tail import read_tail, refuse_late, refuse_unfit, spec_of
from operations.state.catalogue import remembered_catalogue, source_catalogue
from operations.state.folder import register_of
from operations.state.frozen import known_to, read_frozen
from spark.disk.applied import applied_offsets
from spark.disk.state import rebuild_command
from spark.log_gaps import unread_since

# Between two looks whether the log holds a write; each touches the heartbeat row, at most ten times a second.
WAIT_SECONDS = 0.02


class LogSide:
    """What is open to Kafka and Postgres; used by one thread at a time.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self._kafka = pipeline, Kafka(pipeline)
        self._reader, self._source = SliceReader(self._kafka), SourceLog(pipeline)
        self._encoding = encoding_of(pipeline.source.reader())
        self._marker: tuple[int, int] | None = None

    def close(self) -> None:
        """Close what is open."""
        self._reader.close()
        self._source.close()

    def catalogue(self, *, anew: bool = False) -> Catalogue:
        """The source's tables as this machine has seen them last; asked of Postgres if it never has, or ``anew``.

        Raises:
            SourceError: Postgres does not answer.
        """
        known = None if anew else remembered_catalogue(self.pipeline)
        return known or source_catalogue(self.pipeline)

    def told(self, tables: Sequence[tuple[Held, Opened, View]]) -> list[Told]:
        """As of when tables are as they were committed. What can't be asked leaves that unknown."""
        topics = {topic for _, opened, view in tables for topic in _topics(opened, view)}
        if not topics:
            return []
        try:
            ends = read_ends(self._source, self._kafka, topics)
        except HeadwaterError as error:
            return [Told(one, AsOf(None, error.what)) for one, *_ in tables]
        found = []
        for one, opened, view in tables:
            mine = _topics(opened, view)
            as_of = committed(ends, self._kafka, self._reader, self._encoding, mine, _applied(one, opened, view))
            found.append(Told(one, as_of))
        return found

    def past(self, histories: Sequence[Past]) -> list[Told]:
        """As of when histories are. What can't be asked leaves that unknown."""
        try:
            ends = read_ends(self._source, self._kafka, {one.topic for one in histories}) if histories else None
        except HeadwaterError as error:
            return [Told(one.held, AsOf(None, error.what), past=one) for one in histories]
        found = []
        for one in histories:
            assert ends is not None
            as_of = committed(ends, self._kafka, self._reader, self._encoding, [one.topic], one.applied)
            found.append(Told(one.held, as_of, past=one))
        return found

    def fresh(self, tables: Sequence[tuple[Held, Opened, View]], catalogue: Catalogue, until: float) -> list[Told]:
        """Tables with what the log has besides, all up to the same ends.

        Raises:
            QueryRefused, TopicRecreated, TooLate, LogTruncated, QueryTooLarge: it can't be read so (terminal).
            KafkaUnavailable, RegistryUnavailable, ShapeUnknown: (transient).
        """
        for one, _, view in tables:
            refuse_unfit(one, view)
        topics = {topic for _, opened, view in tables for topic in _topics(opened, view)}
        if not topics:
            return []
        marker = marker_topic(self.pipeline)
        ends = read_ends(self._source, self._kafka, {*topics, marker})
        snapshot_lsn = self._snapshot_lsn(ends.entry.offsets.get(marker, {}).get(0, 0), marker)
        retention = self.pipeline.kafka.tombstone_retention_hours * 3600
        found = []
        for one, opened, view in tables:
            _refuse_made_anew(one, opened, ends)
            frozen, known = read_frozen(opened.generation), known_to(self.pipeline, opened.generation, catalogue)
            spec = spec_of(opened.pipeline, one.name.sink, view, known, frozen, snapshot_lsn)
            applied = _applied(one, opened, view)
            parts = slices({topic: ends.entry.offsets.get(topic, {}) for topic in spec.topics}, applied)
            since = unread_since(opened.flow_folder(view))
            refuse_late(self._reader, one, spec, parts, since, retention)
            tail = read_tail(self._reader, spec, one, parts, until, retention)
            found.append(Told(one, ends.of(_topics(opened, view)), tail, view))
        return found

    def await_write(self, token: WriteToken, until: float) -> None:
        """Wait until the log holds a write.

        Args:
            token: of it.
            until: in seconds of ``time.monotonic``.

        Raises:
            QueryRefused: it never will, or nobody can know (terminal).
            QueryTooLarge: it does not yet (try again).
        """
        wait = Wait(token, ())
        while True:
            numbers = {token.value} if token.kind == "transaction" and wait.lsn is None else set[int]()
            look = self._source.look(numbers)
            judge(wait, look)
            if wait.ended.done():
                answer = wait.ended.result()
                raise QueryRefused(
                    f"the write is {answer.state}: {answer.reason}",
                    means="no table will ever be known to have it",
                    fix="write again, and ask with that write's token; or ask without --at-least",
                )
            confirmed = look.standing.confirmed_lsn
            if wait.lsn is not None and confirmed is not None and wait.lsn <= confirmed:
                return
            if time.monotonic() > until:
                raise QueryTooLarge(
                    f"the log does not hold the write yet: {wait.trouble or 'Debezium has not brought it there'}",
                    fix="`headwater status FILE` says how far the log is; ask again, or with a larger --timeout",
                )
            self._source.beat()
            time.sleep(WAIT_SECONDS)

    def _snapshot_lsn(self, end: int, topic: str) -> int:
        """Position of the initial snapshot; read again when the marker's topic has grown."""
        if self._marker is None or self._marker[0] != end:
            messages = self._reader.read([Slice(topic, 0, None, end)] if end else [])
            found = last_attempt((message.value() for message in messages), self._encoding)
            self._marker = end, found or 0
        return self._marker[1]


def opened_views(pipeline: Pipeline, catalogue: Catalogue, tables: Sequence[Held]) -> list[tuple[Held, Opened, View]]:
    """Each table with its generation and its view.

    Raises:
        ConfigError: the views do not fit the source's tables (terminal).
        QueryRefused: the generation has no such view.
    """
    found, known = [], dict[tuple[str, int], Opened]()
    for one in tables:
        assert one.generation is not None, "a history has no view"
        place = (one.name.sink, one.generation)
        if place not in known:
            known[place] = peek(pipeline, catalogue, register_of(pipeline, place[0]).generation(place[1]))
        view = next((view for view in known[place].views if view.name == one.name.view), None)
        if view is None:
            raise QueryRefused(
                f"generation {one.generation} of sink {one.name.sink} has no view {one.name.view}",
                fix="`headwater generations FILE` shows what it was made of",
            )
        found.append((one, known[place], view))
    return found


def _topics(opened: Opened, view: View) -> list[str]:
    return list(topics_of(opened.pipeline, view))


def _applied(one: Held, opened: Opened, view: View) -> dict[str, dict[int, int]]:
    """What the table's own snapshots say; if none that is left does, nothing is certain but what its flow has said
    before the table was looked at."""
    return applied_offsets(opened.flow_folder(view)) if one.applied is None else one.applied


def _refuse_made_anew(one: Held, opened: Opened, ends: Ends) -> None:
    """Offsets of a topic that was made anew are others."""
    known = opened.generation.known()
    for topic, now in ends.entry.ids.items():
        if known is not None and known.topic_ids.get(topic, now) != now:
            raise TopicRecreated(
                f"{one.name.shown}: topic {topic} was deleted and created again",
                means="how much of it the table has is not known",
                fix=f"{rebuild_command(one.name.sink)}; without --fresh the table is read as it was committed",
            )
