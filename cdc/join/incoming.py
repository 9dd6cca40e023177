"""From a change to the row that the store keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from cdc import types
from cdc.errors import DecodeError, UnavailableValue
from cdc.join.expressions import mentions
from cdc.join.layout import TableLayout
from cdc.join.rows import Stamp
from cdc.join.tree import Aggregate
from cdc.join.versions import told, version_id
from cdc.keys import document_id
from cdc.records.change import Change, Op
from cdc.records.placeholders import not_in_the_log


class Incoming(NamedTuple):
    """The newest change of one row in a batch.

    Attributes:
        table: ``schema.table``.
        key: the row's id.
        stamp: position, offset and partition; position -1 for a tombstone, which carries none.
        row: stored values; None for a deleted row.
        holes: places in ``row`` whose value did not change and is not in the log (TOAST).
        ts_ms: when the source committed it.
        topic: where it was read.
        passed: rows that the same batch had before this one. They are never stored; but in a time that the row store
            has forgotten, batches may have been cut otherwise, and documents show them.
        refused: the newest record of the row that was refused, if it is newer than this change: large values that it
            carried are nowhere, so nothing may be filled from the row until a record comes that leaves none out.
    """

    table: str
    key: str
    stamp: Stamp
    row: list[Any] | None
    holes: tuple[int, ...]
    ts_ms: int
    topic: str
    passed: tuple[list[Any], ...] = ()
    refused: Stamp | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether it is no change, and only tells of a record that was refused."""
        return self.refused == self.stamp

    def refusal(self) -> Incoming:
        """What stays of it when it is refused."""
        stamp = max(self.stamp, self.refused or self.stamp)
        return self._replace(stamp=stamp, row=None, holes=(), passed=(), refused=stamp)

    @property
    def place(self) -> str:
        """Topic, partition and offset for messages."""
        return f"{self.topic}/{self.stamp.partition}/{self.stamp.offset}"


TOMBSTONE = -1

# Characters of a value that rows are joined by. Postgres's unique indexes take some 2,700 bytes of one (compressed), so
# a longer one hardly joins anything; and a stored row has room for 16 MiB of those that it had before: for two of the
# longest, whatever JSON makes of them.
LONGEST_JOIN = 1 << 20


class RowMaker:
    """Makes stored rows of one table's changes; compiled once a worker.

    Args:
        layout: the table's layout.
    """

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        by_name = layout.table.by_name
        columns = layout.columns
        self._values = itemgetter(*columns) if len(columns) > 1 else lambda after: (after[columns[0]],)
        self._keys = [(name, types.json_converter(by_name[name])) for name in layout.table.primary_key]
        self._checks = [
            (index, name, convert)
            for index, name in enumerate(layout.columns)
            if (convert := types.json_converter(by_name[name])) is not None
        ]
        self._joins = [
            (index, name)
            for index, name in enumerate(layout.columns)
            if name in layout.routes and types.may_be_large(by_name[name])
        ]
        self._sources = [
            (a.column, types.json_converter(by_name[a.column])) if a.column else (None, None) for a in layout.aggregates
        ]

        self._said = frozenset().union(*(_mentioned(a, layout) for a in layout.aggregates if a.computed))

    def key(self, key: Mapping[str, Any]) -> str:
        """The id of the row with these raw key values; may raise any of ``cdc.types.REFUSALS``."""
        return document_id([convert(key[name]) if convert else key[name] for name, convert in self._keys])

    def make(self, change: Change, computed: Sequence[Any] = ()) -> Incoming:
        """One change.

        Args:
            change: of this table; not a TRUNCATE.
            computed: for each of the layout's aggregates its value, or of one over a column whether its condition
                holds; those that are not Spark SQL are not looked at.

        Raises:
            DecodeError: a value is not of its column's type, or too long to join rows by (terminal).
            UnavailableValue: Spark SQL over the row names a large column whose value is not in the event, or a row that
                begins lacks one: it has come from another key, and no row of its own is before it (terminal).
        """
        position = TOMBSTONE if change.op is Op.TOMBSTONE else change.position
        stamp = Stamp(position, change.offset, change.partition)
        try:
            key = self.key(change.key)
            if self.layout.versions:
                return self._version(change, key, stamp)
            if change.after is None:
                return Incoming(change.table, key, stamp, None, (), change.ts_ms, change.topic)
            row, holes = self._row(change, change.after, computed)
        except types.REFUSALS as error:
            raise DecodeError(
                f"record {_where(change)}: a value of {change.table} is not of its column's type: {error}",
                means="the table's definition may have changed since `headwater apply`",
                fix="run `headwater apply` and start again; the record is in the dead letters",
            ) from error
        made = Incoming(change.table, key, stamp, row, holes, change.ts_ms, change.topic)
        if holes and change.op is Op.CREATE:
            raise lacking(made, "the row has come from another key")
        return made

    def _version(self, change: Change, key: str, stamp: Stamp) -> Incoming:
        """A change of a table whose versions are kept: a row of its own, also if it ends the row."""
        row, holes = self._row(change, change.after or dict(change.key), ())
        row += told(change)
        named = version_id(key, stamp.position, stamp.offset, read=change.snapshot)
        return Incoming(change.table, named, stamp, row, holes, change.ts_ms, change.topic)

    def _row(self, change: Change, after: dict[str, Any], computed: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
        unavailable = change.unavailable
        if unavailable and (lost := self._said & frozenset(unavailable)):
            # Spark saw a placeholder there; what it made of that and of the row's new values nobody can put right.
            raise not_in_the_log(self.layout.table.qualified, tuple(sorted(lost)), _where(change))
        columns = self.layout.columns
        try:
            row = list(self._values(after))
        except KeyError:  # a column that is newer than the event
            row = [after.get(name) for name in columns]
        for index, name, convert in self._checks:  # a bad value is found here, where its record is known
            if row[index] is not None and name not in unavailable:
                convert(row[index])
        if self._joins:
            self._refuse_long(change, row)
        holes = [index for index, name in enumerate(columns) if name in unavailable] if unavailable else []
        if not self._sources:
            return row, tuple(holes)
        for number, (aggregate, (column, canonical)) in enumerate(
            zip(self.layout.aggregates, self._sources, strict=True)
        ):
            if aggregate.computed and (column is None or computed[number] is not True):
                # Of a column Spark has said only whether the row counts: not all of its values have a place in Spark.
                row.append(computed[number] if column is None else None)
                continue
            if column in unavailable:
                holes.append(len(row))
            value = 1 if column is None else after.get(column)
            if value is not None and column is not None:
                value = 1 if _counts(aggregate) else (value if canonical is None else canonical(value))
            row.append(_plain(value))
        return row, tuple(holes)

    def _refuse_long(self, change: Change, row: Sequence[Any]) -> None:
        for index, name in self._joins:
            value = row[index]
            if type(value) is str and len(value) > LONGEST_JOIN:
                raise DecodeError(
                    f"record {_where(change)}: {name} of {self.layout.table.qualified} has a value of {len(value):,}"
                    f" characters, and rows are joined by it: {LONGEST_JOIN:,} are the most",
                    fix="shorten it at the source, or join by another column; the record is in the dead letters",
                )


def _where(change: Change) -> str:
    """Topic, partition and offset for messages."""
    return f"{change.topic}/{change.partition}/{change.offset}"


def _mentioned(aggregate: Aggregate, layout: TableLayout) -> set[str]:
    """Columns that a computed aggregate's Spark SQL names."""
    names = layout.table.by_name
    said = {aggregate.column} if aggregate.column else mentions(aggregate.value or "", names)
    return said | mentions(aggregate.where or "", names)


def _counts(aggregate: Aggregate) -> bool:
    """A plain count needs to know only that there is a value."""
    return aggregate.function == "count" and not aggregate.distinct


def _plain(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value)) if isinstance(value, orjson.Fragment) else value


