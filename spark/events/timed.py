"""Flows over events with their times and clocks: what windows and matches have in common.

Decoded in Python, given to Spark SQL and to a state, and written in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.errors import ConfigError, DecodeError
from cdc.join.expressions import quoted
from cdc.letters.deadletter import DeadLetter
from cdc.log.ends import LogEnds
from cdc.records.change import Op
from cdc.timed import MatchView, TimedView
from cdc.types import merge_fields
from cdc.types.plain import plain_values
from spark.arrow import map_in_arrow
from spark.disk.checkpoint import committed_offsets
from spark.events.clocks import Clocks
from spark.events.kept import Open, Told, documents_of
from spark.events.stateful import begin_stateful, check_reach, refuse_other_attempt
from spark.events.ticks import Beats, Ticker, teller, ticks
from spark.flow import Flow, begin, changelog
from spark.machine.jars import BUILD_OWN_JAR, OWN_JAR
from spark.reading.entries import OWN, TALLY, Decoded, Entry, EntryDecoder, entries_in
from spark.reading.expressions import PREFIX, entry_batch, entry_schema
from spark.reading.guard import guarded
from spark.reading.record import records_of
from spark.reading.spec import FlowSpec, unpack
from spark.running import Query
from spark.write import letter_of

# Between the stages, beside an entry's own columns: that an incremental snapshot has read the event again, when it
# happened, what its partition's clock showed before it (both in microseconds), and the moment that all have reached.
AGAIN, AT, CLOCK, SAFE = "__again", "__at", "__clock", "__safe"
_MILLI = 1000
# The topic of what is no record but a moment through which the log was read (spark/events/ticks.py); a task has either
# kind.
TICK = ""


class Read(NamedTuple):
    """What a batch of records gave.

    Attributes:
        decoded: its entries in the order of the records.
        again: of each, whether it was read once more.
        at: of each, when it happened.
        clocks: of each, its partition's clock before it.
    """

    decoded: Decoded
    again: list[bool]
    at: list[int]
    clocks: list[int | None]


class TimedReader(EntryDecoder):
    """Decodes every event of a batch of records, and keeps its partitions' clocks."""

    def __init__(self, spec: FlowSpec, clocks: Clocks) -> None:
        super().__init__(spec, typed=True)
        self._clocks = clocks

    def read(self, batch: pa.RecordBatch) -> Read:
        """Events in the order of the records; what has no time, or was changed, is a dead letter."""
        found, letters = list[tuple[Entry, bool, int, int | None]](), list[DeadLetter]()
        for key, value, topic, partition, offset in records_of(batch):
            (decoder, (view,)), at = self.routes[topic], (topic, partition, offset)
            clock, moment, committed = self._clocks.before(*at), None, 0
            try:
                change = decoder.decode(key, value, *at)
                if change.after is None or change.op is Op.TOMBSTONE:
                    continue  # a table's row that is kept no longer: it happened all the same
                if decoder.given_up(change):
                    continue  # and moves no clock: the last attempt's rows, the same ones, would be late by it
                if change.op is Op.UPDATE:
                    raise _changed(view.name, change.table, f"{topic}/{partition}/{offset}")
                # Nobody reads an event's document: it becomes a part of another.
                row, identity = self.typed_row(view, change), view.document_id(change)
                entry = Entry(view.name, identity, change.position, b"{}", *at, change.ts_ms, row)
                assert isinstance(view, TimedView)
                moment = view.moment(change, row)
                found.append((entry, decoder.read_later(change), moment, clock))
                # Nothing happens after it was committed: a clock that runs ahead makes nobody else's events late.
                committed = change.ts_ms * _MILLI
                moment = min(moment, committed + _MILLI) if committed else moment
            except DecodeError as error:
                letters.append(self._letter(view, decoder, key, error, value, at))
            finally:
                self._clocks.after(*at, moment, committed)
        entries, *times = zip(*found, strict=True) if found else ((), (), (), ())
        return Read(Decoded(list(entries), letters, batch.num_rows), *map(list, times))


def _changed(view: str, table: str, record: str) -> DecodeError:
    return DecodeError(
        f"record {record}: a row of {table} was changed, and {view} takes its rows for events",
        means="it goes to the dead letters; the event counts as it was when it was inserted",
        fix="events are inserted and never updated: keep what changes in another table",
    )


