"""From Kafka records to entries: the decode stage of every flow.

An entry is one document to write or delete: (view, id, version, document, topic, partition, offset, ts). Within one
Arrow batch only the newest entry of a key survives: 200 changes to one row cost one write. Newest is by position, and
for equal positions (rows of one snapshot, a transaction's repeated updates) by the later offset.

A tombstone carries no position. It follows its delete event, which has done the work; but compaction may have removed
that event while this consumer was away, so a tombstone without one is a delete "at whatever version the sink holds"
(``UNVERSIONED``): dropping it would leave a ghost. It goes as an entry of its own behind what it follows, because the
sink may hold something newer than this batch knows: an earlier attempt may have read records that are compacted now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress, starmap
from typing import Any, NamedTuple

import pyarrow as pa

from cdc import types
from cdc.errors import DecodeError, UnavailableValue
from cdc.letters.deadletter import DeadLetter
from cdc.records.change import Change, Op
from cdc.records.debezium_json import Decoder
from cdc.stateful import StatefulView
from cdc.used import used_columns
from cdc.view import View
from sinks.contract import UNVERSIONED
from spark.reading.letters import record_letter
from spark.reading.record import records_of
from spark.reading.spec import FlowSpec

# In the place of a view's name: no entry but a tally of what its batch was made of, ``version`` letters (sent already)
# and ``offset`` records. So both are known behind Spark SQL, where only entries arrive.
TALLY = ""

# A delete's own tombstone has the next offset; a marker of the connector's transaction may lie between.
OWN_TOMBSTONE = 2


class Entry(NamedTuple):
    """One document on its way to a sink; ``document`` None is a delete; ``row`` serves Spark SQL fields."""

    view: str
    id: str
    version: int
    document: bytes | None
    topic: str
    partition: int
    offset: int
    ts_ms: int
    row: tuple[Any, ...] | None = None


# Columns of an entry between the halves, in the order of ``Entry``.
OWN = Entry._fields[:8]


class Tally(NamedTuple):
    """What a batch was made of: records, and letters of them that have been sent."""

    records: int
    sent: int


def entries_in(batch: pa.RecordBatch) -> tuple[Iterator[tuple[int, Entry]], Tally]:
    """The entries of an Arrow batch, each with its row there, and what its tallies say.

    Args:
        batch: with the columns of ``OWN`` at least.
    """
    columns = {name: batch.column(name).to_pylist() for name in OWN}
    there = [view != TALLY for view in columns["view"]]
    tallies = [at for at, is_entry in enumerate(there) if not is_entry]
    records, sent = (sum(columns[name][at] for at in tallies) for name in ("offset", "version"))
    entries = enumerate(starmap(Entry, zip(*columns.values(), strict=True)))
    return compress(entries, there), Tally(records, sent)


@dataclass
class Decoded:
    """What one Arrow batch of records gave.

    Attributes:
        entries: to be written.
        letters: to be sent.
        records: how many there were.
        sent: letters that have been sent already.
    """

    entries: list[Entry]
    letters: list[DeadLetter]
    records: int
    sent: int = 0

    def tally(self) -> Entry:
        """Records and letters as an entry; see TALLY."""
        return Entry(TALLY, "", len(self.letters) + self.sent, None, "", -1, self.records, 0)


class EntryDecoder:
    """Turns batches of Kafka records into entries for one flow; one a task.

    Args:
        spec: the flow's work.
        typed: also give each entry its view's typed row, which Spark SQL expressions and the warehouse read.
    """

    def __init__(self, spec: FlowSpec, *, typed: bool = False) -> None:
        self.spec, self.typed = spec, typed
        decoders = spec.decoders()
        self.routes: dict[str, tuple[Decoder, list[View]]] = {
            topic: (decoders[topic], [spec.views[name] for name in names]) for topic, names in spec.topics.items()
        }
        self._used = {name: used_columns(view, view.table.qualified) for name, view in spec.views.items()}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode records (key, value, topic, partition, offset) into the newest entry of each key, and behind it the
        delete without a version that a tombstone may mean."""
        newest: dict[tuple[str, str], Entry] = {}
        ended: dict[tuple[str, str], Entry] = {}
        letters: list[DeadLetter] = []
        lacking: dict[tuple[str, bytes], DeadLetter] = {}
        for key, value, topic, partition, offset in records_of(batch):
            decoder, views = self.routes[topic]
            at = (topic, partition, offset)
            try:
                change = decoder.decode(key, value, topic, partition, offset)
            except DecodeError as error:
                letters.append(self._letter(None, decoder, key, error, value, at))
                continue
            for view in views:
                raw = (view.name, key or b"")  # an event lacks nothing: nobody waits for a newer one of its key
                try:
                    entry = self._entry(view, change)
                except UnavailableValue as error:
                    # The re-selection finds no row when it has been deleted or moved since: its newer event follows.
                    lacking[raw] = self._letter(view, decoder, key, error, value, at)
                    continue
                except DecodeError as error:
                    if not decoder.superseded(change):
                        decoder.doubt(change, error)
                        letters.append(self._letter(view, decoder, key, error, value, at))
                    continue
                lacking.pop(raw, None)
                slot = (entry.view, entry.id)
                known, tombstone = newest.get(slot), change.op is Op.TOMBSTONE
                newest[slot] = newer(known, entry, tombstone=tombstone)
                if tombstone and known is not None and not is_own(known, entry):
                    ended[slot] = entry._replace(version=UNVERSIONED, document=None)
                elif newest[slot] is entry:
                    ended.pop(slot, None)
        return Decoded([*newest.values(), *ended.values()], [*letters, *lacking.values()], batch.num_rows)

    def _entry(self, view: View, change: Change) -> Entry:
        change = self._needed(view, change)
        identity, document = view.render(change)
        row = None
        if self.typed:
            row = key_row(view, change) if document is None else self.typed_row(view, change)
        at = (change.topic, change.partition, change.offset, change.ts_ms)
        return Entry(view.name, identity, change.position, document, *at, row)

    def typed_row(self, view: View, change: Change) -> tuple[Any, ...]:
        """See ``View.typed_row``; of what the view uses, and nothing else."""
        return view.typed_row(self._needed(view, change), self._used[view.name])

    def _needed(self, view: View, change: Change) -> Change:
        """A change that lacks no value but those that the view needs: it goes on as if the others were not there."""
        if not change.unavailable:
            return change
        used = self._used[view.name]
        return change._replace(unavailable=tuple(name for name in change.unavailable if name in used))

    def _letter(
        self,
        view: View | None,
        decoder: Decoder,
        key: bytes | None,
        error: DecodeError,
        raw: bytes | None,
        at: tuple[str, int, int],
    ) -> DeadLetter:
        """Of a document, if it is known which; else of a row of the table. An event has no document of its own: it is a
        row that a view of events did not take."""
        rows = None if isinstance(view, StatefulView) else view
        identity = None if rows is None else _document_of(rows, decoder, key, raw, at)
        name = "" if view is None else view.name
        named = decoder.letter_key(key, raw) if identity is None else identity
        return record_letter(self.spec, name, named, decoder, error, raw, at, of_row=identity is None)


