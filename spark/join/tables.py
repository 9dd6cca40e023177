"""A joined view as a table of a warehouse: what tasks have made is committed by the driver, all of a batch at once.

Three kinds of jobs make documents: the stream's batches, a fill's slices, and what fan-outs have deferred. Each is made
and committed as a whole before the next one is made (``JoinedTable.commit``). A table does not remember what was
deleted; but so the commits of one key come in the order of its versions, and a document that was read before a delete
can't be put back after it. docs/decisions/views-as-tables.md says why that, and what a kill between two steps leaves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.join.columns import document_columns
from cdc.join.expressions import quoted
from cdc.join.view import JoinedView
from cdc.log import letters as deadletters
from sinks.iceberg.rows import VERSION_COLUMN
from sinks.rowstore.redis import RedisRowStore
from spark.arrow import map_in_arrow
from spark.disk.checkpoint import batch_offsets
from spark.disk.lease import Lease
from spark.flow import Flow
from spark.join.later import shard_numbers
from spark.join.plans import with_computed as with_child_expressions
from spark.join.stage import open_store, view_of
from spark.join.table_stage import COLUMNS, FRESH, KEY, fill_entries, live_entries, rows_schema, shard_entries
from spark.pulse import GROUP, MERGES
from spark.reading.computed import FAILED, FIELD, WHERE
from spark.reading.entries import OWN, TALLY, Entry
from spark.reading.expressions import PREFIX
from spark.warehouse.keyless import computed_with_keys, why_failed
from spark.warehouse.keys import key_names
from spark.warehouse.large_merge import SMALL_RECORDS
from spark.warehouse.marks import BATCH, OFFSETS, QUERY, offsets_text, same_offsets
from spark.warehouse.merge import GONE, LETTER, merge_changes
from spark.warehouse.table import TablePlace
from spark.warehouse.upkeep.plan import LATER
from spark.warehouse.upkeep.upkeep import Upkeep, insisting, policy_of
from spark.warehouse.whose import append_rows
from spark.write import letter_of

# Makes a flow's table; None for a flow that writes documents.
Open = Callable[[SparkSession, Flow], "JoinedTable"]


class JoinedTable:
    """One generation's table of a joined view. Has of a sink what starting and filling a flow asks for.

    Args:
        spark: the session.
        flow: of the view.
        sink: the sink's part of the pipeline file.
        catalog: the catalogue's name inside Spark.
        lease: of the generation.
        owner: ``<pipeline>/<sink>``, whose the table is.
    """

    def __init__(self, spark: SparkSession, flow: Flow, sink: Any, catalog: str, lease: Lease, owner: str) -> None:
        self._flow, self._view, self._lease = flow, view_of(flow.spec), lease
        self._place = TablePlace(sink, catalog, self._view.name, flow.spec.generation, lease.token, owner)
        self._store: RedisRowStore | None = None
        self._upkeep = Upkeep(policy_of(sink), flow.folder.parent)
        self._turn = threading.Lock()
        # What a commit says of itself are settings of its session: of one that nobody else has.
        self.session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())

    def follow(self, flow: Flow) -> None:
        """The flow as it has become: its version epoch is known."""
        self._flow = flow

    # -- as a sink ----------------------------------------------------------------------------------------------------

    def there(self, _target: str) -> bool:
        """See the contract of sinks."""
        return self._place.there()

    def setup(self) -> None:
        """Make the table ready, and claim it for the lease's token.

        Raises:
            SinkRefused: another generation's table stands in its place, or another one's (terminal).
        """
        self._lease.check()
        self._place.make(self.session, self._view)

    def scan(self, _target: str) -> Iterator[Row]:
        """A row, if there is any."""
        table = self._found()
        yield from self.session.table(table).limit(1).collect()

    def empty(self, _target: str) -> None:
        """Remove every row."""
        if self._place.there():
            self.session.sql(f"DELETE FROM {self._found()}")  # noqa: S608 (our own name, quoted)

    def close(self) -> None:
        """Give the row store's connections back."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _found(self) -> str:
        table = self._place.find()
        self._place.check(self.session, table)
        return table

    # -- what is committed --------------------------------------------------------------------------------------------

    def live(self, records: DataFrame) -> DataFrame:
        """The entries that come of records."""
        packed = self._flow.spec.pack()
        computed = with_child_expressions(records, self._flow.spec, packed)
        return self._made(map_in_arrow(computed, partial(live_entries, packed), rows_schema(self._view)))

    def batch(self, entries: DataFrame, batch_id: int) -> None:
        """Commit a batch of the stream: a function for ``foreachBatch``.

        Raises:
            Fenced: another process has taken the generation over (terminal).
        """
        checkpoint = self._flow.checkpoint
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        self.commit(entries, (query, batch_id, batch_offsets(checkpoint, batch_id)))

    def slice(self, records: DataFrame, how: tuple[str, bool, int], ends: Any) -> Row:
        """Commit a slice of a fill.

        Args:
            records: the root's.
            how: the fill's attempt, whether the root's rows come with these records, and the slice's number.
            ends: to where it has read.
        """
        stage = partial(fill_entries, *how, self._flow.spec.pack())
        entries = self._made(map_in_arrow(records, stage, rows_schema(self._view)))
        # Where the root's rows came before, a key that an earlier slice has made a document of looks new again.
        return self.commit(entries, (f"fill-{how[0]}", how[2], ends), once=True, fresh=how[1])

    def deferred(self, shards: list[int], number: int) -> None:
        """Commit what fan-outs have deferred; a number for each of these jobs."""
        stage = partial(shard_entries, self._flow.spec.pack())
        entries = map_in_arrow(shard_numbers(self.session, shards), stage, rows_schema(self._view))
        self.commit(self._made(entries), (f"{LATER}{self._lease.token}", number, {"shards": shards}))

    def commit(self, entries: DataFrame, said: tuple[str, int, Any], *, once: bool = False, fresh: bool = False) -> Row:
        """Make entries and commit them, while nobody else makes any for this table.

        A batch that is repeated is not passed over: its documents are made again, of the rows as they are then, under
        higher versions; of rows that were acted on none is made.

        Args:
            entries: of ``live`` and its like.
            said: what the commit says of itself; which job, which of its batches, what that has read.
            once: do not commit what a snapshot of the table says that it holds: then the versions are the same.
            fresh: what is said to be new is in no earlier commit, and can be appended.

        Returns:
            what was counted, under the names of ``spark.disk.batches.SUMMED``.
        """
        marks = {QUERY: said[0], BATCH: str(said[1]), OFFSETS: offsets_text(said[2])}
        with self._turn:
            # Once: making them writes to the row store, and a MERGE reads its source more than once.
            entries = entries.persist()
            try:
                counted = entries.agg(*(of.alias(name) for name, of in _counts(self._view).items())).collect()[0]
                if counted["entries"]:
                    append = fresh and not counted["known"]
                    with MERGES.turn(self.session.sparkContext.getLocalProperty(GROUP) or marks[QUERY]):
                        insisting(lambda: self._merge(entries, counted, marks, once=once, append=append))
                        self._upkeep.after(self.session, self._place.find())
                self._end(counted["attempts"])
            finally:
                entries.unpersist()
        return counted

    def _merge(self, entries: DataFrame, counted: Row, marks: Mapping[str, str], *, once: bool, append: bool) -> None:
        spark, view = entries.sparkSession, self._view
        self._lease.check()
        table = self._place.find()
        self._place.check(spark, table)
        if once and self._has(spark, table, marks):
            return
        for name, value in marks.items():
            spark.conf.set(f"spark.sql.iceberg.snapshot-property.{name}", value)
        own = F.struct(*(F.col(PREFIX + name).alias(name) for name in OWN)).alias(_ENTRY)
        kept = entries.where(F.col(PREFIX + "view") != TALLY)
        if counted["entries"] > counted["keys"]:
            kept = _newest(kept)
        rows = joined_rows(kept, view, F.col(PREFIX + "version").alias(VERSION_COLUMN), own)
        if counted["failed"]:
            self._send_letters(rows)
        rows = rows.drop(_ENTRY, LETTER)
        if append:
            append_rows(rows.where(f"NOT {GONE}").drop(GONE), table)
            return
        # Not of a fill: it looks through all snapshots for its own, and a branch leaves some that nobody has seen.
        merge_changes(table, rows, view, few=counted["entries"] <= SMALL_RECORDS, branched=not once)

    def _has(self, spark: SparkSession, table: str, marks: Mapping[str, str]) -> bool:
        summary = F.col("summary")
        own = spark.table(f"{table}.snapshots").where(summary[QUERY] == marks[QUERY])
        said = own.where(summary[BATCH] == marks[BATCH]).select(summary[OFFSETS]).collect()
        return any(same_offsets(offsets, marks[OFFSETS]) for (offsets,) in said)

    def _made(self, entries: DataFrame) -> DataFrame:
        """Entries with what Spark SQL makes of them, if the view has any."""
        return with_expressions(entries, self._view)

    def _send_letters(self, rows: DataFrame) -> None:
        """Documents that can't be computed become dead letters before their batch is committed."""
        letters = []
        for row in rows.where(F.col(LETTER).isNotNull()).select(_ENTRY, LETTER).collect():
            entry, failed = Entry(*(row[_ENTRY][name] for name in OWN)), row[LETTER]
            entry = entry._replace(partition=-1, offset=-1)
            letters.append(letter_of(self._flow.spec, entry, why_failed(self._view, entry.id, failed)))
        deadletters.send(self._flow.spec.dead_letters, letters)

    def _end(self, attempts: Sequence[str]) -> None:
        """What these attempts have written to the row store is pending no more."""
        if self._store is None:
            self._store = open_store(self._flow.spec)
        for attempt in attempts:
            self._store.end(int(attempt))


