"""What the log has besides a table: read from where the table ends, decoded as `run` does, the newest of each key."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cdc.catalogue import Catalogue
from cdc.errors import QueryRefused, QueryTooLarge, TooLate
from cdc.join.view import JoinedView
from cdc.log.slices import Slice, SliceReader
from cdc.pipeline import Pipeline
from cdc.resolve.views import topics_of
from cdc.stateful import StatefulView
from cdc.table_key import TableKey
from cdc.view import View
from operations.query.complete import written_after
from operations.query.tables import Held
from operations.query.uniting import tail_table
from operations.records.standing import Standing
from operations.run.fits import fits_of
from operations.state.frozen import Frozen
from spark.reading.entries import Entry, EntryDecoder
from spark.reading.record import batch_of
from spark.reading.spec import FlowSpec

# Records that are decoded at once, and about how many bytes they may have together.
PIECE, PIECE_BYTES = 5_000, 8 << 20
# A record takes some 40 microseconds: this many take most of a minute, and some hundred bytes each.
MOST_RECORDS = 1_000_000
# Bytes of documents that are kept until all was read, one of each key, and beside each its row: a million of 1 MB would
# take the process with them. What stands is counted each time that so much more has come, so twice as much is seen.
MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Tail:
    """What was read.

    Attributes:
        rows: as ``tail_table`` makes them.
        records: how many records these are of.
        letters: those that no sink would take: what the table holds of their rows stands.
    """

    rows: pa.Table
    records: int
    letters: int


def refuse_unfit(held: Held, view: View) -> None:
    """Refuse what can't be made of records here.

    Raises:
        QueryRefused: its rows are made by Spark, or of several tables (terminal).
    """
    why = ""
    if isinstance(view, JoinedView):
        why = "is made of several tables"
    elif isinstance(view, StatefulView):
        why = f"is {view.made}"
    elif view.needs_spark:
        why = "has Spark SQL (fields or where)"
    if why:
        raise QueryRefused(
            f"{held.name.shown} can't be asked with what is newer than the table: the view {why}",
            means="its rows are computed by `headwater run`; without Spark they can't be computed for a query",
            fix="ask without --fresh, which answers from what was committed and says as of when that is",
        )


def spec_of(
    pipeline: Pipeline, sink: str, view: View, catalogue: Catalogue, frozen: Frozen, snapshot_lsn: int
) -> FlowSpec:
    """What decoding a view's topic needs.

    Args:
        pipeline: as the generation was defined.
        sink: the sink's name.
        view: of one table.
        catalogue: the source's tables as the generation knows them.
        frozen: those that it goes on with as they were.
        snapshot_lsn: position of the initial snapshot, in bytes.
    """
    tables = dict.fromkeys(topics_of(pipeline, view), catalogue.tables[view.table.qualified])
    views, reader, topics = {view.name: view}, pipeline.source.reader(), dict.fromkeys(tables, (view.name,))
    spec = FlowSpec(sink, views, topics, tables, {}, {}, snapshot_lsn=snapshot_lsn, registry=reader)
    spec = replace(spec, events=frozenset(view.topics))
    return replace(spec, fits=fits_of(spec, catalogue, frozen, values=catalogue.doubts))


def refuse_late(
    reader: SliceReader, held: Held, spec: FlowSpec, parts: Sequence[Slice], since: float | None, retention: float
) -> None:
    """Refuse a tail in which deletes may have been forgotten, as `run` refuses to read on from there: that what is left
    of it is young says nothing, compaction has taken the old records.

    Args:
        reader: of the log.
        held: the table.
        spec: of ``spec_of``.
        parts: of the log, that it lacks.
        since: none of them was written before this (epoch seconds); None where its flow does not say.
        retention: how long the log remembers deletes, in seconds.

    Raises:
        TooLate: (terminal).
    """
    # Of a table that nothing was applied to yet a tombstone that is gone leaves nothing behind.
    # Events are never deleted.
    if held.snapshot is None or spec.events or not parts:
        return
    oldest = time.time() - retention
    if (since is None or since < oldest) and any(written_after(reader, part) < oldest for part in parts):
        raise _too_late(held)


def read_tail(
    reader: SliceReader, spec: FlowSpec, held: Held, parts: Sequence[Slice], until: float, retention: float
) -> Tail:
    """Read and decode what a table lacks of its topic.

    Args:
        reader: of the log.
        spec: of ``spec_of``.
        held: the table.
        parts: of the log, that it lacks.
        until: when it must be over, in seconds of ``time.monotonic``.
        retention: how long the log remembers deletes, in seconds.

    Raises:
        QueryTooLarge: there is too much of it (terminal).
        TooLate: it begins before what the log remembers of deletes (terminal).
        LogTruncated: its beginning is gone (terminal).
        KafkaUnavailable, RegistryUnavailable: no answer (transient).
        ShapeUnknown: the table has another shape by now (transient).
    """
    view = spec.view
    decoder, standing, records, letters = EntryDecoder(spec, typed=True), Standing[Entry](lambda entry: entry), 0, 0
    key, taken = TableKey.of(view), 0
    oldest = time.time() * 1000 - retention * 1000
    for piece in _pieces(reader, parts, held, until):
        if held.snapshot is not None and piece[0][1] < oldest and not spec.events:
            raise _too_late(held)
        found = decoder.decode(batch_of([record for record, _ in piece]))
        unheld = {entry.id for entry in found.entries if key.unheld(entry.id) is not None}
        mine = [entry for entry in found.entries if entry.id not in unheld]
        standing.add(mine)
        taken += _bytes_of(mine)
        if taken > 2 * MOST_BYTES:
            taken = _bytes_of(standing.by_key().values())  # of a row that was changed often one document stands
            if taken > MOST_BYTES:
                raise _too_many_bytes(held, taken)
        lost = sum(entry.document is not None for entry in found.entries if entry.id in unheld)
        records, letters = records + found.records, letters + len(found.letters) + lost
    return Tail(tail_table(view, [*standing.by_key().values()], held.columns, held.table.properties), records, letters)


def _bytes_of(entries: Iterable[Entry]) -> int:
    return sum(len(entry.document or b"") for entry in entries)


Record = tuple[bytes | None, bytes | None, str, int, int]


def _pieces(
    reader: SliceReader, parts: Sequence[Slice], held: Held, until: float
) -> Iterator[list[tuple[Record, int]]]:
    """Records with their times (epoch milliseconds), some thousand at once, or fewer where they are large."""
    piece, size = list[tuple[Record, int]](), 0
    for count, message in enumerate(reader.read(list(parts)), start=1):
        place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
        piece.append(((message.key(), message.value(), *place), message.timestamp()[1]))
        size += len(message.value() or b"")
        if count > MOST_RECORDS or time.monotonic() > until:
            raise _too_large(held, parts, count)
        if len(piece) == PIECE or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _too_large(held: Held, parts: Sequence[Slice], count: int) -> QueryTooLarge:
    there = sum(one.end - (one.start or 0) for one in parts)
    return QueryTooLarge(
        f"the log has up to {there:,} records that {held.name.shown} lacks: too many to be read for a query"
        f" ({count:,} were read)",
        means="the table is far behind, or is being filled",
        fix="see that `headwater run` is at work (`headwater status`); meanwhile ask without --fresh, or with a larger"
        f" --timeout if these are fewer than {MOST_RECORDS:,}",
    )


def _too_many_bytes(held: Held, found: int) -> QueryTooLarge:
    return QueryTooLarge(
        f"the log has documents that {held.name.shown} lacks, too large together to be read for a query:"
        f" {found >> 20:,} MiB were read, and they may have {MOST_BYTES >> 20}",
        means="the table is far behind, or is being filled",
        fix="see that `headwater run` is at work (`headwater status`); meanwhile ask without --fresh",
    )


def _too_late(held: Held) -> TooLate:
    return TooLate(
        f"what {held.name.shown} lacks of the log may be older than what that remembers of deletes",
        means="rows that were deleted meanwhile would be shown",
        fix=f"`headwater rebuild FILE {held.name.sink} --auto`; without --fresh the table is read as it was committed",
    )
