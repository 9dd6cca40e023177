"""The warehouse: an Iceberg table a view, holding its current state, changed by one MERGE a batch.

Exactly once: ``foreachBatch`` may run a batch again after a crash, so each commit carries the query's id and the
batch's number and offsets in its snapshot summary, and a batch that finds itself there does nothing. All three count:
a checkpoint that was put back from an older copy gives its next batches numbers that the table knows, of other records.
A batch may be two commits, of which only the second says that it is the whole; one that finds less does the rest.
Rows also carry the position they came from, and an older one never replaces a newer one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.join.expressions import quoted
from cdc.journal import about
from cdc.log import letters as deadletters
from cdc.view import View
from sinks.contract import UNVERSIONED
from sinks.iceberg.rows import VERSION_COLUMN
from spark.arrow import map_in_arrow
from spark.disk.checkpoint import batch_offsets
from spark.disk.lease import Lease
from spark.flow import Flow, begin, changelog
from spark.pulse import GROUP, MERGES, MERGING
from spark.reading.computed import FAILED, FIELD, WHERE
from spark.reading.entries import OWN, OWN_TOMBSTONE, TALLY, Entry
from spark.reading.expressions import PREFIX, entry_schema, without_tallies
from spark.reading.native import ODD, NativeReader, odd_ones
from spark.reading.native_raw import KEY
from spark.reading.source import turn_done
from spark.reading.spec import FlowSpec
from spark.wanted import refuse_unwanted
from spark.warehouse.brief import brief
from spark.warehouse.commits import History
from spark.warehouse.counted import KEPT_COUNTS, CountedQuery, Counts, told
from spark.warehouse.keyless import computed_with_keys, keyed_entries, why_failed
from spark.warehouse.keys import float_keys, key_names, same_key
from spark.warehouse.large_merge import (
    CHANGES,
    LARGE_ROWS,
    SMALL_BYTES,
    SMALL_RECORDS,
    held,
    held_bytes,
    merge_new,
    merge_small,
)
from spark.warehouse.marks import BATCH, OFFSETS, QUERY, READER, WHOLE, offsets_text
from spark.warehouse.table import TablePlace, chosen_columns
from spark.warehouse.upkeep.upkeep import Upkeep, insisting, policy_of
from spark.warehouse.whose import append_rows
from spark.write import letter_of

# Of rows on their way: that there must be none; the entry that they came from; why they can't be computed.
GONE, ENTRY, LETTER = "_hw_gone", "_hw_entry", "_hw_letter"
# The session's setting by whose name the summary of each commit says a thing.
SAID = "spark.sql.iceberg.snapshot-property."
# A batch of this share of what one may hold was cut off: more is waiting.
FULL = 0.9


def table_rows(entries: DataFrame, view: View, *more: Column) -> DataFrame:
    """Entries with their typed rows as the table has them; ``more`` columns, ``GONE`` and ``LETTER`` come last.

    Args:
        entries: of ``with_expressions``.
        view: the view.
        more: other columns over the entries.

    Returns:
        rows; ``GONE`` says that there must be none, ``LETTER`` why if an expression failed.
    """
    there = F.col(PREFIX + "document").isNotNull()
    if not view.needs_spark:
        return entries.select(*chosen_columns(view), *more, (~there).alias(GONE))
    gone = ~there | F.col(FAILED).isNotNull()
    if view.where:
        gone = gone | ~F.coalesce(F.col(WHERE), F.lit(False))
    fields = [F.col(quoted(FIELD + name)).alias(name) for name in view.fields]
    found = [*chosen_columns(view), *fields, *more, gone.alias(GONE), F.col(FAILED).alias(LETTER)]
    return entries.select(*found)


def with_expressions(entries: DataFrame, view: View) -> DataFrame:
    """Entries with their typed rows, and what Spark SQL makes of them, if the view has any."""
    return computed_with_keys(entries, view) if view.needs_spark else entries


def standing(entries: DataFrame) -> DataFrame:
    """The one entry of each key that stands, over all Arrow batches that a micro-batch was cut into.

    That is the newest version, unless a delete without a version lies behind it in the log.
    """
    version, offset, row = F.col(PREFIX + "version"), F.col(PREFIX + "offset"), F.struct("*")
    plain = version == UNVERSIONED
    newest = F.max_by(row, F.when(~plain, F.struct(version, offset))).alias("newest")
    ended = F.max_by(row, F.when(plain, offset)).alias("ended")
    both = without_tallies(entries).groupBy(PREFIX + "id").agg(newest, ended)
    # A delete's own tombstone adds nothing to it, and knows no version.
    own = F.expr(f"newest.{PREFIX}document IS NULL AND ended.{PREFIX}offset - newest.{PREFIX}offset <= {OWN_TOMBSTONE}")
    # Offsets of two partitions can't be compared: then the one whose position is known stands.
    behind = F.expr(
        f"ended.{PREFIX}partition = newest.{PREFIX}partition AND ended.{PREFIX}offset >= newest.{PREFIX}offset"
    )
    gone = F.col("ended").isNotNull() & (F.col("newest").isNull() | (behind & ~own))
    return both.select(F.when(gone, F.col("ended")).otherwise(F.col("newest")).alias("r")).select("r.*")


class Merger:
    """Applies one view's batches to its table; the function of ``foreachBatch``.

    Args:
        place: finds the table, whose name changes with a promotion, and whose property names the holder of the lease.
        spec: the flow's work: one view.
        checkpoint: the flow's checkpoint, whose id and offsets go into the snapshot summary.
        lease, upkeep: of the generation.
        most: records that a batch holds at the most; None for any number.

    Attributes:
        counts: batch -> what was counted of it, of the newest ``KEPT_COUNTS``.
    """

    def __init__(
        self,
        place: TablePlace,
        spec: FlowSpec,
        checkpoint: Path,
        lease: Lease,
        upkeep: Upkeep,
        most: int | None = None,
    ) -> None:
        self.view = spec.view
        self.about = {"sink": spec.sink, "generation": spec.generation, "flow": self.view.name}
        self.place, self.spec, self.checkpoint, self.lease, self.upkeep = place, spec, checkpoint, lease, upkeep
        self.table, self._small, self._most = "", False, most
        self.counts: dict[int, Counts] = {}
        self._reader, self._packed = NativeReader.of(spec), spec.pack()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Apply a batch once.

        Args:
            batch: of ``spark.reading.record``.
            batch_id: its number.

        Raises:
            Fenced: another process has taken the generation over (terminal).
        """
        query_id = json.loads((self.checkpoint / "metadata").read_text())["id"]
        spark = batch.sparkSession
        group = spark.sparkContext.getLocalProperty(GROUP) or query_id
        try:
            with about(**self.about, batch=batch_id), MERGES.turn(group):
                self._marked(batch, batch_id, query_id)
        finally:
            turn_done(spark, MERGING, group)

    def _marked(self, batch: DataFrame, batch_id: int, query_id: str) -> None:
        """Apply it with its marks, and keep the table in order."""
        spark = batch.sparkSession
        marks = {
            QUERY: query_id,
            BATCH: str(batch_id),
            OFFSETS: offsets_text(batch_offsets(self.checkpoint, batch_id)),
        }
        # Session settings, because MERGE takes no options of its own; this session belongs to this query alone.
        for name, value in marks.items():
            spark.conf.set(SAID + name, value)
        records = self._records(batch_id)
        self._small = records <= SMALL_RECORDS
        insisting(lambda: self._once(batch, batch_id, marks))
        self.upkeep.after(spark, self.table, loading=self._most is not None and records >= FULL * self._most)

    def _once(self, batch: DataFrame, batch_id: int, marks: Mapping[str, str]) -> None:
        spark = batch.sparkSession
        self.lease.check()
        self.table = self.place.claimed_table(spark, self.table)
        history = History(spark, self.table)
        counts = self._apply(batch, history, marks)
        if counts is None:
            return
        self.counts[batch_id] = counts
        self.counts.pop(batch_id - KEPT_COUNTS, None)

    def _records(self, batch_id: int) -> int:
        """How many records a batch has at the most; of the first one nobody knows where it begins."""
        if not batch_id:
            return SMALL_RECORDS + 1
        try:
            before, ends = (batch_offsets(self.checkpoint, number) for number in (batch_id - 1, batch_id))
        except OSError:  # somebody has tidied the checkpoint up
            return SMALL_RECORDS + 1
        return sum(
            end - before.get(topic, {}).get(part, 0) for topic, parts in ends.items() for part, end in parts.items()
        )

    def _apply(self, batch: DataFrame, history: History, marks: Mapping[str, str]) -> Counts | None:
        """Plain records by Spark's own functions, and what is odd by the codec; None if nothing was left to do.

        The flow may end before the odd ones have followed, and go on by another table: what was odd then may be plain
        now. So what is there by another reader goes to the codec as a whole: versions make a repeat harmless.
        """
        begun, reader = history.applied(marks), self._reader
        if begun is not None and begun.whole:
            return None
        mine = None if reader is None else reader.fingerprint(batch)
        if reader is None or (begun is not None and (mine is None or mine != begun.reader)):
            return self._by_codec(batch, empty=history.is_empty)
        if begun is not None:  # what was counted then, the process may have ended before it was told
            found = reader.read(batch).agg(*_counted()).collect()[0].asDict()
        else:
            found = self._natively(batch, reader, mine, empty=history.is_empty)
        counts = Counts.of(found)
        return counts if found.get("odd") == 0 else counts.with_odd(self._by_codec(reader.of_odd_keys(batch, found)))

    def _natively(self, batch: DataFrame, reader: NativeReader, mine: str | None, *, empty: bool) -> dict[str, Any]:
        """Apply the plain records; what was counted, nothing if nobody has. ``mine``: the reader's fingerprint."""
        seen = Observation()
        observed = reader.read(batch).observe(seen, *_counted())
        self._write(self._source(observed.where(~F.col(ODD)).drop(KEY, ODD)), empty=empty, whole=False, reader=mine)
        return told(seen)

    def _by_codec(self, records: DataFrame, *, empty: bool = False) -> Counts:
        view = self.view
        typed = map_in_arrow(records, partial(keyed_entries, self._packed), entry_schema(view))
        tally = F.col(PREFIX + "view") == TALLY
        sent = F.when(tally, F.col(PREFIX + "version"))
        counted = (F.sum(F.when(tally, F.col(PREFIX + "offset"))).alias("records"), *_both(~tally))
        if not view.needs_spark:
            seen = Observation()
            typed = typed.observe(seen, F.sum(sent).alias("rejected"), *counted)
            self._write(self._source(typed), empty=empty)
            return Counts.of(told(seen))
        # Letters are looked for before the rows are written, and the Python decoding still runs once.
        typed = with_expressions(typed, view).persist()
        try:
            sent = sent.otherwise(F.col(FAILED).isNotNull().cast("bigint"))
            found = typed.agg(F.sum(sent).alias("rejected"), *counted).collect()[0].asDict()
            source = self._source(typed)
            self._send_letters(source)
            self._write(source, empty=empty)
            return Counts.of(found)
        finally:
            typed.unpersist()

    def _source(self, entries: DataFrame) -> DataFrame:
        """The newest row of each key, as ``table_rows`` gives them."""
        more = [F.col(PREFIX + "version").alias(VERSION_COLUMN)]
        if self.view.needs_spark:
            more.append(F.struct(*(F.col(PREFIX + name).alias(name) for name in OWN)).alias(ENTRY))
        return table_rows(standing(entries), self.view, *more)

    def _write(self, source: DataFrame, *, empty: bool, whole: bool = True, reader: str | None = None) -> None:
        """One commit of rows: an append where nothing was ever committed, else a MERGE, which reads its source once."""
        conf, rows = source.sparkSession.conf, source.drop(ENTRY, LETTER)
        for name, said in ((WHOLE, "true" if whole else None), (READER, reader)):
            conf.unset(SAID + name) if said is None else conf.set(SAID + name, said)
        if empty:
            append_rows(rows.where(f"NOT {GONE}").drop(GONE), self.table)
            return
        merge_changes(self.table, rows, self.view, few=self._small)

    def _send_letters(self, source: DataFrame) -> None:
        """Rows that can't be computed, or kept, become dead letters before their batch is committed."""
        letters = []
        for row in source.where(F.col(LETTER).isNotNull()).select(ENTRY, LETTER).collect():
            entry, failed = Entry(*(row[ENTRY][name] for name in OWN)), row[LETTER]
            letters.append(letter_of(self.spec, entry, why_failed(self.view, entry.id, failed)))
        deadletters.send(self.spec.dead_letters, letters)


