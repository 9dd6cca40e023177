"""History: one query a sink that appends every event of its tables to Iceberg, once.

It belongs to the sink and to no generation: a rebuild begins at offset 0, where compaction has long removed what
history holds. ``foreachBatch`` is given a batch's number; what the batch has of each topic is read as a slice (offsets
of this batch and the one before), decoded to typed rows and appended with the query's id, the batch's number and
offsets in the snapshot's summary. What the newest of these says is there already is not read again: a batch that a kill
has cut finds itself there, and so do those of a checkpoint that was put back from an older copy.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from cdc.errors import SinkUnavailable
from cdc.join.expressions import quoted
from cdc.journal import about
from cdc.log.ends import LogEnds, Offsets
from cdc.records.history import AFTER, PARTITION, POSITION, TIME
from cdc.view import View
from spark.arrow import map_in_arrow
from spark.disk.applied import forget_applied
from spark.disk.checkpoint import batch_offsets, committed_offsets, forget_topics
from spark.disk.files import write_atomic
from spark.disk.lease import Lease
from spark.disk.notes import read_note
from spark.failures import name_of, whole
from spark.flow import Flow, begin, changelog
from spark.log_gaps import read_unread, write_unread
from spark.reading.source import read_slice
from spark.reading.spec import FlowSpec
from spark.wanted import refuse_unwanted
from spark.warehouse.brief import brief
from spark.warehouse.history.put_back import (
    current_snapshot,
    offsets_there,
    read_lost,
    taken_back,
    whole_log,
)
from spark.warehouse.history.rows import Place, PlaceUnknown, history_ddl, history_rows
from spark.warehouse.history.tables import HistoryPlace, columns_there
from spark.warehouse.marks import BATCH, OFFSETS, QUERY, offsets_text
from spark.warehouse.merge import FULL
from spark.warehouse.upkeep.steps import shorten
from spark.warehouse.upkeep.turns import Turns
from spark.warehouse.upkeep.upkeep import Policy, Upkeep

FLOW = "_history"
# Kafka's word for the first offset that there is.
EARLIEST = -2
# In the flow's folder: the topics whose beginning was noted.
BEGUN = "begun.json"
_log = logging.getLogger(__name__)


class Historian:
    """Appends batches; the function of ``foreachBatch``.

    Args:
        place: where the tables are.
        flow: its flow: a view of all columns for each topic.
        lease: of the history's folder.
        turns: the tables' upkeep.
    """

    def __init__(self, place: HistoryPlace, flow: Flow, lease: Lease, turns: Turns) -> None:
        self.place, self.flow, self.lease, self.turns = place, flow, lease, turns
        self._there: dict[str, dict[int, int]] = {}  # topic -> up to where its table holds it
        self._begins: dict[str, int] = {}  # topic -> where its table begins, if not with the log
        self._newest: dict[str, int | None] = {}  # topic -> its table's snapshot that we have left

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Append a batch once.

        Raises:
            Fenced: another process has taken the history over (terminal).
            SinkUnavailable: somebody has put a table back (transient: the next start reads what it lacks).
        """
        spark, checkpoint = batch.sparkSession, self.flow.checkpoint
        marks = {QUERY: json.loads((checkpoint / "metadata").read_text())["id"], BATCH: str(batch_id)}
        starts, ends = slice_of(checkpoint, batch_id)
        with about(**self.flow.about, batch=batch_id):
            for topic in sorted(ends):
                # One that the sink keeps no more is read on, and left: Spark takes a topic that goes for lost data.
                if starts[topic] != ends[topic] and topic in self.flow.spec.topics:
                    self._append(spark, topic, starts[topic], ends[topic], marks)
            self.lease.check()
            most = self.flow.reading.max_offsets
            self.turns.work(spark, loading=most is not None and _records(starts, ends) >= FULL * most)

    def _append(
        self,
        spark: SparkSession,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        marks: Mapping[str, str],
    ) -> None:
        (name,) = self.flow.spec.topics[topic]
        view = self.flow.spec.views[name]
        table = self.place.name(view)
        self.lease.check()
        self.place.check(spark, view)
        newest = current_snapshot(spark, table)
        if topic not in self._there:
            self._there[topic] = offsets_there(spark, table)
            self._begins[topic] = self.place.begins(spark, view)
        elif newest != self._newest[topic] and taken_back(spark, table, self._there[topic]):
            raise SinkUnavailable(
                f"the history of {view.table.qualified} was put back to an older state: table {table}",
                means="it lacks what was written to it since; nothing more was written",
                fix="nothing: it is read from the log again",
            )
        there, self._newest[topic] = self._there[topic], newest  # one that others have made is looked at once
        starts = {part: max(at, there.get(part, at)) for part, at in starts.items()}
        ends = {part: max(end, starts[part]) for part, end in ends.items()}
        if all(starts[part] >= end for part, end in ends.items()):
            return
        marks = {**marks, OFFSETS: offsets_text(ends)}
        columns = columns_there(spark, table)

        def write(held: Mapping[int, Place] | None) -> None:
            writer = with_former(self._rows(spark, topic, view, starts, ends, held), columns).writeTo(table)
            for mark, value in marks.items():
                writer = writer.option(f"snapshot-property.{mark}", value)
            self.lease.check()
            writer.append()

        try:
            write(None)
        except Exception as error:  # Spark wraps what Python says in many types
            if name_of(PlaceUnknown) not in whole(error):
                raise
            # Of a log that was compacted first, which is seldom: no other batch looks through its table for this.
            write(places_held(spark, table, list(ends)))
        self._there[topic], self._newest[topic] = dict(ends), current_snapshot(spark, table)
        self.turns.wrote(table)

    def _rows(
        self,
        spark: SparkSession,
        topic: str,
        view: View,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        held: Mapping[int, Place] | None,
    ) -> DataFrame:
        spec, reading = self.flow.spec, self.flow.reading
        one = replace(
            spec,
            views={view.name: view},
            topics={topic: spec.topics[topic]},
            tables={topic: spec.tables[topic]},
            fits={name: fit for name, fit in spec.fits.items() if name == topic},
        )
        # Only the partitions that have something: each is a task.
        moved = [part for part, end in ends.items() if starts[part] != end]
        records = read_slice(
            spark,
            bootstrap=reading.bootstrap,
            client=reading.client,
            starts={topic: {part: starts[part] for part in moved}},
            ends={topic: {part: ends[part] for part in moved}},
            registry=spec.registry,
        )
        known = {part: at for part, at in starts.items() if at >= 0}
        decode = partial(history_rows, one.pack(), self.place.source, known, self._begins.get(topic, 0), held)
        return map_in_arrow(records, decode, history_ddl(view))


