"""Reading a document's rows from the store, level by level: a few round trips for hundreds of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import orjson

from cdc.catalogue import Table
from cdc.join.aggregates import extreme, summed, value_kind
from cdc.join.document import Part, Shape, rank_of
from cdc.join.keying import KeyOf, key_of
from cdc.join.layout import Group, Layout
from cdc.join.ordering import is_text
from cdc.join.rows import STAMP, read_row
from cdc.join.tree import Node, Order
from cdc.join.versions import by_time, shown
from sinks.rowstore import key_names
from sinks.rowstore.contract import RowStore

# Bytes of JSON that a cache of shared parts may hold in a worker; as Python's objects they are some five times as much.
CACHE_BYTES = 8 << 20

# So many times as many children are looked at where some of the first were none.
FURTHER = 4

_JSON_KINDS = frozenset(("tinyint", "smallint", "int", "bigint", "float", "double", "boolean"))


# What rows that point at a part hold of it; None if nothing can point at it, because its unique key is NULL.
NameOf = Callable[[Part], str | None]


def value_of(layout: Layout, table: Table, columns: tuple[str, ...]) -> KeyOf:
    """A function that gives the value that some columns of a stored row make; None if one of them is NULL."""
    return key_of(table, columns, layout.tables[table.qualified].places(columns))


def name_of(layout: Layout, table: Table, key: tuple[str, ...]) -> NameOf:
    """A function that gives the value of a key of a part: its id, or that of a unique key."""
    if layout.unique(table, key) is None:
        return lambda part: part.key
    value = value_of(layout, table, key)
    return lambda part: value(part.row)


class _Reader:
    """One node, compiled for reading."""

    def __init__(self, shape: Shape, layout: Layout, path: tuple[str, ...]) -> None:
        node = shape.node
        self.shape = shape
        # For a reference by a unique key: the index of its rows by that key, and the key's value of a row.
        self.unique: tuple[int, KeyOf] | None = None
        # For a reference to a row as it was: its versions, and the moment of the row above.
        self.as_of: tuple[int, Callable[[Sequence[Any]], float]] | None = None
        self.layout = layout.tables[node.table.qualified]
        self.held: dict[str, Part | None] = {}
        self.table = layout.tables[node.table.qualified].number
        self.refs: list[tuple[_Reader, KeyOf]] = []
        for below in shape.refs:
            reader = _Reader(below, layout, (*path, below.node.name))
            reader.as_of = _as_of(layout, node, below.node, (*path, below.node.name))
            index = layout.unique(below.node.table, below.node.rights)
            if index is not None:
                reader.unique = index.number, value_of(layout, below.node.table, below.node.rights)
            self.refs.append((reader, value_of(layout, node.table, below.node.lefts)))
        ordered = layout.arranged(path)
        self.arranged = None if ordered is None else ordered.number
        # Each with the value that its rows have, the one that the row above has, and the index between them.
        self.children: list[tuple[_Reader, KeyOf, NameOf, int]] = []
        for below in shape.children:
            reader = _Reader(below, layout, (*path, below.node.name))
            key = value_of(layout, below.node.table, below.node.rights)
            named = name_of(layout, node.table, below.node.lefts)
            self.children.append((reader, key, named, layout.index(node, below.node).number))
        self.groups = [(g, name_of(layout, node.table, g.named)) for g in layout.groups if g.path == path]
        self.where = {id(a): (group, n) for group, _ in self.groups for n, a in enumerate(group.aggregates)}


def _as_of(
    layout: Layout, above: Node, node: Node, path: tuple[str, ...]
) -> tuple[int, Callable[[Sequence[Any]], float]] | None:
    """Of a node that is shown as it was: its versions' number, and when a row above says it is to be."""
    found = layout.as_of(path)
    if found is None or node.as_of is None:
        return None
    at = layout.tables[above.table.qualified].places((node.as_of,))[0]
    return found[1].number, rank_of(above.table.by_name[node.as_of], at, Order(node.as_of))