_ENTRY = "_hw_entry"


def _counts(view: JoinedView) -> dict[str, Column]:
    """What a commit has to know of its entries, and what of them is reported."""
    tally = F.col(PREFIX + "view") == TALLY
    there = F.col(PREFIX + "document").isNotNull()
    failed = F.count(FAILED) if view.needs_spark else F.sum(F.lit(0).cast("bigint"))
    known = ~tally & ((F.col(PREFIX + "partition") != FRESH) | ~there)
    nothing, one = F.lit(0).cast("bigint"), F.lit(1).cast("bigint")

    def total(condition: Column, value: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, value)), nothing)

    return {
        "records": total(tally, F.col(PREFIX + "offset")),
        "written": F.count(PREFIX + "document"),
        "deleted": total(~tally & ~there, one),
        "rejected": total(tally, F.col(PREFIX + "version")) + F.coalesce(failed, nothing),
        "position": F.coalesce(F.max(F.when(~tally, F.col(PREFIX + "version"))), nothing),
        "ts_ms": F.coalesce(F.max(PREFIX + "ts_ms"), nothing),
        "entries": total(~tally, one),
        "keys": F.count_distinct(F.when(~tally, F.col(PREFIX + "id"))),
        "known": total(known, one),
        "failed": F.coalesce(failed, nothing),
        "attempts": F.collect_set(F.when(tally, F.col(PREFIX + "id"))),
        **{name: F.max(nothing) for name in ("stale", "retries", "sink_us")},
    }


