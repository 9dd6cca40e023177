"""What folded views must hold: every event of the log, sorted by Python and folded by Spark as one batch.

Events are written once, and their rows may be gone from Postgres at once: the log is all that there is to compare with.
So all of it is taken once more, apart from the engine: no stream, no state that is kept, no part of Spark but its SQL.
Events wait in a file, by aggregate: memory is bounded by a page of aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from cdc.fold import FoldView, folded
from cdc.keys import document_id
from cdc.scratch import scratch_folder
from cdc.types import REFUSALS, spark_type
from truth.events.logged import PREFIX, Events, canonical_row, reader, scratch
from truth.spark_sql import FAILED, Shape, ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Events that Spark gets at once.
PAGE_EVENTS = 20_000

TABLE = "event (about TEXT, part INT, at INT, row BLOB)"
_SORTED = "SELECT about, row FROM event ORDER BY about, part, at"


class Folded(NamedTuple):
    """An aggregate that has had events.

    Attributes:
        key: the document's id.
        document: without the state.
        state: its fields; None if it has ended, or could not be folded.
        failed: it could not.
    """

    key: str
    document: bytes
    state: Mapping[str, Any] | None
    failed: bool


def states(
    view: FoldView,
    events: Events,
    spark: SparkSession,
    ids: Sequence[str] | None = None,
    folder: Path | None = None,
) -> Iterator[Folded]:
    """The state of each aggregate, after all events that the log has now.

    Args:
        view: its state's type is known.
        events: reads the log from its beginning; what it raises is raised here.
        spark: a session.
        ids: only these documents; None for all.
        folder: where events wait; None for where temporary files lie.
    """
    with scratch_folder(PREFIX, folder) as own, scratch(own / "events", TABLE) as store:
        kept = None if ids is None else frozenset(ids)
        store.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", _rows(view, events, kept))
        page: list[tuple[str, list[dict[str, Any]]]] = []
        for about, found in groupby(store.execute(_SORTED), lambda row: str(row[0])):
            page.append((about, [orjson.loads(row) for _, row in found]))
            if sum(len(events) for _, events in page) >= PAGE_EVENTS:
                yield from _asked(view, spark, page)
                page = []
        yield from _asked(view, spark, page)


def _rows(view: FoldView, events: Events, ids: frozenset[str] | None) -> Iterator[tuple[Any, ...]]:
    read = reader(view)
    for event in events():
        # Read again, an event was folded already, or comes in an order that says nothing of when it happened.
        if event.lost or event.again:
            continue
        try:
            values = canonical_row(event.row, read)
            about = document_id([values[name] for name in view.key])
        except REFUSALS:  # a dead letter, which counts nowhere
            continue
        if ids is None or about in ids:
            yield about, event.partition, event.offset, orjson.dumps(values)


def _asked(view: FoldView, spark: SparkSession, page: list[tuple[str, list[dict[str, Any]]]]) -> Iterator[Folded]:
    from pyspark.sql.types import DataType  # not every verb that verifies needs Spark

    if not page:
        return
    event = Shape({column.name: spark_type(column) for column in view.table.columns})
    shape = Shape({"__about": "string"}, arrays={"events": event})
    kind = view.state_type
    said = folded(view.step, view.initial, kind, DataType.fromDDL(kind).jsonValue(), f"CAST(NULL AS {kind})")
    rows = [{"__about": about, "events": events} for about, events in page]
    for (about, events), (state,) in zip(page, ask(spark, shape, rows, [said]).rows, strict=True):
        last = events[-1]
        document = orjson.dumps({out: _shown(view, source, last[source]) for source, out in view.columns})
        failed = state is FAILED
        yield Folded(about, document, None if failed else state, failed)


def _shown(view: FoldView, column: str, value: Any) -> Any:
    """A column in a document: JSON as such."""
    json = view.table.by_name[column].base_type in ("json", "jsonb") and not view.table.by_name[column].array
    return orjson.Fragment(value) if json and value is not None else value