class Assembler:
    """Puts documents together.

    Args:
        root: the view's tree.
        layout: its layout.
        store: its row store.
        remember: keep rows that documents refer to, ready as JSON. Only while nobody changes them: during a fill.
        said: Spark SQL over the documents, as ``Shape`` takes it.
    """

    def __init__(
        self,
        root: Node,
        layout: Layout,
        store: RowStore,
        *,
        remember: bool = False,
        said: Sequence[str] | None = None,
    ) -> None:
        self.store, self.remember = store, remember
        self._bytes = 0
        self.shape = Shape(root, layout, said)
        self._root = _Reader(self.shape, layout, ())

    def read(self, ids: Sequence[str]) -> dict[str, Part | None]:
        """The documents' rows as they are now.

        Args:
            ids: of roots.

        Returns:
            a part for each root that is there, None for one that was deleted; nothing for one that never came.
        """
        values = self.store.get([key_names.row(self._root.table, key) for key in ids])
        found: dict[str, Part | None] = {}
        for key, value in zip(ids, values, strict=True):
            if value is not None:
                row = read_row(value)
                found[key] = None if row is None else Part(key, row)
        self._fill(self._root, [part for part in found.values() if part is not None])
        return found

    def around(self, rows: Mapping[str, list[Any] | None]) -> dict[str, Part | None]:
        """What hangs on roots whose rows are known.

        Args:
            rows: root -> its row; None for one that was deleted.
        """
        found = {key: None if row is None else Part(key, row) for key, row in rows.items()}
        self._fill(self._root, [part for part in found.values() if part is not None])
        return found

    def _named(self, below: _Reader, names: Iterable[str]) -> dict[str, Part]:
        """The rows that a reference names, by primary key or by unique value."""
        return (
            self._rows(below.table, names) if below.unique is None else self._holders(below.table, names, *below.unique)
        )

    def _holders(self, table: int, names: Iterable[str], index: int, key: KeyOf) -> dict[str, Part]:
        """Rows by unique value. Of several, which are there only in passing, the one with the newest change."""
        wanted = list(names)
        members = self.store.members([key_names.index(index, name) for name in wanted]) if wanted else []
        ids = list(dict.fromkeys(member for of in members for member in of))
        read = self.store.get([key_names.row(table, member) for member in ids]) if ids else []
        values = dict(zip(ids, read, strict=True))
        found: dict[str, Part] = {}
        for name, of in zip(wanted, members, strict=True):
            for _, member in sorted(((values[member] or b"")[:STAMP], member) for member in of):
                row = read_row(values[member])
                # The index may be a step behind: a row counts only if it still has this value.
                if row is not None and key(row) == name:
                    found[name] = Part(member, row)
        return found

    def _rows(self, table: int, ids: Iterable[str], *, stamped: bool = False) -> dict[str, Part]:
        wanted = list(dict.fromkeys(ids))
        values = self.store.get([key_names.row(table, key) for key in wanted]) if wanted else []
        rows = ((key, read_row(value)) for key, value in zip(wanted, values, strict=True))
        found = {key: Part(key, row) for key, row in rows if row is not None}
        if stamped:
            for key, value in zip(wanted, values, strict=True):
                if value is not None and key in found:
                    found[key].stamp = value[:STAMP]
        return found

    def _fill(self, reader: _Reader, parts: Sequence[Part]) -> None:
        """Read what hangs on parts of one node."""
        if not parts:
            return
        for below, key in reader.refs:
            if below.as_of is not None:
                self._as_they_were(parts, below, key, *below.as_of)
                continue
            named = [key(part.row) for part in parts]
            found = self._referred(below, {name: None for name in named if name is not None})
            for part, name in zip(parts, named, strict=True):
                part.refs.append(found.get(name) if name is not None else None)
        for below, value, named_by, index in reader.children:
            self._children(parts, below, value, named_by, index)
        if reader.groups:
            self._aggregates(reader, parts)

    def _as_they_were(
        self,
        parts: Sequence[Part],
        below: _Reader,
        key: KeyOf,
        versions: int,
        moment_of: Callable[[Sequence[Any]], float],
    ) -> None:
        """Rows that are referred to, each as it was at the moment of the one that refers to it.

        NULL stands at minus infinity, and Postgres's infinities at the ends: none of them is a moment.
        """
        named = [(key(part.row), moment_of(part.row)) for part in parts]
        wanted = list(dict.fromkeys((name, at) for name, at in named if name is not None and abs(at) != inf))
        asked = [(key_names.arranged(versions, name), at) for name, at in wanted]
        members = self.store.beginning(asked) if asked else []
        found = self._rows(below.table, (member for of in members for member in of))
        were: dict[tuple[str | None, float], Part | None] = {}
        for (name, at), of in zip(wanted, members, strict=True):
            held = [found[member] for member in sorted(of, key=by_time) if member in found]
            row = shown(below.layout, [part.row for part in held], at)
            were[name, at] = None if row is None else next(part for part in held if part.row is row)
        for part, at_its_time in zip(parts, named, strict=True):
            part.refs.append(were.get(at_its_time))

    def _referred(self, below: _Reader, wanted: Mapping[str, None]) -> Mapping[str, Part | None]:
        """Rows that are referred to, with all that hangs on them."""
        if not self.remember:
            found = self._named(below, wanted)
            self._fill(below, list(found.values()))
            return found
        held = {name: below.held[name] for name in wanted if name in below.held}
        missing = [name for name in wanted if name not in held]
        if missing:
            found = self._named(below, missing)
            self._fill(below, list(found.values()))
            new: dict[str, Part | None] = {name: found.get(name) for name in missing}
            self._keep(below, new)
            held |= new
        return held

    def _keep(self, below: _Reader, parts: Mapping[str, Part | None]) -> None:
        for key, part in parts.items():
            self._bytes += len(key) + 100
            if part is not None:
                text = orjson.dumps(below.shape.plain(part))
                # Of a hidden row its fields are needed one by one, and of a value whether it is NULL.
                if not below.shape.node.hide and below.shape.node.value is None:
                    part.json, part.plain = orjson.Fragment(text), None
                self._bytes += len(text)
        if self._bytes > CACHE_BYTES:
            self._forget(self._root)
            self._bytes = 0
            return
        below.held.update(parts)

    def _forget(self, reader: _Reader) -> None:
        reader.held.clear()
        for below in (*(ref for ref, _ in reader.refs), *(child for child, *_ in reader.children)):
            self._forget(below)

    def _children(self, parts: Sequence[Part], below: _Reader, value: KeyOf, named_by: NameOf, index: int) -> None:
        names = [named_by(part) for part in parts]
        if below.arranged is None:
            members = self._members(index, names)
            one = below.shape.node.one
            found = self._rows(below.table, (member for of in members.values() for member in of), stamped=one)
        else:
            members, found = self._foremost(below, below.arranged, value, names)
        kept: dict[str, Part] = {}
        for part, name in zip(parts, names, strict=True):
            # An index may be a step behind: a child counts only if its row still names this parent.
            of = members[name] if name is not None else ()
            mine = [found[member] for member in of if member in found and value(found[member].row) == name]
            mine = below.shape.arranged(mine)
            part.children.append(mine)
            # Two parents that share a unique value, in passing, share its rows.
            kept |= {child.key: child for child in mine}
        self._fill(below, list(kept.values()))

    def _foremost(
        self, below: _Reader, arranged: int, value: KeyOf, names: Iterable[str | None]
    ) -> tuple[dict[str, list[str]], dict[str, Part]]:
        """Children of which only the first are shown: so many, those that share the last one's place, and their rows.

        More, where some of them do not name this parent any more and the arrangement is a step behind.
        """
        limit = count = below.shape.node.limit or 0
        members: dict[str, list[str]] = {}
        found: dict[str, Part] = {}
        wanted = list(dict.fromkeys(name for name in names if name is not None))
        while wanted:
            answers = self.store.foremost([(key_names.arranged(arranged, name), count) for name in wanted])
            members |= dict(zip(wanted, answers, strict=True))
            found |= self._rows(below.table, (member for of in answers for member in of if member not in found))
            mine = {n: sum(m in found and value(found[m].row) == n for m in members[n]) for n in wanted}
            wanted = [name for name in wanted if mine[name] < limit and len(members[name]) >= count]
            count *= FURTHER
        return members, found

    def _members(self, index: int, names: Iterable[str | None]) -> dict[str, list[str]]:
        wanted = list(dict.fromkeys(name for name in names if name is not None))
        found = self.store.members([key_names.index(index, name) for name in wanted]) if wanted else []
        return dict(zip(wanted, found, strict=True))

    def _aggregates(self, reader: _Reader, parts: Sequence[Part]) -> None:
        totals: dict[int, list[Mapping[str, int]]] = {}
        ends: dict[tuple[int, int], list[Sequence[str]]] = {}
        for group, named_by in reader.groups:
            names = [named_by(part) for part in parts]
            wanted = [key_names.group(group.number, name) for name in names if name is not None]
            # Nothing points at a row whose unique key is NULL.
            held = iter(self.store.totals(wanted) if wanted else ())
            totals[group.number] = [{} if name is None else next(held) for name in names]
            for number, aggregate in enumerate(group.aggregates):
                if aggregate.function in ("min", "max"):
                    by_bytes = is_text(value_kind(aggregate))
                    greatest = aggregate.function == "max"
                    asked = [(name, number, greatest, by_bytes) for name in wanted]
                    found = iter(self.store.extremes(asked) if asked else ())
                    ends[group.number, number] = [() if name is None else next(found) for name in names]
        for at, part in enumerate(parts):
            for aggregate in reader.shape.node.aggregates:
                group, number = reader.where[id(aggregate)]
                part.aggregates.append(_value(group, number, totals[group.number][at], ends, at))


def _value(
    group: Group,
    number: int,
    totals: Mapping[str, int],
    ends: Mapping[tuple[int, int], list[Sequence[str]]],
    at: int,
) -> Any:
    aggregate = group.aggregates[number]
    if aggregate.function == "count":
        return totals.get(f"d{number}" if aggregate.distinct else f"n{number}", 0)
    if aggregate.function in ("min", "max"):
        text = value_kind(aggregate) not in _JSON_KINDS
        return extreme(aggregate, [_candidate(value, text=text) for value in ends[group.number, number][at]])
    prefix = f"s{number}:"
    limbs = {name[len(prefix) :]: count for name, count in totals.items() if name.startswith(prefix)}
    return summed(aggregate, limbs, totals.get(f"n{number}", 0))


def _candidate(member: str, *, text: bool) -> Any:
    """A member's value: text, exact decimals and moments stand as they are, other numbers are JSON."""
    if text:
        return member
    try:
        found = orjson.loads(member)
    except orjson.JSONDecodeError:
        return member  # NaN and the infinities
    return found
