"""What folded views must hold: every event of the log, sorted by Python and folded by Spark as one batch.

Events are written once, and their rows may be gone from Postgres at once: the log is all that there is to compare with.
So all of it is taken once more, apart from the engine: no stream, no state that is kept, no part of Spark but its SQL.
Events wait in a file, by aggregate: memory is bounded by a page of aggregates.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from cdc import types
from cdc.fold import FoldView, folded
from cdc.keys import document_id
from cdc.types import spark_type
from truth.spark_sql import FAILED, Shape, ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Events that Spark gets at once.
PAGE_EVENTS = 20_000

_SORTED = "SELECT about, again, row FROM event ORDER BY about, part, at"


class Event(NamedTuple):
    """An event as the log has it.

    Attributes:
        partition: of its topic; an aggregate's events are in one.
        offset: there.
        row: column -> raw value.
        again: an incremental snapshot has read it.
    """

    partition: int
    offset: int
    row: Mapping[str, Any]
    again: bool


Events = Callable[[], Iterable[Event]]


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


def states(view: FoldView, events: Events, spark: SparkSession, ids: Sequence[str] | None = None) -> Iterator[Folded]:
    """The state of each aggregate, after all events that the log has now.

    Args:
        view: its state's type is known.
        events: reads the log from its beginning; what it raises is raised here.
        spark: a session.
        ids: only these documents; None for all.
    """
    with tempfile.TemporaryDirectory(prefix="headwater-fold-") as folder, _store(f"{folder}/events") as store:
        kept = None if ids is None else frozenset(ids)
        store.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", _rows(view, events, kept))
        page: list[tuple[str, list[dict[str, Any]]]] = []
        for about, found in groupby(store.execute(_SORTED), lambda row: str(row[0])):
            page.append((about, _counting([(bool(again), orjson.loads(row)) for _, again, row in found])))
            if sum(len(events) for _, events in page) >= PAGE_EVENTS:
                yield from _asked(view, spark, page)
                page = []
        yield from _asked(view, spark, page)


@contextmanager
def _store(path: str) -> Iterator[sqlite3.Connection]:
    """A file of events, which nobody needs after a crash."""
    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("PRAGMA journal_mode = OFF")
        store.execute("PRAGMA synchronous = OFF")
        store.execute("CREATE TABLE event (about TEXT, part INT, at INT, again INT, row BLOB)")
        store.execute("BEGIN")
        yield store


def _rows(view: FoldView, events: Events, ids: frozenset[str] | None) -> Iterator[tuple[Any, ...]]:
    columns = {column.name: types.json_converter(column) for column in view.table.columns}
    for part, at, row, again in events():
        try:
            values = {name: _value(row.get(name), convert) for name, convert in columns.items()}
            about = document_id([values[name] for name in view.key])
        except (ValueError, KeyError, TypeError):  # a dead letter, which counts nowhere
            continue
        if ids is None or about in ids:
            yield about, part, at, again, orjson.dumps(values)


def _value(value: Any, convert: types.Converter | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _counting(events: list[tuple[bool, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Without those that were read again: of an aggregate that had events before, those were folded already."""
    return [row for at, (again, row) in enumerate(events) if not again or at == 0]


def _asked(view: FoldView, spark: SparkSession, page: list[tuple[str, list[dict[str, Any]]]]) -> Iterator[Folded]:
    if not page:
        return
    event = Shape({column.name: spark_type(column) for column in view.table.columns})
    shape = Shape({"__about": "string"}, arrays={"events": event})
    kind = f"struct<{', '.join(f'`{name}`: {type_}' for name, type_ in view.state.items())}>"
    said = folded(view.step, view.initial, kind).replace(
        "aggregate(events, held,", f"aggregate(events, CAST(NULL AS {kind}),"
    )
    rows = [{"__about": about, "events": events} for about, events in page]
    for (about, events), (state,) in zip(page, ask(spark, shape, rows, [said]).rows, strict=True):
        last = events[-1]
        document = orjson.dumps({out: last[source] for source, out in view.columns})
        failed = state is FAILED
        yield Folded(about, document, None if failed else state, failed)