def slice_of(checkpoint: Path, batch_id: int) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """From where to where a batch reads each topic: (starts, ends), topic -> partition -> offset."""
    ends = batch_offsets(checkpoint, batch_id)
    before: Offsets = batch_offsets(checkpoint, batch_id - 1) if batch_id > 0 else {}
    starts = {
        topic: {part: before.get(topic, {}).get(part, EARLIEST if end else end) for part, end in parts.items()}
        for topic, parts in ends.items()
    }
    return starts, ends


def _records(starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]) -> int:
    """How many records a batch has at the most."""
    return sum(end - max(starts[topic][part], 0) for topic, parts in ends.items() for part, end in parts.items())


def places_held(spark: SparkSession, table: str, parts: Collection[int]) -> dict[int, Place]:
    """How far what a table of history holds has come: partition -> behind all of its rows. Of a delete that was found
    late the transactions tell that, and the position does not: each is looked at by itself."""
    greatest = [F.max(column) for column in (POSITION, AFTER)]
    rows = spark.table(table).where(F.col(PARTITION).isin(list(parts))).groupBy(PARTITION)
    found = rows.agg(*greatest, F.max(F.unix_micros(TIME))).collect()
    return {part: Place(position, after, at or 0) for part, position, after, at in found}


def with_former(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Rows with a null for each column that the source has no more, in the table's order."""
    return rows.select(
        *(
            F.col(quoted(name)) if name in rows.columns else F.lit(None).cast(kind).alias(name)
            for name, kind in columns.items()
        )
    )


def start_history(
    spark: SparkSession, flow: Flow, place: HistoryPlace, lease: Lease, kept: Container[str], policy: Policy
) -> StreamingQuery:
    """Start a sink's history.

    Args:
        spark: the session.
        flow: its flow; ``reading.tombstone_seconds`` is how long the log keeps every event.
        place: where the tables are.
        lease: of the history's folder.
        kept: the tables (``schema.table``) whose history the sink keeps; those of the flow that are not in it were
            kept once.
        policy: of the tables' upkeep.

    Raises:
        SinkRefused: a table is not ours to write to, or one that was written is gone (terminal).
        LogTruncated: the log begins after its place (terminal).
    """
    lease.check()
    _put_aside(spark, flow, place)
    read, flow = flow.spec.topics, replace(flow, spec=still_written(spark, flow, place, kept))
    read_again(spark, flow, place)
    for view in flow.spec.views.values():
        refuse_unwanted()
        place.make(spark, view, new=flow.is_new)
        if gone := shorten(spark, place.name(view), policy, time.time()):
            _log.info("history of sink %s: %d snapshots of %s expired", flow.spec.sink, gone, view.table.qualified)
    read_lost(spark, flow, place)
    note_gap(spark, flow, place)
    _, committed = committed_offsets(flow.checkpoint)
    topics = {**dict.fromkeys((*committed, *read), ()), **flow.spec.topics}
    records = changelog(spark, replace(flow, spec=replace(flow.spec, topics=topics)))
    writer = records.writeStream.queryName(flow.title)
    turns = Turns(Upkeep(policy, flow.folder.parent))
    writer = writer.foreachBatch(brief(Historian(place, flow, lease, turns)))
    return begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow)


