"""Repair of a joined view's table: documents made again from the row store, put in place by one commit.

As documents are repaired in other sinks (``operations.verify.repair.repair``), and as rows are in a table of one source
table (``operations.verify.repair.warehouse``): a row that the flow has changed since it was seen is left to that
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from cdc.join.view import JoinedView
from cdc.keys import is_stray
from operations.holding import TWICE
from operations.verify.repair.warehouse import beside_seen, leaving, merge, own_columns
from spark.join.table_stage import table_batch, table_entries
from spark.join.tables import joined_rows, with_expressions
from spark.reading.computed import FAILED
from spark.warehouse.keyless import why_failed
from spark.warehouse.merge import GONE, LETTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from operations.verify.repair.work import Repair
    from spark.join.engine import Joiner
    from spark.reading.entries import Entry


def repair_documents(
    joiner: Joiner, work: Repair, kinds: Mapping[str, str], roots: Mapping[str, str], failed: dict[str, str]
) -> dict[str, bool]:
    """Put rows right: wrong and missing ones are made of the row store, those that nobody knows go.

    Args:
        joiner: the engine.
        work: the view and its place.
        kinds: key -> how it differs.
        roots: root -> key, of those keys that can be of a row.
        failed: told key -> why, of documents that can't be made.

    Returns:
        key -> whether there is a document now, of the keys that the row store knows.
    """
    held = work.holding.get(list(kinds))
    twice = {key for key, holds in held.items() if holds.digest == TWICE}
    known = joiner.assembler.read(list(roots))
    made = joiner.make({root: 0 for root in roots if root in known}) if known else []
    entries, unfit = table_entries(joiner, made)
    failed |= {entry.id: why for entry, why in unfit}
    there = {entry.id: entry.document is not None for entry in entries}
    parts = []
    if any(there.values()):
        rows, gone = _remade(work, [entry for entry in entries if there[entry.id]], failed)
        there |= dict.fromkeys(gone, False)
        parts.append(beside_seen(work, rows, held, twice))
    leave = {key for key in held if there.get(key) is False or key in twice}
    for key, kind in kinds.items():
        if key in there or key in failed:
            continue
        if kind == "extra" or is_stray(key):
            leave |= {key} & held.keys()
        else:
            work.refused.add(key, f"the row store does not have this row: `headwater rebuild FILE {work.build.sink}`")
    parts += leaving(work, leave, held)
    if parts:
        merge(work, parts)
    return there


def _remade(work: Repair, entries: list[Entry], failed: dict[str, str]) -> tuple[DataFrame, list[str]]:
    """Rows of entries; and the keys of those that there shall be none of, by the condition or because Spark fails."""
    view = joined_view(work)
    frame = work.spark.createDataFrame(pa.Table.from_batches([table_batch(view, entries)]))
    if view.needs_spark:
        frame = with_expressions(frame, view).persist()
    rows = joined_rows(frame, view, *own_columns())
    key = own_columns()[0]
    gone = []
    if view.needs_spark:
        for row in frame.where(F.col(FAILED).isNotNull()).select(key, FAILED).collect():
            failed[row[0]] = why_failed(view, row[0], row[1])
        gone = [row[0] for row in rows.where(GONE).select("__id").collect()]
    return rows.where(f"NOT {GONE}").drop(LETTER), gone


def joined_view(work: Repair) -> JoinedView:
    """The view that is repaired."""
    assert isinstance(work.view, JoinedView)
    return work.view
