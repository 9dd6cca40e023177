"""Which documents a changed row is in: from the row up the view's tree to the roots, by foreign keys and indexes.

Fan-out is deferred: of a row that fifty thousand documents refer to, the roots are noted in the row store, some
thousand at a time, and made by a job of their own (spark/join/later.py). So are those that few rows lead to over many
in between: each may have few referring rows, and all together millions. Memory is bounded by the piece, whatever the
fan-out, and the batch that brought the change goes on to the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from cdc.catalogue import Table
from cdc.join.keying import KeyOf, key_of
from cdc.join.layout import Layout, TableLayout
from cdc.join.rows import read_row
from cdc.join.tree import Node
from cdc.join.versions import since_of
from sinks.rowstore import key_names
from sinks.rowstore.contract import RowStore
from spark.join.maintain import Touched

# Index entries a step: bounds what a climb holds in memory (an id is about 100 bytes).
PIECE = 2000

# Roots of a changed row that its own batch makes, on the average of a batch with many of them.
FEW = 10

Names = tuple[str, ...]
# Row id, or a value that rows are found by -> position of the newest change that led there.
Ids = dict[str, int]


@dataclass(frozen=True)
class _Step:
    """From a row to those above it: first the values that both have, then the rows that have them.

    Attributes:
        stored: the layout of the row's table.
        index: number of the index that leads from the values to the rows above; None if they are their primary key.
        from_routes: the values, from a row's routes: children have a foreign key, and references by a unique key
            that one. None if they are the row's own primary key.
        from_row: the same from a whole stored row.
        as_of: of a row that is shown as it was: numbers of the arrangements of rows that refer to it, by their
            moments, and of its versions. Always the first step of a way.
    """

    stored: TableLayout
    index: int | None
    from_routes: KeyOf | None = None
    from_row: KeyOf | None = None
    as_of: tuple[int, int] | None = None


class Climber:
    """Finds the roots of changed rows.

    Args:
        root: the view's tree.
        layout: its layout.
        store: its row store.
        defer_above: see ``roots``.
    """

    def __init__(self, root: Node, layout: Layout, store: RowStore, defer_above: int = PIECE) -> None:
        self.store, self.defer_above = store, defer_above
        # Every place of every table: the steps from there to the root, the nearest first.
        self._places: dict[str, list[tuple[_Step, ...]]] = {}
        # For aggregates: the step to the row that has them, and those from there.
        self._sums: dict[str, list[tuple[_Step, ...]]] = {}
        ways: dict[tuple[str, ...], tuple[_Step, ...]] = {}
        nodes: dict[tuple[str, ...], Node] = {}
        for path, node in root.walk():
            nodes[path] = node
            ways[path] = (_step(layout, nodes[path[:-1]], node, path), *ways[path[:-1]]) if path else ()
            self._places.setdefault(node.table.qualified, []).append(ways[path])
        for group in layout.groups:
            step = _to_key(layout, layout.tables[group.table], group.foreign_key, nodes[group.path].table, group.named)
            self._sums.setdefault(group.table, []).append((step, *ways[group.path]))

    def roots(self, touched: Sequence[Touched]) -> Iterator[Ids]:
        """The roots of touched rows, a piece at a time; a root may come in more than one piece.

        Those that a row with more than ``defer_above`` referring rows leads to are not among them, nor those beyond
        what so many rows have on one way: they are deferred, so that one change does not hold up all others.
        """
        by_table: dict[str, list[Touched]] = {}
        for touch in touched:
            by_table.setdefault(touch.table, []).append(touch)
        for table, rows in by_table.items():
            for way in (*self._places.get(table, ()), *self._sums.get(table, ())):
                if not way:
                    yield {touch.key: touch.position for touch in rows}
                    continue
                most, found = max(self.defer_above, min(FEW, self.defer_above) * len(rows)), 0
                for piece in self._on(rows, way):
                    found += len(piece)
                    if found > most:
                        self.store.defer(piece)
                    else:
                        yield piece

    def _on(self, rows: Sequence[Touched], way: Sequence[_Step]) -> Iterator[Ids]:
        """The roots of rows on one way up."""
        if way[0].as_of is not None:
            yield from self._concerned(rows, way)
        elif way[0].from_routes is None:
            yield from self._above({touch.key: touch.position for touch in rows}, way)
        else:
            yield from self._above(_values(rows, way[0].from_routes), way)

    def _concerned(self, rows: Sequence[Touched], way: Sequence[_Step]) -> Iterator[Ids]:
        """The roots of rows that refer to versions of others: those of moments since a version began.

        The oldest version that is known concerns also what was before it."""
        step, rest = way[0], way[1:]
        assert step.as_of is not None and step.from_routes is not None
        dated, versions = step.as_of
        began = since_of(step.stored)
        found: dict[str, tuple[float, int]] = {}
        for touch in rows:
            assert touch.row is not None
            name, since = str(step.from_routes(touch.seen[0])), began(touch.row)
            least, position = found.get(name, (since, 0))
            found[name] = min(least, since), max(position, touch.position)
        firsts = self.store.beginning([(key_names.arranged(versions, name), -inf) for name in found])
        touched = {touch.key for touch in rows}
        asked = {
            (key_names.arranged(dated, name), least if touched.isdisjoint(first) else -inf): position
            for (name, (least, position)), first in zip(found.items(), firsts, strict=True)
        }
        yield from self._dated(asked, rest)

    def _dated(self, asked: Mapping[tuple[str, float], int], rest: Sequence[_Step]) -> Iterator[Ids]:
        """The roots of rows from places of arrangements on; what many lead to is deferred."""
        few: dict[tuple[str, float], int] = {}
        expected = 0
        for (place, position), size in zip(asked.items(), self.store.count_onward([*asked]), strict=True):
            if size > min(PIECE, self.defer_above):
                for members in self.store.onward(*place, PIECE):
                    for piece in self._up(dict.fromkeys(members, position), rest):
                        self.store.defer(piece)
            elif size:
                few[place] = position
                expected += size
                if expected >= PIECE:
                    yield from self._up(self._all_onward(few), rest)
                    few, expected = {}, 0
        yield from self._up(self._all_onward(few), rest)

    def _all_onward(self, few: Mapping[tuple[str, float], int]) -> Ids:
        found: Ids = {}
        if few:
            for position, members in zip(few.values(), self.store.all_onward([*few]), strict=True):
                for member in members:
                    found[member] = max(found.get(member, 0), position)
        return found

    def _up(self, ids: Ids, way: Sequence[_Step]) -> Iterator[Ids]:
        if not ids:
            return
        if not way:
            yield ids
            return
        yield from self._above(self._read_values(ids, way[0]), way)

    def _above(self, values: Ids, way: Sequence[_Step]) -> Iterator[Ids]:
        """The roots of rows that have any of the values by which the first step leads up."""
        step, rest = way[0], way[1:]
        if step.index is None:
            yield from self._up(values, rest)
        elif values:
            for piece in self._referring(values, step.index, rest):
                yield from self._up(piece, rest)

    def _read_values(self, ids: Ids, step: _Step) -> Ids:
        if step.from_row is None:
            return ids
        found: Ids = {}
        names = [key_names.row(step.stored.number, key) for key in ids]
        for position, stored in zip(ids.values(), self.store.get(names), strict=True):
            row = read_row(stored)
            value = None if row is None else step.from_row(row)
            if value is not None:
                found[value] = max(found.get(value, 0), position)
        return found

    def _referring(self, ids: Ids, index: int, rest: Sequence[_Step]) -> Iterator[Ids]:
        """Rows that small indexes name for any of ``ids``; what large ones lead to is deferred."""
        names = {key: key_names.index(index, key) for key in ids}
        sizes = dict(zip(ids, self.store.sizes(list(names.values())), strict=True))
        small: list[str] = []
        expected = 0
        for key, size in sizes.items():
            if size > self.defer_above:
                for members in self.store.scan(names[key], PIECE):
                    for piece in self._up(dict.fromkeys(members, ids[key]), rest):
                        self.store.defer(piece)
            elif size:
                small.append(key)
                expected += size
                if expected >= PIECE:
                    yield self._gather(small, names, ids)
                    small, expected = [], 0
        piece = self._gather(small, names, ids)
        if piece:
            yield piece

    def _gather(self, small: Sequence[str], names: Mapping[str, str], ids: Ids) -> Ids:
        found: Ids = {}
        if small:
            for key, members in zip(small, self.store.members([names[key] for key in small]), strict=True):
                for member in members:
                    found[member] = max(found.get(member, 0), ids[key])
        return found


def _step(layout: Layout, above: Node, node: Node, path: Names) -> _Step:
    stored = layout.tables[node.table.qualified]
    as_of = layout.as_of(path)
    if as_of is not None:
        return _Step(stored, None, *_both(stored, node.rights), (as_of[0].number, as_of[1].number))
    if node.kind == "child":
        return _to_key(layout, stored, node.rights, above.table, node.lefts)
    index = layout.index(above, node).number
    if layout.unique(node.table, node.rights) is None:
        return _Step(stored, index)
    return _Step(stored, index, *_both(stored, node.rights))


def _to_key(layout: Layout, stored: TableLayout, foreign_key: Names, above: Table, key: Names) -> _Step:
    """From a row to the one that its foreign key names."""
    index = layout.unique(above, key)
    return _Step(stored, None if index is None else index.number, *_both(stored, foreign_key))


def _both(stored: TableLayout, columns: Names) -> tuple[KeyOf, KeyOf]:
    """Some columns' value from a row's routes, and from a whole row."""
    routes = [stored.routes.index(name) for name in columns]
    return key_of(stored.table, columns, routes), key_of(stored.table, columns, stored.places(columns))


def _values(rows: Sequence[Touched], value_of: KeyOf) -> Ids:
    """The values that rows have, or had while documents may have shown them."""
    found: Ids = {}
    for touch in rows:
        for routes in touch.seen:
            value = value_of(routes)
            if value is not None:
                found[value] = max(found.get(value, 0), touch.position)
    return found


def merged(pieces: Iterator[Ids], size: Callable[[], int]) -> Iterator[Ids]:
    """Pieces joined or cut to about ``size`` roots, so that a root that several rows of a batch touch comes once."""
    held: Ids = {}
    for piece in pieces:
        for key, position in piece.items():
            held[key] = max(held.get(key, 0), position)
        while len(held) >= (most := size()):
            out = dict(islice(held.items(), most))
            for key in out:
                del held[key]
            yield out
    if held:
        yield held