def _document_of(
    view: View, decoder: Decoder, key: bytes | None, raw: bytes | None, at: tuple[str, int, int]
) -> str | None:
    """The id of the document that a record names; None if it names none."""
    try:
        return view.document_id(decoder.named(key, raw, *at))
    except DecodeError:
        return None


def key_row(view: View, change: Change) -> tuple[Any, ...]:
    """A typed row of which only the key is known: unless replica identity is FULL, a before image is made up."""
    values: list[Any] = []
    for column in view.table.columns:
        value = change.key.get(column.name)
        convert = types.arrow_converter(column) if value is not None else None
        values.append(value if convert is None else convert(value))
    return tuple(values)


def newer(known: Entry | None, entry: Entry, *, tombstone: bool) -> Entry:
    """The entry that stands after ``entry`` follows ``known`` in the same partition."""
    if tombstone:
        if known is None:
            return entry._replace(version=UNVERSIONED, document=None)
        return known if known.document is None else entry._replace(version=known.version, document=None)
    if known is None or (known.version, known.offset) <= (entry.version, entry.offset):
        return entry
    return known


def is_own(known: Entry, tombstone: Entry) -> bool:
    """Whether a tombstone belongs to the delete before it, and so adds nothing."""
    return known.document is None and tombstone.offset - known.offset <= OWN_TOMBSTONE


def decode_batches(spec: FlowSpec, batches: Iterator[pa.RecordBatch], *, typed: bool = False) -> Iterator[Decoded]:
    """Decode a task's record batches one after the other: memory is bounded by one Arrow batch."""
    decoder = EntryDecoder(spec, typed=typed)
    for batch in batches:
        if batch.num_rows:
            yield decoder.decode(batch)