def _counted() -> tuple[Column, ...]:
    """What is counted of what a ``NativeReader`` has read."""
    return F.count("*").alias("records"), *odd_ones(), *_both()


def _both(entries: Column | None = None) -> tuple[Column, ...]:
    """What is counted of entries, whoever has made them."""
    version, document = F.col(PREFIX + "version"), F.col(PREFIX + "document")
    ends = document.isNull() & (version > UNVERSIONED)  # its tombstone is none besides
    return (
        F.count(document).alias("written"),
        F.count(F.when(ends if entries is None else entries & ends, 1)).alias("deleted"),
        F.max(version if entries is None else F.when(entries, version)).alias("position"),
        F.max(PREFIX + "ts_ms").alias("ts_ms"),
    )


def merge_changes(table: str, rows: DataFrame, view: View, *, few: bool, branched: bool = True) -> None:
    """Merge changes into a table that has rows; readers see all of them at once.

    Args:
        table: its name, as it is loaded.
        rows: one a key; ``GONE`` is their last column.
        view: which the table is of.
        few: whether they are ``SMALL_RECORDS`` at the most.
        branched: whether a large table may be changed by way of a branch: what is cut then leaves snapshots that nobody
            has seen.

    Raises:
        Exception: Spark's; ``is_conflict`` tells of one that is transient.
    """
    keys, floats, columns = key_names(view), float_keys(view), rows.columns[:-1]
    # The ways into a large table join by keys, to which 0.0 and -0.0 are one: with floats it is changed as a small one.
    if not branched or floats or History(rows.sparkSession, table).rows < LARGE_ROWS:
        return _merge(table, rows, keys, columns, floats)
    change = partial(merge_statement, keys=keys, columns=columns, new=False)
    with held(rows) as kept:
        if few and held_bytes(kept) <= SMALL_BYTES:
            merge_small(table, kept, keys, change, GONE)
        elif not merge_new(table, kept, keys, change, GONE):
            _merge(table, kept, keys, columns)


