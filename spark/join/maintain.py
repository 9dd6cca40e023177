"""Applying a batch of changes to the row store, so that a crash at any step and a repeat change nothing.

Order is everything here (DESIGN, "How a change travels", 3a; docs/decisions/row-store.md). A row is written first, by
compare-and-set on its own key, the newest position winning; with it go the foreign keys that it replaced. Then new
index entries, then the removal of old ones, then what it contributes to aggregates. Whoever reads a row through a stale
index entry checks the row. One row's changes are on one partition, so one worker applies them; workers of different
partitions may interleave at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.errors import UnavailableValue
from cdc.join.aggregates import Delta, value_kind
from cdc.join.incoming import TOMBSTONE, Incoming, filled
from cdc.join.keying import KeyOf, key_of
from cdc.join.layout import Group, Layout, TableLayout
from cdc.join.ordering import is_text, score
from cdc.join.rows import Replaced, Stored, read, write
from sinks.rowstore import keys
from sinks.rowstore.contract import Contribution, RowStore, Swap

# Which offset of (topic, partition) the current Spark batch began at: everything before it is committed.
Starts = Mapping[tuple[str, int], int]
Refuse = Callable[[Incoming, UnavailableValue], None]


@dataclass(slots=True)
class Touched:
    """A row whose documents must be made again.

    Attributes:
        table: ``schema.table``.
        key: its id.
        position: of the change.
        row: as it is now; None if it is deleted.
        seen: routes that it has now (they come first), and those that it had and that may still show it.
        fresh: its index entries may not be there yet.
        there: whether the store knew the row before.
    """

    table: str
    key: str
    position: int
    row: list[Any] | None
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    fresh: bool = True
    there: bool = True

    @property
    def routes(self) -> tuple[Any, ...] | None:
        """Those that it has now; None if it is deleted."""
        return self.seen[0] if self.row is not None else None


class _Table:
    """A table's layout, compiled."""

    def __init__(self, layout: TableLayout, whole: Layout) -> None:
        self.layout = layout
        self.number = layout.number
        table, routes = layout.table, layout.routes
        self._places = layout.places(routes)
        where = {name: index for index, name in enumerate(routes)}

        def by_routes(names: Sequence[str]) -> KeyOf:
            return key_of(table, names, [where[name] for name in names])

        mine = [index for index in whole.indexes.values() if index.table == table.qualified]
        self.indexes = [(index.number, by_routes(index.columns)) for index in mine]
        self.groups = [(group, by_routes(group.foreign_key)) for group in layout.groups]

    def routes(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """The foreign-key values of a row."""
        return tuple([row[place] for place in self._places])


class Maintainer:
    """Applies changes of one view's tables.

    Args:
        layout: of the view.
        store: its row store.
    """

    def __init__(self, layout: Layout, store: RowStore) -> None:
        self.store = store
        self.tables = {name: _Table(table, layout) for name, table in layout.tables.items()}

    def apply(self, changes: Iterable[Incoming], starts: Starts, refuse: Refuse, *, new: bool = False) -> list[Touched]:
        """Apply the newest change of each row.

        Args:
            changes: at most one a row.
            starts: see Starts.
            refuse: told of changes that lack a value which the store does not have either; they change nothing.
            new: most rows are not in the store yet: write them without a look first.

        Returns:
            the rows whose documents must be made again.
        """
        touched: list[Touched] = []
        pending = list(changes)
        if new:
            pending = self._first(pending, touched)
        while pending:
            names = [keys.row(self.tables[change.table].number, change.key) for change in pending]
            values = self.store.get(names)
            swaps: list[Swap] = []
            made: list[tuple[Incoming, Touched]] = []
            for name, change, value in zip(names, pending, values, strict=True):
                try:
                    swap, touch = self._decide(name, change, None if value is None else read(value), starts)
                except UnavailableValue as error:
                    refuse(change, error)
                    continue
                if swap is not None and touch is not None:
                    swaps.append(swap)
                    made.append((change, touch))
                elif touch is not None:
                    touched.append(touch)
            done = self.store.swap(swaps)
            touched += [touch for (_, touch), fits in zip(made, done, strict=True) if fits]
            pending = [change for (change, _), fits in zip(made, done, strict=True) if not fits]
        self._index(touched)
        self._aggregate(touched)
        return touched

    def _first(self, pending: Sequence[Incoming], touched: list[Touched]) -> list[Incoming]:
        """Write rows as if none were there yet; returns the changes for which that was wrong."""
        whole = [change for change in pending if change.row is not None and not change.holes]
        swaps = [
            Swap(keys.row(self.tables[c.table].number, c.key), b"", write(c.stamp, (), c.row), fades=False)
            for c in whole
        ]
        left = [change for change in pending if change.row is None or change.holes]
        for change, fits in zip(whole, self.store.swap(swaps), strict=True):
            if fits:
                table = self.tables[change.table]
                routes = [table.routes(change.row or ())]
                touched.append(
                    Touched(change.table, change.key, change.stamp.position, change.row, routes, there=False)
                )
            else:
                left.append(change)
        return left

    def _decide(
        self, name: str, change: Incoming, stored: Stored | None, starts: Starts
    ) -> tuple[Swap | None, Touched | None]:
        """What a change means for the row as it is: what to write, and whether documents must be made again."""
        table = self.tables[change.table]
        stamp = change.stamp
        if stored is None:
            if stamp.position == TOMBSTONE:
                return None, None
            change = filled(change, None)
            routes = [table.routes(change.row)] if change.row is not None else []
            value = write(stamp, (), change.row)
            return (
                Swap(name, b"", value, change.row is None),
                Touched(change.table, change.key, stamp.position, change.row, routes, there=False),
            )
        start = starts[change.topic, stamp.partition]
        committed = stored.stamp.partition == stamp.partition and stored.stamp.offset < start
        replaced = [r for r in stored.replaced if r.partition != stamp.partition or r.offset >= start]
        if stamp.position == TOMBSTONE:
            stamp = stamp._replace(position=stored.stamp.position)
        if stamp[:2] <= stored.stamp[:2]:
            # Older, or itself. Documents of what is there were written if its batch was committed, else perhaps not.
            if committed:
                return None, None
            return None, self._touch(table, change, stored.row, stamp.position, replaced)
        change = filled(change, stored.row)
        if change.row == stored.row and committed and not replaced:
            return None, None
        old = table.routes(stored.row) if stored.row is not None else None
        new = table.routes(change.row) if change.row is not None else None
        if old is not None and old != new:
            replaced.append(Replaced(stamp.partition, stamp.offset, list(old)))
        touch = self._touch(table, change, change.row, stamp.position, replaced)
        touch.fresh = not (committed and old == new)
        value = write(stamp, replaced, change.row)
        return Swap(name, stored.head, value, change.row is None), touch

    @staticmethod
    def _touch(
        table: _Table, change: Incoming, row: list[Any] | None, position: int, replaced: Sequence[Replaced]
    ) -> Touched:
        seen = [table.routes(row)] if row is not None else []
        seen += [tuple(former.routes) for former in replaced]
        return Touched(change.table, change.key, position, row, seen)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def _index(self, touched: Sequence[Touched]) -> None:
        adds: list[tuple[str, str]] = []
        removes: list[tuple[str, str]] = []
        for touch in touched:
            if not touch.fresh:
                continue
            table, now = self.tables[touch.table], touch.routes
            moved = len(touch.seen) > (now is not None)
            for number, key in table.indexes:
                current = None if now is None else key(now)
                if current is not None:
                    adds.append((keys.index(number, current), touch.key))
                if not moved:
                    continue
                former = {key(routes) for routes in touch.seen} - {current, None}
                removes += [(keys.index(number, parent), touch.key) for parent in former if parent]
        if adds:
            self.store.link(adds)
        if removes:
            self.store.unlink(removes)

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def _aggregate(self, touched: Sequence[Touched]) -> None:
        wanted: dict[tuple[int, str], dict[str, list[Any] | None]] = {}
        groups: dict[int, Group] = {}
        for touch in touched:
            table, now = self.tables[touch.table], touch.routes
            for group, key in table.groups:
                groups[group.number] = group
                current = None if now is None else key(now)
                for parent in {key(routes) for routes in touch.seen} | {current}:
                    if parent is not None:
                        given = _given(table.layout, group, touch.row) if parent == current else None
                        wanted.setdefault((group.number, parent), {})[touch.key] = given
        while wanted:
            wanted = self._contribute(wanted, groups)

    def _contribute(
        self, wanted: dict[tuple[int, str], dict[str, list[Any] | None]], groups: Mapping[int, Group]
    ) -> dict[tuple[int, str], dict[str, list[Any] | None]]:
        """Bring contributions to what is wanted; returns what another worker came between."""
        places = list(wanted)
        named = [keys.group(number, parent) for number, parent in places]
        held = self.store.contributions(
            [(name, list(wanted[place])) for name, place in zip(named, places, strict=True)]
        )
        changes: list[Contribution] = []
        asked: list[tuple[int, str]] = []
        for name, place, before in zip(named, places, held, strict=True):
            change = _change(name, groups[place[0]], wanted[place], before)
            if change.children:
                changes.append(change)
                asked.append(place)
        done = self.store.contribute(changes) if changes else []
        return {place: wanted[place] for place, fits in zip(asked, done, strict=True) if not fits}


def _given(layout: TableLayout, group: Group, row: list[Any] | None) -> list[Any] | None:
    """What a row contributes to a group; None when it contributes nothing to any of its aggregates."""
    if row is None:
        return None
    first = len(layout.columns) + group.first
    values = row[first : first + len(group.aggregates)]
    return values if any(value is not None for value in values) else None


def _change(name: str, group: Group, wanted: Mapping[str, list[Any] | None], held: Sequence[bytes]) -> Contribution:
    delta = Delta(group.aggregates)
    children: list[tuple[str, bytes, bytes]] = []
    for (child, after), text in zip(wanted.items(), held, strict=True):
        new = b"" if after is None else orjson.dumps(after)
        if new != text:
            children.append((child, text, new))
            delta.move(child, orjson.loads(text) if text else None, after)
    kinds = [value_kind(aggregate) for aggregate in group.aggregates]
    ordered = []
    for number, value, child, comes in delta.ordered:
        member = value if isinstance(value, str) else orjson.dumps(value).decode()
        at = 0.0 if is_text(kinds[number]) else score(kinds[number], value)
        ordered.append((number, at, f"{member}\0{child}", comes))
    distinct = [(f"{number}:{text}", count, f"d{number}") for (number, text), count in delta.distinct.items() if count]
    totals = {field: count for field, count in delta.totals.items() if count}
    return Contribution(name, children, totals, distinct, ordered)