def lacking(incoming: Incoming, why: str = "") -> UnavailableValue:
    """The error for a change whose holes nothing may fill."""
    error = not_in_the_log(incoming.table, ("a large column",), incoming.place)
    return UnavailableValue(f"{error.what}; {why}", means=error.means, fix=error.fix) if why else error


# Why a row that is there does not fill a change.
REFUSED = "a record of this row that was refused is in between"


def filled(incoming: Incoming, known: list[Any] | None) -> Incoming:
    """The same change with its holes filled from the row that it follows.

    Raises:
        UnavailableValue: there is none (terminal).
    """
    if not incoming.holes:
        return incoming
    if known is None:
        raise lacking(incoming)
    assert incoming.row is not None
    row = list(incoming.row)
    for place in incoming.holes:
        row[place] = known[place]
    return incoming._replace(row=row, holes=())


def _passed(known: Incoming) -> tuple[list[Any], ...]:
    return known.passed if known.row is None else (*known.passed, known.row)


def still_refused(change: Incoming, *refused: Stamp | None) -> Stamp | None:
    """The newest of some refused records that a change does not make good; of a deleted row nothing is missing."""
    if change.row is None or not any(refused):
        return None
    return max((one for one in refused if one is not None and one[:2] > change.stamp[:2]), default=None)


def _with_refusal(known: Incoming, incoming: Incoming) -> Incoming:
    """As ``newest`` where one of the two only tells that a record was refused."""
    if not incoming.is_refusal:
        if incoming.holes:
            raise lacking(incoming, REFUSED)
        return incoming._replace(refused=still_refused(incoming, known.refused))
    stamp = incoming.stamp
    if stamp.position == TOMBSTONE:
        stamp = stamp._replace(position=known.stamp.position)
    if stamp[:2] <= known.stamp[:2]:
        return known
    return incoming._replace(stamp=stamp, refused=stamp) if known.is_refusal else known._replace(refused=stamp)


def newest(known: Incoming | None, incoming: Incoming) -> Incoming:
    """What stands of two changes of one row in one batch, ``incoming`` read after ``known``.

    Raises:
        UnavailableValue: the later one lacks a value, and the row before it is not known (terminal).
    """
    if known is None or known.is_refusal or incoming.is_refusal:
        return incoming if known is None else _with_refusal(known, incoming)
    if incoming.stamp.position == TOMBSTONE:
        if known.row is None:
            return known
        stamp = incoming.stamp._replace(position=known.stamp.position)
        return incoming._replace(stamp=stamp, passed=_passed(known))
    if known.stamp.position > incoming.stamp.position:
        return known
    if incoming.holes and (known.row is None or known.refused is not None):
        raise lacking(incoming, REFUSED if known.refused is not None else "the row before it was deleted")
    incoming = incoming._replace(passed=_passed(known), refused=still_refused(incoming, known.refused))
    # What the older one did not know either stays a hole.
    if incoming.holes and known.row is not None:
        row = list(incoming.row or ())
        for place in incoming.holes:
            row[place] = known.row[place]
        holes = tuple(place for place in incoming.holes if place in known.holes)
        return incoming._replace(row=row, holes=holes)
    return incoming
