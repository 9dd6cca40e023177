"""Rows whose key a table can't hold (cdc/table_key.py) become dead letters before they come near it.

Where a view has a condition, this is Spark's to say: a row that it leaves out lacks nothing. So there the row fails, as
one does whose fields can't be computed. Deletes of such rows have nothing to remove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from cdc.join.expressions import quoted
from cdc.letters.deadletter import DeadLetter
from cdc.table_key import TableKey
from cdc.view import View
from spark.reading.computed import FAILED, WHERE, reason
from spark.reading.entries import Decoded, Entry, decode_batches
from spark.reading.expressions import PREFIX, entry_batch
from spark.reading.guard import with_computed
from spark.reading.spec import FlowSpec, unpack
from spark.write import letter_of


def keyed_entries(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As ``spark.reading.expressions.entries_with_rows``, for a table (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    view = spec.view
    key = TableKey.of(view)
    for decoded in decode_batches(spec, batches, typed=True):
        yield entry_batch(spec, view, with_keys(spec, view, key, decoded))


def with_keys(spec: FlowSpec, view: View, key: TableKey, decoded: Decoded) -> Decoded:
    """Only the entries that a table has keys for, and letters of the other rows; of a view with a condition all.

    Args:
        spec: the flow's work.
        view: its view.
        key: the view's.
        decoded: what was read.
    """
    if view.where or not key.lacking:
        return decoded
    kept, letters = list[Entry](), list[DeadLetter]()
    for entry in decoded.entries:
        why = key.unheld(entry.id)
        if why is None:
            kept.append(entry)
        elif entry.document is not None:
            letters.append(letter_of(spec, entry, why))
    return Decoded(kept, [*decoded.letters, *letters], decoded.records, decoded.sent)


def computed_with_keys(entries: DataFrame, view: View, keys: Mapping[str, Column] | None = None) -> DataFrame:
    """Entries with what Spark SQL makes of them; a row that the condition takes and that has no key has failed.

    Args:
        entries: with the columns of ``view.spark_schema`` beside their own.
        view: a view with expressions.
        keys: where the key's columns are; None if they bear their own names.
    """
    there = F.col(PREFIX + "document").isNotNull()
    computed = with_computed(entries, view, there)
    lacking = TableKey.of(view).lacking
    if not view.where or not lacking:
        return computed
    found = keys or {name: F.col(quoted(name)) for name in lacking}
    none = reduce(or_, [found[name].isNull() for name in lacking])
    failed = F.struct(F.array().cast("array<string>").alias("columns"), F.lit(None).cast("string").alias("seen"))
    told = F.when(there & F.coalesce(F.col(WHERE), F.lit(False)) & none, failed)
    return computed.withColumn(FAILED, F.coalesce(F.col(FAILED), told))


def why_failed(view: View, identity: str, failed: Row) -> str:
    """Why there is no row of an id: for a dead letter.

    Args:
        view: the view.
        identity: the document's.
        failed: of ``FAILED``.
    """
    return TableKey.of(view).unheld(identity) or reason(view, failed["columns"], failed["seen"])
