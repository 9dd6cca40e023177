"""Keeps, while `run` is at work, the moments by which the age of what readers see is measured.

Several threads, because each asks others who may not answer: one notes once a second how far the source's log goes, and
binds that with the topics' ends when the slot has confirmed it; one asks Kafka Connect, one the row store which memory
it takes; one writes down what they have found; one looks how far the flows are (a row store tells what is still to be
written), and writes that down (operations/freshness/note.py); one a sink asks whether its server answers. Whichever is
held up, the others go on, and what it would have told grows old. None of them ever disturbs `run`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import psycopg

from cdc.errors import ConnectError, DiskFull, HeadwaterError, KafkaError
from cdc.log.ends import Offsets
from cdc.pipeline import Pipeline
from cdc.repeating import Repeating
from connectors.debezium import connector_name
from connectors.rest import ConnectClient
from operations.freshness.answering import Answering
from operations.freshness.hanging import Hanging
from operations.freshness.log import Look, SourceLog
from operations.freshness.marks import Marks
from operations.freshness.note import (
    FlowNote,
    SinkNote,
    SourceNote,
    read_sink_note,
    read_source_note,
    write_sink_note,
    write_source_note,
)
from operations.freshness.place import FlowPlace, Place
from operations.freshness.row_store import RowStoreMemory
from operations.freshness.source_words import connector_words
from operations.freshness.streaming import Streaming
from operations.state.folder import chosen_sinks
from operations.state.history import STREAM

LOOK_SECONDS = 1.0
CONNECTOR_SECONDS = 3.0
REQUEST_SECONDS = 5.0
MEMORY_SECONDS = 10.0
# The log is late by this before it is asked whether tables are being read: that costs a look into a topic.
LATE_SECONDS = 10.0
# A flow that lacks what is as old as this, though it is in the log, may wait for a transaction that does not end.
STILL_SECONDS = 20.0
# In place of a generation's number, which begin at 1.
_HISTORY = 0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Before:
    """What was told of a flow the last time, and the sign that it gave."""

    note: FlowNote
    place: FlowPlace | None = None


class Keeper:
    """A context manager: from its beginning to its end what is known of the age of everything is written down.

    Args:
        pipeline: the loaded file.
        only: the sinks; none for all.
    """

    def __init__(self, pipeline: Pipeline, only: Sequence[str] = ()) -> None:
        self.pipeline: Pipeline = pipeline
        self.only: Sequence[str] = tuple(only)
        self.since = time.time()
        self._marks, self._hanging, self._streaming = Marks(), Hanging(), Streaming()
        self._source = SourceNote(self.since, self.since, moved_at=self.since)
        self._confirmed: int | None = None
        self._connector: dict[str, Any] = {}
        self._failure: dict[str, Any] = {}
        self._memory: dict[str, Any] = {}
        self._topics: set[str] = set()
        self._places: dict[str, Place] = {}
        self._answering: dict[str, Answering] = {}
        self._before: dict[tuple[str, int, str], _Before] = {}
        self._now: Callable[[], tuple[Pipeline, Sequence[str]]] = lambda: (pipeline, only)
        self._log: SourceLog | None = None
        self._connect = ConnectClient(pipeline.connect, patience_seconds=0, request_seconds=REQUEST_SECONDS)
        self._store = RowStoreMemory(pipeline)
        # A server that is gone is told of at once, and not when it is time for the next note: this one is woken then.
        self._writing = _forever("sinks", self._write_once, LOOK_SECONDS, self._end)
        self._others = (
            _forever("source", self._look, LOOK_SECONDS, self._let_go),
            _forever("connector", self._ask, CONNECTOR_SECONDS, self._connect.close),
            _forever("row store", self._weigh, MEMORY_SECONDS, self._store.close),
            _forever("note", self._tell, LOOK_SECONDS),
        )

    def __enter__(self) -> Keeper:
        known = read_source_note(self.pipeline)
        if known is not None:  # what was in the log then is in it now
            self._source = replace(self._source, as_of=known.as_of)
        for one in (*self._others, self._writing):
            one.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (*self._others, self._writing):
            one.stop()
        self._writing.join(2 * LOOK_SECONDS)  # the others may wait for a server

    def follow(self, now: Callable[[], tuple[Pipeline, Sequence[str]]]) -> None:
        """From now on go by the file that this gives: sinks may come and go, the source is the same."""
        self._now = now

    # -- the source ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        # A clock that was put back: what is still to come would be no age, and no silence, until it has passed.
        now = time.time()
        self.since, self._source = min(self.since, now), self._source.by(now)
        self._marks.forget_after(now)
        try:
            self._log = self._log or SourceLog(self.pipeline)
            self._bind(self._log)
            self._see_hanging(self._log, now)
        except HeadwaterError as error:
            self._source = replace(self._source, error=error.what)
        except psycopg.Error as error:  # it went away between two questions: the next look says so
            _log.warning("freshness: %s: %s", type(error).__name__, error)

    def _let_go(self) -> None:
        if self._log is not None:
            self._log.close()

    def _bind(self, source: SourceLog) -> None:
        look = self._standing(source)
        confirmed = look.standing.confirmed_lsn
        asked = confirmed is not None and bool(self._topics) and self._marks.wanting(confirmed)
        if confirmed is not None and asked:
            self._confirm(source, confirmed)
        as_of = max(self._marks.bound or 0.0, self._source.as_of or 0.0) or None
        moved = confirmed is not None and confirmed != self._confirmed
        self._confirmed = confirmed
        late = as_of is None or look.at - as_of > LATE_SECONDS
        reading = tuple(source.reading()) if late else ()
        self._source = replace(
            self._source,
            as_of=as_of,
            moved_at=look.at if moved else self._source.moved_at,
            answered_at=time.time(),
            error=None,
            reading=reading,
        )
        # Nobody asks brokers now: what they said once is of another time.
        if not asked and (moved or not late):
            self._note_kafka(None)
        # After Postgres was told to answer: brokers that take their time do not make it silent.
        if self._streams(source, moved or not late, bound=not asked):
            self._source = replace(self._source, written_at=look.at)

    def _confirm(self, source: SourceLog, confirmed: int) -> None:
        """Bind what the slot has confirmed with the topics' ends; silent brokers are asked again at the next look."""
        try:
            self._marks.confirm(source.entry(confirmed, self._topics, quick=True))
            self._note_kafka(None)
        except KafkaError as error:  # Postgres has answered all the same
            self._note_kafka(error)

    def _note_kafka(self, error: KafkaError | None) -> None:
        what, fix = (None, None) if error is None else (error.what, error.fix or None)
        self._source = replace(self._source, kafka_error=what, kafka_fix=fix)

    def _streams(self, source: SourceLog, gets_on: bool, *, bound: bool) -> bool:
        """Whether records come into the log, though the slot does not move; unless all is bound, why that could not be
        stays the word of Kafka."""
        if gets_on:
            self._streaming.forget()
            return False

        def written() -> Offsets:
            found = source.written()
            if bound:
                self._note_kafka(None)
            return found

        try:
            return self._streaming.look(written, time.monotonic())
        except KafkaError as error:  # then nothing comes into the log, and the slot has been asked all the same
            self._note_kafka(error)
            return False

    def _see_hanging(self, source: SourceLog, now: float) -> None:
        """Look for transactions that do not end, while a flow to which records wait does not get older ones applied:
        of several partitions it may read the others meanwhile."""
        late = [
            one.place.topics
            for one in list(self._before.values())
            if one.place and one.note.behind and now - (one.note.as_of or one.note.moved_at) > STILL_SECONDS
        ]
        topics = {topic for some in late for topic in some}
        if not topics:
            self._hanging.forget()
            return
        try:
            self._hanging.look(lambda: source.both_ends(topics), time.monotonic())
        except KafkaError as error:  # of other topics, and not at each look: it would come and go
            _log.debug("freshness: %s", error.what)

    def _standing(self, source: SourceLog) -> Look:
        """How Postgres stands, noted before Kafka is asked: the slot fills while that is away."""
        try:
            look = source.look(())
            self._marks = self._marks.seen(look)
            slot = source.slot()
        except HeadwaterError:  # how the slot is now nobody knows; that it was lost stays so
            self._source = replace(
                self._source, slot_there=None, slot_active=None, slot_retained_bytes=None, slot_safe_bytes=None
            )
            raise
        self._source = replace(
            self._source,
            slot_there=slot is not None,
            slot_active=None if slot is None else slot.active,
            slot_lost=slot is not None and slot.wal_status == "lost",
            slot_retained_bytes=None if slot is None else slot.behind_bytes,
            slot_safe_bytes=None if slot is None else slot.safe_bytes,
        )
        return look

    def _ask(self) -> None:
        name, now = connector_name(self.pipeline), time.time()  # not after it, as in `_look`
        self._failure |= {"failed_at": min(self._failure["failed_at"], now)} if self._failure else {}
        self._connector |= {"connect_answered_at": min(self._connector.get("connect_answered_at", 0.0), now)}
        try:
            status = self._connect.status(name)
            self._connector = connector_words(name, status) | {"connect_answered_at": time.time()}
            if status is not None and status.failed:
                self._failure = {"failed_at": time.time(), "failed_why": self._connector["connector_error"]}
        except ConnectError as error:
            self._connector |= connector_words(name, None, error.what)  # when it last answered stays

    def _weigh(self) -> None:
        self._memory = self._store.look()

    def _tell(self) -> None:
        try:
            now = replace(self._source, at=time.time(), row_store=self._memory, **self._connector, **self._failure)
            write_source_note(self.pipeline, now)
        except (DiskFull, OSError) as error:
            _log.debug("the age of the log could not be told: %s", error)

    # -- the sinks ----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._write_once()
        for place in self._places.values():
            place.close()
        for one in self._answering.values():
            one.close(LOOK_SECONDS)

    def _write_once(self) -> None:
        self.pipeline, self.only = self._now()
        pipeline, topics = self.pipeline, set[str]()
        for sink in chosen_sinks(pipeline, self.only):
            place = self._places.get(sink)
            if place is None or place.pipeline is not pipeline:
                if place is not None:
                    place.close()
                place = self._places[sink] = Place(pipeline, sink)
                self._ask_anew(pipeline, sink)
            try:
                topics |= self._write_sink(pipeline, sink, place)
            except (HeadwaterError, OSError) as error:  # this one's trouble: of the others is told
                _log.debug("the age of sink %s could not be told: %s", sink, error, extra={"sink": sink})
        self._topics = topics or self._topics
        self._forget(set(self._places) - set(chosen_sinks(pipeline, self.only)))

    def _forget(self, sinks: set[str]) -> None:
        """Let go of sinks that are not in the file any more: what they hold stays as it is, also an alias that somebody
        takes away from readers, because nothing behind it is written any more."""
        for sink in sinks:
            self._places.pop(sink).close()
            asked = self._answering.pop(sink, None)
            if asked is not None:
                asked.close()
        self._before = {flow: before for flow, before in self._before.items() if flow[0] not in sinks}

    def _ask_anew(self, pipeline: Pipeline, sink: str) -> None:
        before = self._answering.get(sink)
        if before is not None:
            before.close()
        if not self._writing.stopping:
            one = self._answering[sink] = Answering(pipeline, sink, self._writing.wake)
            one.start()

    def _write_sink(self, pipeline: Pipeline, sink: str, place: Place) -> set[str]:
        now = time.time()
        found = place.flows()
        topics = {topic for flows in found.values() for flow in flows.values() for topic in flow.topics}
        notes: dict[int, dict[str, FlowNote]] = {}
        for number, flows in found.items():
            for name, flow in flows.items():
                notes.setdefault(number, {})[name] = self._advanced(sink, number, name, flow, now)
        # One that was retired while it was behind would be late for good.
        kept = {(sink, number, name) for number, flows in found.items() for name in flows}
        gone = {flow for flow in self._before if flow[0] == sink and flow[1] != _HISTORY} - kept
        self._before = {flow: before for flow, before in self._before.items() if flow not in gone}
        if notes:  # a folder of a sink that has never run would tell `drop` that its target is ours
            history = self._history(sink, place, topics, now)
            asked = self._answering.get(sink)
            away, astray = (asked.error, asked.astray) if asked is not None else (None, None)
            write_sink_note(pipeline, sink, SinkNote(now, self.since, notes, away, astray, history))
        return topics

    def _history(self, sink: str, place: Place, topics: set[str], now: float) -> FlowNote | None:
        try:
            kept = place.history(topics)
        except (HeadwaterError, OSError) as error:  # of its sink is told all the same
            _log.debug("the age of the history of sink %s could not be told: %s", sink, error, extra={"sink": sink})
            return None
        if kept is None:
            self._before.pop((sink, _HISTORY, STREAM), None)
            return None
        return self._advanced(sink, _HISTORY, STREAM, kept, now)

    def _advanced(self, sink: str, number: int, name: str, flow: FlowPlace, now: float) -> FlowNote:
        before = self._before.get((sink, number, name)) or self._earlier(sink, number, name, now)
        note = advance(before.note, before.place, flow, self._marks, now)
        note = replace(note, uncommitted=self._hanging.of(flow.topics, time.monotonic()))
        self._before[sink, number, name] = _Before(note, flow)
        return note

    def _earlier(self, sink: str, number: int, name: str, now: float) -> _Before:
        """What an earlier process has told: it has not become less true."""
        note, known = read_sink_note(self.pipeline, sink), None
        if note is not None:
            known = note.history if number == _HISTORY else note.generations.get(number, {}).get(name)
        return _Before(FlowNote(known.as_of if known else None, None, now))