def _merge(
    table: str, rows: DataFrame, keys: Sequence[str], columns: Sequence[str], floats: Collection[str] = ()
) -> None:
    rows.createOrReplaceTempView(CHANGES)
    rows.sparkSession.sql(merge_statement(table, keys, columns, floats=floats))


def set_and_insert(columns: Sequence[str]) -> tuple[str, str]:
    """What a MERGE writes of a source called ``s``: the assignments of its UPDATE of ``t``, and its INSERT."""
    sets = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    listed, values = ", ".join(map(quoted, columns)), ", ".join(f"s.{quoted(name)}" for name in columns)
    return sets, f"INSERT ({listed}) VALUES ({values})"  # noqa: S608 (names are quoted, no values)


def merge_statement(
    table: str, keys: Sequence[str], columns: Sequence[str], *, new: bool = True, floats: Collection[str] = ()
) -> str:
    """MERGE of ``CHANGES`` into ``table``: newer rows replace, gone rows leave, and an older change does nothing.

    Args:
        table: its name.
        keys: names of the key's columns.
        columns: the table's.
        new: whether rows that are not there are inserted.
        floats: those of the keys that are floats.
    """
    newer = f"s.{VERSION_COLUMN} >= t.{VERSION_COLUMN}"
    sets, insert = set_and_insert(columns)
    return (
        f"MERGE INTO {table} t USING {CHANGES} s ON {same_key(keys, floats)} "
        f"WHEN MATCHED AND s.{GONE} AND ({newer} OR s.{VERSION_COLUMN} = {UNVERSIONED}) THEN DELETE "
        f"WHEN MATCHED AND NOT s.{GONE} AND {newer} THEN UPDATE SET {sets} "
        + (f"WHEN NOT MATCHED AND NOT s.{GONE} THEN {insert}" if new else "")
    )


