"""Views over events that happened at some time: windows and matches. What is late is decided here.

The clock of a partition is the newest event time that it has had, in the order of the log; never ahead of the commits,
whatever a device's clock says. An event is late by the clock *before it*: that is a fact of the log, and the same
however often and in whatever batches it is read. docs/decisions/windows.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from orjson import loads

from cdc.errors import DecodeError
from cdc.keys import id_part
from cdc.records.change import Change
from cdc.stateful import StatefulView

MICROS = 1_000_000
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
# Of an event time: what Spark's timestamps and milliseconds of a timer can hold (years 1 to 9999).
_LEAST, _MOST = -62_135_596_800 * MICROS, 253_402_300_800 * MICROS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
# NULL in a window's id. A group whose value is the text `null` is another one; and no value is written like this: in an
# id a backslash stands before another one or a bar.
_NULL = "\\N"


def micros_of(text: str) -> int:
    """A duration of the pipeline file (``10 minutes``) in microseconds."""
    number, unit = text.split()
    return int(number) * _UNITS[unit.rstrip("s")] * MICROS


@dataclass(frozen=True)
class TimedView(StatefulView):
    """A view over events with times; all durations in microseconds.

    Attributes:
        time: column with the moment at which an event happened, by the clock of who saw it.
        sent: column with the moment at which it was sent, by the same clock; or None.
        received: column with the moment at which it was received, by a clock that is right; or None.
        delay: how far events may be out of order before they are late.
        correct: for how long after that late events are still counted; 0 for not at all.
    """

    time: str = field(default="", kw_only=True)
    sent: str | None = field(default=None, kw_only=True)
    received: str | None = field(default=None, kw_only=True)
    delay: int = field(default=0, kw_only=True)
    correct: int = field(default=0, kw_only=True)

    @property
    def moments(self) -> frozenset[str]:
        """The columns that say when it happened."""
        return frozenset(name for name in (self.time, self.sent, self.received) if name)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        """Where the columns that say when it happened stand in a typed row."""
        return {column.name: at for at, column in enumerate(self.table.columns) if column.name in self.moments}

    def moment(self, change: Change, row: Sequence[Any]) -> int:
        """When an event happened, in microseconds since 1970 (UTC).

        A device's clock may be wrong, but it is wrong alike for what it has seen and for when it sent it: received
        minus sent is what it is off by, and the way, which is short. (Snowplow's ``derived_tstamp``.)

        Args:
            change: the event.
            row: its typed row.

        Raises:
            DecodeError: a time is missing, or is none (terminal).
        """
        at = self._micros(change, row, self.time)
        if self.sent is not None and self.received is not None:
            at += self._micros(change, row, self.received) - self._micros(change, row, self.sent)
        if not _LEAST <= at < _MOST:
            raise self._no_time(change, self.time, "is too far away")
        return at

    def named(self, document: bytes, event: str) -> str:
        """A document's id.

        Args:
            document: JSON.
            event: the id of the newest event in it; of a match of its first event.
        """
        return event

    def _micros(self, change: Change, row: Sequence[Any], name: str) -> int:
        typed = row[self._places[name]]
        if isinstance(typed, datetime):
            since = (typed if typed.tzinfo is None else typed.replace(tzinfo=None)) - _EPOCH
            return (since.days * 86_400 + since.seconds) * MICROS + since.microseconds
        if typed is None:
            null = (change.after or {}).get(name) is None
            raise self._no_time(change, name, "is null" if null else "is no moment")
        return int(typed)

    def _no_time(self, change: Change, name: str, what: str) -> DecodeError:
        return DecodeError(
            f"record {change.topic}/{change.partition}/{change.offset}: column {name} of {change.table} {what}:"
            f" nobody knows when the event of {self.name} happened",
            means="it goes to the dead letters, and is counted nowhere",
            fix=f"let the application give every event its {name} (ALTER TABLE … SET NOT NULL)",
        )


@dataclass(frozen=True)
class WindowView(TimedView):
    """A document for each window of each group.

    Attributes:
        size: of a window; 0 for sessions.
        slide: from one window's start to the next one's; ``size`` for windows that do not overlap.
        gap: of a session: it ends when its group has had no event for so long; else 0.
        condition: Spark SQL; events for which it is not true are not counted, but they move the clock.
        by: name -> Spark SQL over the event's columns: what makes a group.
        groupings: of each the names that it goes by.
        measures: name -> what is measured.
        null_is_text: a group of NULL has ``null`` in its ids, as one of that text has: what was filled when all had.
    """

    size: int = field(default=0, kw_only=True)
    slide: int = field(default=0, kw_only=True)
    gap: int = field(default=0, kw_only=True)
    condition: str | None = field(default=None, kw_only=True)
    by: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    groupings: tuple[tuple[str, ...], ...] = field(default=((),), kw_only=True)
    measures: Mapping[str, Measure] = field(default_factory=dict, kw_only=True)
    null_is_text: bool = field(default=False, kw_only=True)

    made = "made of windows over events"
    said = "window"

    @property
    def shown(self) -> Collection[str]:
        """The fields of a document, in order, as ``spark.events.windows`` has them with their types."""
        several = ["grouping"] if len(self.groupings) > 1 else []
        return [*several, *self.by, "window_start", "window_end", *self.measures, "late"]

    @property
    def expressions(self) -> list[str]:
        """All Spark SQL of it."""
        return [*([self.condition] if self.condition else []), *self.by.values(), *self._measured]

    @property
    def _measured(self) -> list[str]:
        return [measure.value for measure in self.measures.values() if measure.value != "*"]

    def named(self, document: bytes, event: str) -> str:
        """The group and the window's start.

        What its grouping does not go by is null for all of the grouping's documents, and stands there as ``null``.
        """
        several, fields = len(self.groupings) > 1, loads(document)
        names = [*(["grouping"] if several else []), *self.by, "window_start"]
        marked = self._marked[fields["grouping"] if several else ",".join(self.groupings[0])]
        parts = [_NULL if fields[name] is None and name in marked else id_part(fields[name]) for name in names]
        return "|".join(parts)

    @cached_property
    def _marked(self) -> Mapping[str, tuple[str, ...]]:
        """By a document's ``grouping``: what it goes by, where NULL has a sign of its own."""
        return {",".join(names): () if self.null_is_text else names for names in self.groupings}


@dataclass(frozen=True)
class Measure:
    """What is measured in a window.

    Attributes:
        function: count, sum, avg, min, max, approx_count_distinct or percentile.
        value: Spark SQL over the event's columns, or ``*``.
        rank: of a percentile, 0 < rank < 1.
    """

    function: str
    value: str
    rank: float = 0.0


_FUNCTION = re.compile(r"\s*([a-z_]+)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
FUNCTIONS = ("count", "sum", "avg", "min", "max", "approx_count_distinct", "percentile")


def measure_of(said: str) -> Measure | str:
    """What a measure of the pipeline file means, or why it means nothing.

    Args:
        said: ``sum(x)``, ``percentile(x, 0.95)``, …
    """
    found = _FUNCTION.fullmatch(said)
    if found is None or found[1].lower() not in FUNCTIONS:
        return f"is none of {', '.join(f'{name}(…)' for name in FUNCTIONS)}"
    function, value = found[1].lower(), found[2].strip()
    if not value or (value == "*" and function != "count"):
        return f"{function} of what?"
    if re.match(r"distinct\b", value, re.IGNORECASE):
        return "exactly distinct values would all have to be kept: approx_count_distinct(x) keeps a sketch"
    if function != "percentile":
        return Measure(function, value)
    value, _, rank = value.rpartition(",")
    try:
        number = float(rank)
    except ValueError:
        number = 0.0
    if not value.strip() or not 0 < number < 1:
        return "write percentile(x, 0.95): which one, between 0 and 1"
    return Measure(function, value.strip(), number)


@dataclass(frozen=True)
class Kind:
    """Some of a view's events.

    Attributes:
        where: Spark SQL condition over the event's columns.
        key: Spark SQL: events of one key belong together.
        fields: name -> Spark SQL, for the document.
    """

    where: str
    key: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MatchView(TimedView):
    """A document for each event that another one of its key followed within a time, or did not.

    Attributes:
        first: the events that have documents.
        then: the events that may follow; None if ``count`` of the first are looked for.
        within: how long after the first.
        keep: ``all``, ``followed`` or ``alone``.
        count: of how many within the time an event must be the last; 0 with ``then``.
    """

    first: Kind = field(kw_only=True)
    then: Kind | None = field(default=None, kw_only=True)
    within: int = field(default=0, kw_only=True)
    keep: str = field(default="all", kw_only=True)
    count: int = field(default=0, kw_only=True)

    made = "made of events that belong together"
    said = "match"

    @property
    def shown(self) -> Collection[str]:
        """The fields of a document, in order, as ``spark.events.matches`` has them with their types."""
        after = ["since", "count"] if self.count else ["followed", "count", "then"] if self.keep != "alone" else []
        return ["key", "at", *self.first.fields, *after, "late"]

    @property
    def expressions(self) -> list[str]:
        """All Spark SQL of it."""
        kinds = [self.first, *([self.then] if self.then else [])]
        return [said for kind in kinds for said in (kind.where, kind.key, *kind.fields.values())]