def event_rows(
    packed: bytes, folder: str, awaited: Sequence[tuple[str, int]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """First stage: Kafka records in, events with their times out (a ``mapInArrow`` function).

    Args:
        packed: the flow's spec, of one view.
        folder: of the clocks.
        awaited: see ``Clocks``.
        batches: records.
    """
    spec, clocks = unpack(packed), Clocks(Path(folder), awaited)
    reader, view, safe, through = TimedReader(spec, clocks), spec.view, clocks.safe(), 0
    for batch in batches:
        if batch.num_rows and batch.column("topic")[0].as_py() == TICK:
            through = max(batch.column("offset").to_pylist())
        elif batch.num_rows:
            read = reader.read(batch)
            yield _with_times(entry_batch(spec, view, read.decoded), read, safe)
    clocks.keep()
    # What all have reached now: Spark hears of it when this batch has ended, and all of its events are counted.
    nothing = Decoded([], [], 0)
    yield _with_times(entry_batch(spec, view, nothing), Read(nothing, [], [], []), clocks.safe(through))


def _with_times(batch: pa.RecordBatch, read: Read, safe: int | None) -> pa.RecordBatch:
    """With the tally, which happened at no time."""
    more: dict[str, Any] = {
        AGAIN: pa.array([*read.again, False], pa.bool_()),
        AT: pa.array([*read.at, 0], pa.int64()),
        CLOCK: pa.array([*read.clocks, None], pa.int64()),
        SAFE: pa.array([safe or 0] * batch.num_rows, pa.timestamp("us", tz="UTC")),
    }
    for name, values in more.items():
        batch = batch.append_column(name, values)
    return batch


def timed_schema(view: TimedView) -> str:
    """DDL of ``event_rows``."""
    more = ((AGAIN, "boolean"), (AT, "bigint"), (CLOCK, "bigint"), (SAFE, "timestamp"))
    return ", ".join([entry_schema(view), *(f"{quoted(name)} {kind}" for name, kind in more)])


def given_events(events: DataFrame, parts: Sequence[str]) -> DataFrame:
    """What Windows.java and Matches.java take.

    Args:
        events: of ``event_rows``.
        parts: Spark SQL over an event's columns: what is computed of each.
    """
    there = F.col(PREFIX + "view") != TALLY
    own = [F.col(PREFIX + name).alias(name) for name in OWN]
    times = [F.col(AGAIN).alias("again"), F.col(AT).alias("at"), F.col(CLOCK).alias("clock")]
    event = guarded(F.expr(f"struct({', '.join(parts)})"), there).alias("event")
    return events.select(*own, *times, event, F.col(SAFE).alias("safe"))


@contextmanager
def with_own_classes(view: TimedView) -> Iterator[None]:
    """A block that calls them.

    Raises:
        ConfigError: the session has none, or an older jar's (terminal).
    """
    try:
        yield
    except (Py4JError, TypeError) as error:
        raise ConfigError(
            f"view {view.name}: Spark lacks {OWN_JAR}, which keeps its state",
            fix=BUILD_OWN_JAR,
        ) from error


def documents(spec: FlowSpec, batch: pa.RecordBatch) -> Told:
    """Entries of windows or matches: a document, or a delete of one that is no longer true."""
    view = spec.view
    assert isinstance(view, TimedView)
    failed, gone, held = (batch.column(name) for name in ("failed", "gone", "state"))
    failures, ended = failed.to_pylist(), gone.to_pylist()
    fields = {name: plain_values(held.field(name)) for name in view.state}
    entries, letters, rows = list[Entry](), [], list[int]()
    own, tally = entries_in(batch)
    for at, entry in own:
        if failures[at] is not None:
            letters.append(letter_of(spec, entry, failures[at]))
        else:
            document = merge_fields(b"{}", {name: values[at] for name, values in fields.items()})
            key = view.named(document, entry.id)
            entries.append(entry._replace(id=key, document=None if ended[at] else document))
            rows.append(at)
    return Told(Decoded(entries, letters, *tally), rows)


def start_timed(
    spark: SparkSession, flow: Flow, keep: Callable[[SparkSession, DataFrame], DataFrame], opened: Open = documents_of
) -> Query:
    """Start a flow of one view of windows or matches.

    Args:
        spark: the session.
        flow: the flow.
        keep: the stateful step.
        opened: opens where its documents go.

    Raises:
        ClusterError: an executor does not see the flow's folder (terminal).
        ConfigError: without our own classes (terminal).
        KafkaError: the brokers do not answer (transient).
    """
    view = flow.spec.view
    assert isinstance(view, TimedView)
    check_reach(spark, flow)
    refuse_other_attempt(flow)
    packed = flow.spec.pack()
    clocks, (held, left) = flow.folder / "clocks", _with_events(flow)
    Clocks(clocks).begin(left)
    rows = partial(event_rows, packed, str(clocks), held)
    place = opened(spark, flow)
    records = changelog(spark, flow, turns=place.turns)
    if by_time(view):
        with with_own_classes(view):
            moments = ticks(spark, flow)
        records = records.union(moments)
    events = map_in_arrow(records, rows, timed_schema(view))
    writer = place.writer(flow, keep(spark, events), documents).queryName(flow.title)
    writer = writer.option("checkpointLocation", str(flow.checkpoint))
    query = begin_stateful(spark, lambda: begin(writer, flow))
    if by_time(view) and flow.reading.beats:
        beats = Beats(flow.reading.beats, flow.reading.bootstrap, flow.reading.client, flow.spec.registry)
        Ticker(flow, query, beats, teller(spark, flow)).start()
    return place.query(query)


def by_time(view: TimedView) -> bool:
    """Whether time alone, without an event, makes something true of a view's documents: an absence."""
    return isinstance(view, MatchView) and view.keep == "alone"


def _with_events(flow: Flow) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """The partitions that have records now, and those of which some are still to be read."""
    log = LogEnds(flow.reading.bootstrap, flow.reading.client)
    try:
        begins, ends = log.bounds(sorted(flow.spec.topics))
    finally:
        log.close()
    read = committed_offsets(flow.checkpoint)[1]
    held = [(topic, part) for topic, parts in ends.items() for part, end in parts.items() if end > begins[topic][part]]
    return held, [(topic, part) for topic, part in held if ends[topic][part] > read.get(topic, {}).get(part, 0)]