def ready_place(spark: SparkSession, flow: Flow, sink: Any, catalog: str, lease: Lease, owner: str) -> TablePlace:
    """The table of a flow's one view, made if it is new, and claimed; arguments as ``start_warehouse``.

    Looked at first: to make it ready is to claim it and to drop the columns that the view lacks, and one that is
    refused may be somebody else's, or what readers see.

    Raises:
        StateError: it has gone, or it is filled already (terminal).
        SinkRefused: another generation's table stands in its place, or another one's (terminal).
    """
    view = flow.spec.view
    place = TablePlace(sink, catalog, view.name, flow.spec.generation, lease.token, owner)
    lease.check()
    there = place.there()
    if not flow.is_new and not there:
        flow.refuse_gone(view.name)
    if flow.is_new and there and place.filled(spark):
        flow.refuse_filled(view.name)
    refuse_unwanted()
    place.make(spark, view)
    return place


def start_warehouse(spark: SparkSession, flow: Flow, sink: Any, catalog: str, lease: Lease, owner: str) -> CountedQuery:
    """Start a flow that keeps one view's table.

    Args:
        spark: the session.
        flow: its flow.
        sink: the sink's part of the pipeline file.
        catalog: the catalogue's name inside Spark.
        lease: of the generation.
        owner: ``<pipeline>/<sink>``, whose its table is.
    """
    place = ready_place(spark, flow, sink, catalog, lease, owner)
    upkeep = Upkeep(policy_of(sink), flow.folder.parent)
    merger = Merger(place, flow.spec, flow.checkpoint, lease, upkeep, flow.reading.max_offsets)
    writer = changelog(spark, flow, turns=MERGING).writeStream.queryName(flow.title).foreachBatch(brief(merger))
    return CountedQuery(begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow), merger.counts)