def _forever(name: str, step: Callable[[], None], seconds: float, last: Callable[[], None] = lambda: None) -> Repeating:
    return Repeating(f"freshness: {name}", step, seconds, at_once=True, last=last)


def advance(note: FlowNote, before: FlowPlace | None, flow: FlowPlace, marks: Marks, now: float) -> FlowNote:
    """What is to be told of a flow now. Pure.

    Args:
        note: what was told of it last.
        before: how far it was then; None if another process has looked.
        flow: how far it is.
        marks: moments of the source.
        now: epoch seconds.
    """
    note, last = note.by(now), marks.last()
    behind = None if last is None else flow.left(last)
    anew = not flow.applied or (before is not None and _went_back(before, flow))
    floor = None if flow.void or anew else note.as_of
    reached = None if flow.void or flow.hold is not None else marks.newest(flow.has)
    as_of = max((moment for moment in (floor, reached) if moment is not None), default=None)
    idle = behind == 0 and flow.hold is None
    moved = idle or before is None or before.sign != flow.sign
    reason = flow.hold
    if reason is None and last is not None:
        missing = sorted(set(flow.topics) - last.offsets.keys())
        reason = last.silent.get(missing[0], f"topic {missing[0]} is not known to the brokers") if missing else None
        other = flow.other(last)
        reason = reason or (None if other is None else f"topic {other} was made anew")
    return FlowNote(as_of, behind, now if moved else note.moved_at, reason)


def _went_back(before: FlowPlace, flow: FlowPlace) -> bool:
    """Whether something that was applied is not applied now: the target is made anew."""
    return any(
        flow.applied.get(topic, {}).get(part, 0) < at
        for topic, parts in before.applied.items()
        for part, at in parts.items()
        if topic in flow.topics
    )
