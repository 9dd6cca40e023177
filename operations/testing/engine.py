"""Documents of one view from records, by the code that `run` has in its tasks: decode, render, join, Spark SQL, merge.

What is not of `run` is only where things are kept: the rows of joined views and the documents are in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from cdc.catalogue import Catalogue
from cdc.errors import UnavailableValue
from cdc.join.incoming import Incoming
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline
from cdc.resolve.views import resolve_view
from cdc.stateful import refuse_stateful
from cdc.view import View
from operations.run.flows import analysed_view, flow_spec
from operations.testing.records import Record
from sinks.contract import UNVERSIONED
from sinks.rowstore.contract import RowStore
from sinks.rowstore.memory.store import MemoryStore
from spark.join import child_expressions
from spark.join.engine import Joiner, Made
from spark.join.records import RecordReader
from spark.join.stage import entries_of
from spark.join.task import Task
from spark.reading.entries import Decoded, Entry, EntryDecoder
from spark.reading.expressions import compute, entry_batch, entry_schema
from spark.reading.record import batch_of
from spark.reading.spec import FlowSpec
from spark.write import NEW, from_arrow, letter_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Who asks for Spark waits for it: it is started when the first view with Spark SQL is tested.
Spark = Callable[[], "SparkSession"]
# The name under which dead letters are told; no sink of the file is meant.
SINK = "test"


class Tested:
    """One view at work on one test's records.

    Args:
        pipeline: the loaded file.
        view: as ``prepared`` gave it.
        spark: gives the session.

    Attributes:
        documents: id -> JSON of the documents that stand.
        letters: what could not be applied.
    """

    def __init__(self, pipeline: Pipeline, view: View, spark: Spark) -> None:
        self.view, self.spark = view, spark
        # Records are made here, as JSON, whatever `source.format` says.
        self.spec: FlowSpec = replace(flow_spec(pipeline, SINK, [view], {}), registry=None)
        self.documents: dict[str, bytes] = {}
        self.letters: list[DeadLetter] = []
        self._versions: dict[str, int] = {}
        self._tasks = 0
        self._made = self._joined() if isinstance(view, JoinedView) else self._plain()

    def apply(self, records: Sequence[Record]) -> None:
        """Take a batch of the log; records of topics that the view does not read are none of its own."""
        mine = [record for record in records if record.topic in self.spec.topics]
        if mine:
            for decoded in self._made(batch_of(mine)):
                self._write(decoded)

    # -- kinds of views -----------------------------------------------------------------------------------------------

    def _plain(self) -> Callable[[pa.RecordBatch], Iterator[Decoded]]:
        decoder = EntryDecoder(self.spec, typed=self.view.needs_spark)

        def made(batch: pa.RecordBatch) -> Iterator[Decoded]:
            yield from self._computed(decoder.decode(batch))

        return made

    def _joined(self) -> Callable[[pa.RecordBatch], Iterator[Decoded]]:
        view = cast(JoinedView, self.view)
        store = cast(RowStore, MemoryStore())
        joiner, reader = Joiner(view, store), RecordReader(self.spec, view)

        def pieces(taken: Sequence[Incoming]) -> Iterator[list[Made]]:
            self._tasks += 1
            yield from joiner.process(taken, Task(0, self._tasks), refuse)
            while store.waiting():  # what a fan-out has deferred
                shards = store.claim()
                for shard in shards:
                    yield from joiner.later(shard)
                store.settle(shards)

        def refuse(change: Incoming, error: UnavailableValue) -> None:
            self.letters.append(reader.letter(change.key, error, (change.topic, 0, change.stamp.offset)))

        def made(batch: pa.RecordBatch) -> Iterator[Decoded]:
            for records in self._with_child_expressions(view, batch):
                taken = reader.read(records)
                self.letters += taken.letters
                for piece in pieces(taken.changes):
                    entries, unfit = entries_of(joiner, piece, taken.ts_ms)
                    letters = [letter_of(self.spec, entry, why) for entry, why in unfit]
                    yield from self._computed(Decoded(entries, letters, 0))

        return made

    # -- Spark SQL ----------------------------------------------------------------------------------------------------

    def _with_child_expressions(self, view: JoinedView, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Records with what Spark SQL computes for aggregates beside them, if any does."""
        if not child_expressions.needed(view):
            yield batch
            return
        typed = child_expressions.with_structs(self.spec.pack(), iter([batch]))
        frame = self._frame(typed, child_expressions.record_schema(view))
        yield _one(frame.select(*child_expressions.computed_columns(view)))

    def _computed(self, decoded: Decoded) -> Iterator[Decoded]:
        """Entries with the view's fields in their documents, those left out that its condition leaves out."""
        if not self.view.needs_spark:
            yield decoded
            return
        self.letters += decoded.letters  # the stage would send them
        batch = entry_batch(self.spec, self.view, replace(decoded, letters=[]))
        yield from_arrow(self.spec, _one(compute(self._frame(iter([batch]), entry_schema(self.view)), self.view)))

    def _frame(self, batches: Iterator[pa.RecordBatch], schema: str) -> DataFrame:
        return self.spark().createDataFrame(pa.Table.from_batches(list(batches)), schema=schema)

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _write(self, decoded: Decoded) -> None:
        self.letters += decoded.letters
        for entry in decoded.entries:
            if entry.version == UNVERSIONED or entry.version >= self._versions.get(entry.id, -1):
                self._stands(entry)

    def _stands(self, entry: Entry) -> None:
        if entry.offset != NEW or entry.document is not None:
            self._versions[entry.id] = max(entry.version, self._versions.get(entry.id, -1))
        if entry.document is None:
            self.documents.pop(entry.id, None)
        else:
            self.documents[entry.id] = bytes(entry.document)


def prepared(pipeline: Pipeline, catalogue: Catalogue, name: str, spark: Spark) -> View:
    """A view that fits the tables; Spark is asked only if it has Spark SQL.

    Raises:
        ConfigError: it does not fit: as `check` says it (terminal).
    """
    view = resolve_view(pipeline, catalogue, name)
    refuse_stateful(view, "tested over rows")
    asks = view.needs_spark or (isinstance(view, JoinedView) and child_expressions.needed(view))
    return analysed_view(spark(), pipeline, view)[0] if asks else view


def _one(frame: DataFrame) -> pa.RecordBatch:
    """A frame's rows as one batch."""
    table = frame.toArrow().combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
