"""Applying a batch of changes to the row store, so that a crash at any step and a repeat change nothing.

Order is everything here (docs/decisions/row-store.md). A row is written first, by compare-and-set on its own key, the
newest position winning; with it go the foreign keys that it replaced, and from that moment it is pending. Then new
index entries, then the removal of old ones, then what it contributes to aggregates. Whoever reads a row through a stale
index entry checks the row. One row's changes are on one partition, so one worker applies them; workers of different
partitions may interleave at any step.

A row is pending until the task that wrote it has done all. The next task of its partition begins with the pending rows,
whether the log still holds their records or not: the cleaner may have removed them in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import StateError, UnavailableValue
from cdc.join.document import rank_of
from cdc.join.incoming import REFUSED, TOMBSTONE, Incoming, filled, lacking, still_refused
from cdc.join.keying import KeyOf, key_of
from cdc.join.layout import SINCE, Group, Layout, TableLayout
from cdc.join.rows import Replaced, Stamp, Stored, body_of, read, write
from cdc.join.tree import Order
from cdc.join.versions import since_of
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt, Contribution, RowStore, Swap
from spark.join.contributions import change_of, given
from spark.join.task import Part, Task

# Rows that are redone together: bounds what is held in memory.
REDO = 2000

Refuse = Callable[[Incoming, UnavailableValue], None]
# A stored row's place among those that name the same.
Place = Callable[[Sequence[Any]], float]


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
        self.arranged = [
            (one.number, by_routes(one.index.columns), _place(layout, one.order))
            for one in (*whole.ordered, *whole.dated, *whole.versions)
            if one.index.table == table.qualified
        ]
        self.groups = [(group, by_routes(group.foreign_key)) for group in layout.groups]

    def routes(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """The foreign-key values of a row."""
        return tuple([row[place] for place in self._places])


class Maintainer:
    """Applies changes of one view's tables.

    Args:
        layout: of the view.
        store: its row store.
        era: see ``cdc.join.rows``; a row of another one is acted on even where a change leaves it as it is.
    """

    def __init__(self, layout: Layout, store: RowStore, era: int = 0) -> None:
        self.store, self.era = store, era & 0xFFFF
        self.tables = {name: _Table(table, layout) for name, table in layout.tables.items()}
        self._by_number = {table.number: name for name, table in self.tables.items()}

    def apply(self, changes: Iterable[Incoming], task: Task, refuse: Refuse, *, new: bool = False) -> list[Touched]:
        """Apply the newest change of each row.

        What crashed attempts at the same records have left must have been redone before (``redo``).

        Args:
            changes: at most one a row.
            task: whose work it is.
            refuse: told of changes that lack a value which the store does not have either; they change nothing.
            new: most rows are not in the store yet: write them without a look first.

        Returns:
            the rows whose documents must be made again.
        """
        touched: list[Touched] = []
        for part, mine in self._by_part(changes, task):
            found = self._apply(mine, part, refuse, new=new)
            self._act_on(found, part.by)
            touched += found
        return touched

    def redo(self, changes: Iterable[Incoming], task: Task) -> Iterator[list[Touched]]:
        """Act on the rows that crashed attempts have left in the parts that these changes come from.

        Returns:
            the rows whose documents must be made again, some thousand at a time.
        """
        for part, _ in self._by_part(changes, task):
            left, part.left = part.left, []
            for start in range(0, len(left), REDO):
                names = left[start : start + REDO]
                values = self.store.get(names)
                found = [self._left(name, value) for name, value in zip(names, values, strict=True) if value]
                self._act_on(found, part.by)
                yield found
            part.redone.update(left)

    def _by_part(self, changes: Iterable[Incoming], task: Task) -> list[tuple[Part, list[Incoming]]]:
        found: dict[tuple[str, int], list[Incoming]] = {}
        for change in changes:
            found.setdefault((change.topic, change.stamp.partition), []).append(change)
        return [(task.part(self.store, *at), mine) for at, mine in found.items()]

    def _left(self, name: str, value: bytes) -> Touched:
        """A pending row, as it is now."""
        number, _, key = name[1:].partition(":")
        if int(number) not in self._by_number:
            raise StateError(f"the row store holds a pending row {name!r} of no table of this view")
        table, stored = self.tables[self._by_number[int(number)]], read(value)
        return self._touch(table, key, stored.row, stored.stamp.position, stored.replaced)

    def _act_on(self, touched: Sequence[Touched], by: Attempt) -> None:
        self._index(touched, by)
        self._aggregate(touched, by)

    def _apply(self, changes: list[Incoming], part: Part, refuse: Refuse, *, new: bool) -> list[Touched]:
        touched: list[Touched] = []
        todo = self._first(changes, part, touched) if new else changes
        while todo:
            names = [key_names.row(self.tables[change.table].number, change.key) for change in todo]
            values = self.store.get(names)
            swaps: list[Swap] = []
            made: list[tuple[Incoming, Touched | None]] = []
            for name, found, value in zip(names, todo, values, strict=True):
                change, stored = found, None if value is None else read(value)
                swap, touch = None, None
                try:
                    if not change.is_refusal:
                        swap, touch = self._decide(name, change, stored, part)
                except UnavailableValue as error:
                    refuse(change, error)
                    change = change.refusal()
                if touch is not None:
                    self._pass_by(change, touch)
                swap = swap or self._doubt(name, change, stored, part)
                if swap is not None:
                    swaps.append(swap)
                    made.append((change, touch))
                elif touch is not None:
                    touched.append(touch)
            done = self.store.swap(swaps, part.by)
            part.wrote([swap.key for swap, fits in zip(swaps, done, strict=True) if fits])
            touched += [touch for (_, touch), fits in zip(made, done, strict=True) if fits and touch is not None]
            todo = [change for (change, _), fits in zip(made, done, strict=True) if not fits]
        return touched

    def _first(self, changes: Sequence[Incoming], part: Part, touched: list[Touched]) -> list[Incoming]:
        """Write rows as if none were there yet; returns the changes for which that was wrong."""
        whole: list[Incoming] = []
        swaps: list[Swap] = []
        left: list[Incoming] = []
        for change in changes:
            name = key_names.row(self.tables[change.table].number, change.key)
            if change.row is None or change.holes or name in part.pending:
                left.append(change)
                continue
            whole.append(change)
            swaps.append(Swap(name, b"", self._value(change, (), body_of(change.row)), fades=False))
        done = self.store.swap(swaps, part.by)
        part.wrote([swap.key for swap, fits in zip(swaps, done, strict=True) if fits])
        for change, fits in zip(whole, done, strict=True):
            if fits:
                table = self.tables[change.table]
                routes = [table.routes(change.row or ())]
                touch = Touched(change.table, change.key, change.stamp.position, change.row, routes, there=False)
                self._pass_by(change, touch)
                touched.append(touch)
            else:
                left.append(change)
        return left

    def _pass_by(self, change: Incoming, touch: Touched) -> None:
        """What the row was on its way counts as what it had; a thousand changes of one row seldom move it."""
        for row in change.passed:
            routes = self.tables[change.table].routes(row)
            if routes not in touch.seen:
                touch.seen.append(routes)
                touch.fresh = True

    def _value(self, change: Incoming, replaced: Sequence[Replaced], body: bytes, doubt: Stamp | None = None) -> bytes:
        return write(change.stamp, replaced, body, self.era, still_refused(change, change.refused, doubt))

    def _doubt(self, name: str, change: Incoming, stored: Stored | None, part: Part) -> Swap | None:
        """Keep with a stored row that a newer record of it was refused: what that carried nobody can fill in."""
        if change.refused is None or stored is None or stored.row is None:
            return None
        refused = change.refused
        if refused.position == TOMBSTONE:
            refused = refused._replace(position=stored.stamp.position)
        if refused[:2] <= max(stored.stamp, stored.refused or stored.stamp)[:2]:
            return None  # it was followed by a whole one, or is known
        replaced = stored.replaced if name in part.pending or stored.era != self.era else ()
        value = write(stored.stamp, replaced, stored.body, stored.era, refused)
        return Swap(name, stored.head, value, fades=False)

    def _decide(
        self, name: str, change: Incoming, stored: Stored | None, part: Part
    ) -> tuple[Swap | None, Touched | None]:
        """What a change means for the row as it is: what to write, and whether documents must be made again."""
        table = self.tables[change.table]
        stamp = change.stamp
        if stored is None:
            if stamp.position == TOMBSTONE:
                return None, None
            change = filled(change, None)
            routes = [table.routes(change.row)] if change.row is not None else []
            return (
                Swap(name, b"", self._value(change, (), body_of(change.row)), change.row is None),
                Touched(change.table, change.key, stamp.position, change.row, routes, there=False),
            )
        pending = name in part.pending
        healed = stored.era != self.era
        replaced = list(stored.replaced) if pending or healed else []
        if stamp.position == TOMBSTONE:
            stamp = stamp._replace(position=stored.stamp.position)
            change = change._replace(stamp=stamp)
        if stamp[:2] <= stored.stamp[:2]:
            # Older, or itself. What is there was acted on if its batch was done, and nothing was lost since.
            if name in part.redone or (not pending and not healed):
                return None, None
            return None, self._touch(table, change.key, stored.row, stamp.position, replaced)
        if change.holes and stored.refused is not None:
            raise lacking(change, REFUSED)
        change = filled(change, stored.row)
        body = body_of(change.row)
        if body == stored.body and not pending and not healed and stored.refused is None:
            # A delete of what is not there changes no document, but a record before it may have been refused: its
            # letter is healed by the newer offset, and by nothing else.
            gone = change.row is None
            return Swap(name, stored.head, self._value(change, (), body), True) if gone else None, None
        old = table.routes(stored.row) if stored.row is not None else None
        touch = self._touch(table, change.key, change.row, stamp.position, replaced)
        new = touch.routes
        if old is not None and old != new:
            replaced.append(list(old))
            touch.seen.append(old)
        touch.fresh = pending or bool(replaced) or old != new or healed or _moves(table, stored.row, change.row)
        value = self._value(change, replaced, body, stored.refused)
        return Swap(name, stored.head, value, change.row is None), touch

    @staticmethod
    def _touch(table: _Table, key: str, row: list[Any] | None, position: int, replaced: Sequence[Replaced]) -> Touched:
        seen = [table.routes(row)] if row is not None else []
        seen += [tuple(former) for former in replaced]
        return Touched(table.layout.table.qualified, key, position, row, seen)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def _index(self, touched: Sequence[Touched], by: Attempt) -> None:
        adds, removes = list[tuple[str, str]](), list[tuple[str, str]]()
        places, gaps = list[tuple[str, float, str]](), list[tuple[str, str]]()
        for touch in touched:
            if not touch.fresh:
                continue
            table = self.tables[touch.table]
            for number, key in table.indexes:
                current, gone = _parents(touch, key)
                if current is not None:
                    adds.append((key_names.index(number, current), touch.key))
                removes += [(key_names.index(number, parent), touch.key) for parent in gone]
            for number, key, place in table.arranged:
                current, gone = _parents(touch, key)
                if current is not None and touch.row is not None:
                    places.append((key_names.arranged(number, current), place(touch.row), touch.key))
                gaps += [(key_names.arranged(number, parent), touch.key) for parent in gone]
        if adds:
            self.store.link(adds, by)
        if places:
            self.store.arrange(places, by)
        if removes:
            self.store.unlink(removes, by)
        if gaps:
            self.store.displace(gaps, by)

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def _aggregate(self, touched: Sequence[Touched], by: Attempt) -> None:
        wanted: dict[tuple[int, str], dict[str, list[Any] | None]] = {}
        groups: dict[int, Group] = {}
        for touch in touched:
            table, now = self.tables[touch.table], touch.routes
            for group, key in table.groups:
                groups[group.number] = group
                current = None if now is None else key(now)
                for parent in dict.fromkeys([*(key(routes) for routes in touch.seen), current]):
                    if parent is not None:
                        gives = given(table.layout, group, touch.row) if parent == current else None
                        wanted.setdefault((group.number, parent), {})[touch.key] = gives
        while wanted:
            wanted = self._contribute(wanted, groups, by)

    def _contribute(
        self, wanted: dict[tuple[int, str], dict[str, list[Any] | None]], groups: Mapping[int, Group], by: Attempt
    ) -> dict[tuple[int, str], dict[str, list[Any] | None]]:
        """Bring contributions to what is wanted; returns what another worker came between."""
        places = list(wanted)
        named = [key_names.group(number, parent) for number, parent in places]
        held = self.store.contributions(
            [(name, list(wanted[place])) for name, place in zip(named, places, strict=True)]
        )
        changes: list[Contribution] = []
        asked: list[tuple[int, str]] = []
        for name, place, before in zip(named, places, held, strict=True):
            change = change_of(name, groups[place[0]], wanted[place], before)
            if change.children:
                changes.append(change)
                asked.append(place)
        done = self.store.contribute(changes, by) if changes else []
        return {place: wanted[place] for place, fits in zip(asked, done, strict=True) if not fits}


def _place(layout: TableLayout, order: Order) -> Place:
    if order.column == SINCE:
        return since_of(layout)
    return rank_of(layout.table.by_name[order.column], layout.places((order.column,))[0], order)


def _moves(table: _Table, old: list[Any] | None, new: list[Any] | None) -> bool:
    """Whether a row has another place in an arrangement."""
    if not table.arranged:  # as most are, at each change
        return False
    return any((old and place(old)) != (new and place(new)) for _, _, place in table.arranged)


def _parents(touch: Touched, key: KeyOf) -> tuple[str | None, list[str]]:
    """What a row names now by one foreign key, and what it has named before and does not any more."""
    now = touch.routes
    current = None if now is None else key(now)
    if len(touch.seen) <= (now is not None):
        return current, []
    former = dict.fromkeys(key(routes) for routes in touch.seen)  # in order, so that a seed is repeatable
    return current, [parent for parent in former if parent is not None and parent != current]
