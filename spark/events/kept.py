"""Where the documents of a view with a state go: to a sink, or to a table of a warehouse (spark/events/kept_tables.py).

The stateful step gives rows of an entry's own columns, ``failed`` and ``state`` (and, of windows and matches, whether
the document is ``gone``). A view's own function says which documents these are (``Telling``); what becomes of them is
the same for folds, windows and matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark.arrow import map_in_arrow
from spark.drain import drained
from spark.flow import Flow
from spark.reading.entries import Decoded
from spark.reading.spec import FlowSpec, unpack
from spark.running import Query
from spark.write import SUMMARY_DDL, apply_decoded


class Told(NamedTuple):
    """What a batch of the stateful step's rows says.

    Attributes:
        decoded: documents and deletes, dead letters, and how many records there were.
        at: of each document or delete, which row of the batch it is of.
    """

    decoded: Decoded
    at: list[int]


Telling = Callable[[FlowSpec, pa.RecordBatch], Told]


class Place(Protocol):
    """Where documents go.

    Attributes:
        turns: see ``spark.reading.source.read_changelog``.
    """

    turns: str

    def writer(self, flow: Flow, kept: DataFrame, telling: Telling) -> DataStreamWriter:
        """What writes a stream of the stateful step's rows; its query is to be started.

        Args:
            flow: the flow.
            kept: the rows.
            telling: says which documents these are.
        """

    def query(self, started: StreamingQuery) -> Query:
        """A started query as the runner sees it."""


# Opens a flow's place, as soon as all machines are known to see its state: before there is a table, say.
Open = Callable[[SparkSession, Flow], Place]


class Documents:
    """A sink whose tasks write documents."""

    turns = ""

    def writer(self, flow: Flow, kept: DataFrame, telling: Telling) -> DataStreamWriter:
        """See ``Place``."""
        summary = map_in_arrow(kept, partial(apply_told, telling, flow.spec.pack()), SUMMARY_DDL)
        return drained(summary).outputMode("update")

    def query(self, started: StreamingQuery) -> Query:
        """See ``Place``."""
        return started


def documents_of(_spark: SparkSession, _flow: Flow) -> Place:
    """The place of a flow whose sink takes documents."""
    return Documents()


def apply_told(telling: Telling, packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Last stage: what has changed in, documents written, summary out (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    yield from apply_decoded(packed, (telling(spec, batch).decoded for batch in batches if batch.num_rows))