def still_written(spark: SparkSession, flow: Flow, place: HistoryPlace, kept: Container[str]) -> FlowSpec:
    """What a flow is to write, its tables looked for; arguments as ``start_history``.

    A table that somebody has dropped is not made again: what was in it is in the log no more. Of one that the sink
    keeps no more nobody asks for cuts: nothing is written of it then, and its topic is read on.

    Raises:
        SinkRefused: a table is gone that the sink keeps (terminal).
    """
    spec, begun = flow.spec, begun_topics(flow.folder)
    if flow.is_new:  # the log is read from its beginning
        return spec
    left = set[str]()
    for topic, (name,) in spec.topics.items():
        view = spec.views[name]
        if (topic in begun or name not in kept) and not place.there(spark, view):
            if name in kept:
                place.refuse_gone(view)
            left.add(topic)
    if begun & left:  # captured again, it begins anew
        _write_begun(flow, begun - left)
    return without(spec, left)


def read_again(spark: SparkSession, flow: Flow, place: HistoryPlace) -> None:
    """Read those topics from their beginning whose tables are about to be made.

    The history of a table that the sink did not keep may have been dropped, and its topic was read on all the time:
    from there on alone, it would lack every row that has not changed since, and no cut be refused. One that begins anew
    because of its key's type leaves out what is older than that, also then (rows.py), and needs all that came since.

    Args:
        spark: the session.
        flow: with the topics that it is to write.
        place: where the tables are.
    """
    if flow.is_new:
        return
    _, committed = committed_offsets(flow.checkpoint)
    views = {topic: flow.spec.views[name] for topic, (name,) in flow.spec.topics.items() if topic in committed}
    unnoted = views.keys() - begun_topics(flow.folder)
    anew = [topic for topic in unnoted if not place.there(spark, views[topic])]
    if anew:
        forget_applied(flow.folder)  # first: done again after a kill, it finds the topics in the checkpoint alone
        forget_topics(flow.checkpoint, anew)
        for topic in sorted(anew):
            table = views[topic].table.qualified
            _log.warning("history of sink %s: that of %s begins anew with what the log has", flow.spec.sink, table)


