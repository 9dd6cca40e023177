"""What views of windows must hold: all events of the log, put into their windows and measured by Python.

Spark says what groups and measures an event, and nothing else. Events wait in a file, sorted by window: in memory is
one page of them, and what one window (of sessions one session) keeps, see ``truth.events.measured``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from cdc.keys import document_id
from cdc.scratch import scratch_folder
from cdc.timed import WindowView
from cdc.types import canonical_result
from truth.events.happened import TABLE, Happened, Waiting, happened, take
from truth.events.logged import PREFIX, Events, scratch
from truth.events.measured import Kept, Plan
from truth.spark_sql import table_shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACED = "placed (grouping INT, about TEXT, start INT, end INT, late INT, unsure INT, said BLOB)"
# Always in one order: a sum of doubles is another number in another one.
_SORTED = "SELECT grouping, about, start, end, late, unsure, said FROM placed ORDER BY grouping, about, start, rowid"
# Of a session that may have been cut in two, so many moments are remembered at which the second one may begin.
_BEGINNINGS = 100_000


class _Group(NamedTuple):
    """A group in one grouping.

    Attributes:
        fields: of its documents.
        lacks: those of them by which the grouping goes, and which are NULL; none where its ids do not tell it.
    """

    fields: dict[str, Any]
    lacks: frozenset[str]


class Told(NamedTuple):
    """A document that must be there.

    Attributes:
        key: its id.
        fields: values, and bounds (``truth.bounds``); None if there must be none, but may be, see ``unsure``.
        unsure: it depends on an event that the engine may have given up, or on one that the log has lost, or on a time
            that the engine may not have come to.
        start: when its window begins, or its event happened (microseconds).
    """

    key: str
    fields: dict[str, Any] | None
    unsure: bool
    start: int


def windows(view: WindowView, events: Events, spark: SparkSession, folder: Path | None = None) -> Iterator[Told]:
    """The document of each window that has had events, by the log as it is now.

    Args:
        view: the view.
        events: reads the log from its beginning; what it raises is raised here.
        spark: a session.
        folder: where events wait; None for where temporary files lie.
    """
    said = [view.condition or "true", *view.by.values()]
    measured = [measure.value for measure in view.measures.values() if measure.value != "*"]
    plan = Plan(spark, table_shape(view.table, [*said, *measured]), view.measures)
    with (
        scratch_folder(PREFIX, folder) as own,
        scratch(own / "events", TABLE) as log,
        scratch(own / "placed", PLACED) as placed,
    ):
        complete = take(log, view, events)
        for event in happened(log, Waiting(log), view, spark, [*said, *plan.asked]):
            if event.said[0] is True:
                placed.executemany("INSERT INTO placed VALUES (?, ?, ?, ?, ?, ?, ?)", _placed(view, event))
        found = placed.execute(_SORTED)
        for (grouping, about, _), rows in groupby(found, lambda row: (row[0], row[1], None if view.gap else row[2])):
            group = _group(view, grouping, orjson.loads(about))
            for told in (_sessions if view.gap else _one)(plan, group, rows):
                # An event that was lost may have been in it.
                lost = complete is not None and told.start - view.gap < complete
                yield told._replace(unsure=True) if lost else told


def _placed(view: WindowView, event: Happened) -> Iterator[tuple[Any, ...]]:
    """An event's windows in each grouping: those for which it did not come too late."""
    values = [canonical_result(value) for value in event.said]
    by, measured = dict(zip(view.by, values[1:], strict=False)), orjson.dumps(values[1 + len(view.by) :])
    for start, end in _windows(view, event.at):
        behind = 0 if event.clock is None else event.clock - view.delay - end
        late = event.clock is not None and behind >= 0
        if late and behind >= view.correct:
            continue
        unsure = event.unsure is not None and end <= event.unsure - view.delay - view.correct
        for number, names in enumerate(view.groupings):
            about = orjson.dumps([by[name] if name in names else None for name in view.by])
            yield number, about, start, end, late, unsure, measured


def _windows(view: WindowView, at: int) -> Iterator[tuple[int, int]]:
    """Of a session the event's own, to be joined with others."""
    if view.gap:
        yield at, at + view.gap
        return
    first = (at - view.size) // view.slide + 1  # the earliest that is not over yet
    for number in range(first, at // view.slide + 1):
        yield number * view.slide, number * view.slide + view.size


def _group(view: WindowView, grouping: int, values: list[Any]) -> _Group:
    named = {"grouping": ",".join(view.groupings[grouping])} if len(view.groupings) > 1 else {}
    by = dict(zip(view.by, values, strict=True))
    told = () if view.null_is_text else view.groupings[grouping]
    return _Group(named | by, frozenset(name for name in told if by[name] is None))


class _Window:
    """A window that events are added to."""

    def __init__(self, plan: Plan, start: int, end: int) -> None:
        self.start, self.end, self.late, self.unsure = start, end, 0, False
        self.kept: list[Kept] = plan.kept()

    def add(self, row: tuple[Any, ...]) -> None:
        _, _, _, end, late, unsure, said = row
        self.end = max(self.end, end)
        self.late += late
        self.unsure |= bool(unsure)
        for one, value in zip(self.kept, orjson.loads(said), strict=True):
            if value is not None:
                one.add(value)

    def told(self, plan: Plan, group: _Group) -> Told:
        times = {"window_start": moment(self.start), "window_end": moment(self.end)}
        fields = group.fields | times | plan.results(self.kept) | {"late": self.late}
        return Told(_key(group, self.start), fields, self.unsure, self.start)


def _one(plan: Plan, group: _Group, rows: Iterator[tuple[Any, ...]]) -> Iterator[Told]:
    window: _Window | None = None
    for row in rows:
        window = window or _Window(plan, row[2], row[3])
        window.add(row)
    if window is not None:
        yield window.told(plan, group)


def _sessions(plan: Plan, group: _Group, rows: Iterator[tuple[Any, ...]]) -> Iterator[Told]:
    current: _Window | None = None
    starts = array("q")
    for row in rows:
        if current is not None and row[2] >= current.end:
            yield from _session(plan, group, current, starts)
            current, starts = None, array("q")
        current = current or _Window(plan, row[2], row[3])
        current.add(row)
        if len(starts) < _BEGINNINGS and row[2] > (starts[-1] if starts else current.start):
            starts.append(row[2])
    if current is not None:
        yield from _session(plan, group, current, starts)


def _session(plan: Plan, group: _Group, window: _Window, starts: Sequence[int]) -> Iterator[Told]:
    yield window.told(plan, group)
    if window.unsure:  # without one of its events it may have been two
        yield from (Told(_key(group, start), None, unsure=True, start=start) for start in starts)


def _key(group: _Group, start: int) -> str:
    """An id in which a group of NULL is ``\\N``: what else may follow a backslash there is another one, or a bar."""
    texts = [document_id([value]).replace("\\", r"\\").replace("|", r"\|") for value in group.fields.values()]
    lacking = (r"\N" if name in group.lacks else text for name, text in zip(group.fields, texts, strict=True))
    return "|".join([*lacking, moment(start)])


def moment(micros: int) -> str:
    """The canonical text of a moment.

    Args:
        micros: microseconds since 1970.
    """
    return str(canonical_result(_EPOCH + timedelta(microseconds=micros)))