# Of these Spark's progress reports tell.
REPORTED = ("records", "written", "deleted", "rejected", "position", "ts_ms")


def observed(entries: DataFrame, view: JoinedView) -> DataFrame:
    """Entries whose totals come with Spark's progress reports, where ``spark.disk.status`` reads them."""
    counts = _counts(view)
    return entries.observe("applied", *(counts[name].alias(name) for name in REPORTED))


def _newest(entries: DataFrame) -> DataFrame:
    """The one entry of each key that stands."""
    order = F.struct(PREFIX + "version", PREFIX + "offset")
    return entries.groupBy(PREFIX + "id").agg(F.max_by(F.struct("*"), order).alias("r")).select("r.*")


def with_expressions(entries: DataFrame, view: JoinedView) -> DataFrame:
    """Entries with what Spark SQL makes of them, if the view has any."""
    if not view.needs_spark:
        return entries
    keys = {name: F.col(COLUMNS).getField(out) for name, out in zip(view.key, key_names(view), strict=True)}
    return computed_with_keys(entries, view, keys)


def joined_rows(entries: DataFrame, view: JoinedView, *more: Column) -> DataFrame:
    """Entries as the table has them; ``more`` columns, ``GONE`` and ``LETTER`` come last.

    Args:
        entries: of ``JoinedTable``, with what Spark SQL makes of them.
        view: the view.
        more: other columns over the entries.
    """
    kinds, at = dict(document_columns(view)), {name: place for place, name in enumerate(key_names(view))}
    columns, base64 = [], F.lit("base64")
    for name, kind in kinds.items():
        value = F.col(COLUMNS).getField(name)
        if name in at:  # of a deleted document only the key is known, as text
            text = F.get(KEY, at[name])
            value = F.coalesce(value, F.try_to_binary(text, base64) if kind == "binary" else text.try_cast(kind))
        columns.append(value.alias(name))
    gone = F.col(PREFIX + "document").isNull()
    letter = F.lit(None).cast("string")
    if view.needs_spark:
        letter = F.col(FAILED)
        gone = gone | letter.isNotNull()
        columns += [F.col(quoted(FIELD + name)).alias(name) for name in view.fields]
    if view.where:
        gone = gone | ~F.coalesce(F.col(WHERE), F.lit(False))
    return entries.select(*columns, *more, gone.alias(GONE), letter.alias(LETTER))