def without(spec: FlowSpec, topics: Collection[str]) -> FlowSpec:
    """A flow's work without that of some of its topics. Pure."""
    gone = {name for topic in topics for name in spec.topics[topic]}
    return replace(
        spec,
        views={name: view for name, view in spec.views.items() if name not in gone},
        topics={topic: names for topic, names in spec.topics.items() if topic not in topics},
        tables={topic: table for topic, table in spec.tables.items() if topic not in topics},
        fits={topic: fit for topic, fit in spec.fits.items() if topic not in topics},
    )


def _put_aside(spark: SparkSession, flow: Flow, place: HistoryPlace) -> None:
    """Put histories aside whose key has got another type, as those are whose key is of other columns."""
    for topic, (name,) in flow.spec.topics.items():
        view = flow.spec.views[name]
        if retyped := place.retyped(spark, view):
            _write_begun(flow, begun_topics(flow.folder) - {topic})  # first: it is begun again
            aside = place.put_aside(spark, view)
            what = f"the key of {view.table.qualified} has another type ({', '.join(retyped)})"
            said = f"{what}, so its history begins anew; what was is in {place.namespace}.{aside}"
            _log.warning("history of sink %s: %s", flow.spec.sink, said)


def note_gap(spark: SparkSession, flow: Flow, place: HistoryPlace) -> None:
    """Write down what compaction may have taken before it was read: what is older than the log keeps every event.

    Raises:
        LogTruncated: the log begins after its place: records were removed, and not only superseded ones; or it ends
            before it (terminal).
        KafkaUnavailable: no answer (transient).
    """
    batch, committed = committed_offsets(flow.checkpoint)
    kept, now = flow.reading.tombstone_seconds, time.time()
    log = LogEnds(flow.reading.bootstrap, flow.reading.client)
    try:
        _, ends = whole_log(flow, log, batch, committed)
        written = None if flow.is_new else log.written_since(ends, committed)
    finally:
        log.close()
    _note_begun(spark, flow, place, now - kept)
    if flow.is_new:
        return
    unread = read_unread(flow, batch)
    since = max(unread.since, min(written, now) if written is not None else 0.0)
    if now - since > kept:
        starts = {
            topic: {part: at for part, at in parts.items() if at < ends[topic][part]}
            for topic, parts in committed.items()
        }
        why = "the log may have been compacted before history had read it"
        # What it holds now is not read yet: until the next one is noted, compaction comes as far as this.
        until = now - kept / 2
        place.note_gap(spark, flow.spec.sink, (since, until), starts, why)
        _log.warning("history of sink %s has a gap: the log may have been compacted before it was read", flow.spec.sink)
        write_unread(flow, unread.known(batch, until))


def _note_begun(spark: SparkSession, flow: Flow, place: HistoryPlace, until: float) -> None:
    """Write down of topics that are read for the first time that what was superseded in them is not known."""
    known = begun_topics(flow.folder)
    new = sorted(flow.spec.topics.keys() - known)
    if new:
        why = f"history began, and the log had been compacted before: {', '.join(new)}"
        place.note_gap(spark, flow.spec.sink, (0.0, until), {topic: {0: 0} for topic in new}, why)
        _write_begun(flow, {*known, *new})


def begun_topics(folder: Path) -> set[str]:
    """The topics whose beginning was noted in a history's flow's folder.

    Raises:
        StateError: the note can't be read (terminal).
    """
    fix = "restore it from a copy; or remove it: then a gap is noted of every topic, up to where they are read now"
    return read_note(folder / BEGUN, lambda note: {str(topic) for topic in note["topics"]}, fix) or set()


def _write_begun(flow: Flow, topics: Collection[str]) -> None:
    write_atomic(flow.folder / BEGUN, json.dumps({"topics": sorted(topics)}))
