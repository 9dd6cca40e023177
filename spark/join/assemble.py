"""Reading a document's rows from the store, level by level: a few round trips for hundreds of documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from cdc.join.aggregates import extreme, summed, value_kind
from cdc.join.document import Part, Shape
from cdc.join.keying import KeyOf, key_of
from cdc.join.layout import Group, Layout
from cdc.join.ordering import is_text
from cdc.join.rows import STAMP, read_row
from cdc.join.tree import Node
from sinks.rowstore import key_names
from sinks.rowstore.contract import RowStore

# Bytes of JSON that a cache of shared parts may hold in a worker; as Python's objects they are some five times as much.
CACHE_BYTES = 8 << 20

_JSON_KINDS = frozenset(("tinyint", "smallint", "int", "bigint", "float", "double", "boolean"))


class _Reader:
    """One node, compiled for reading."""

    def __init__(self, shape: Shape, layout: Layout, path: tuple[str, ...]) -> None:
        node = shape.node
        self.shape = shape
        self.held: dict[str, Part | None] = {}
        self.table = layout.tables[node.table.qualified].number
        own = layout.tables[node.table.qualified]
        self.refs: list[tuple[_Reader, KeyOf]] = []
        for below in shape.refs:
            columns = tuple(left for left, _ in below.node.on)
            key = key_of(node.table, columns, own.places(columns))
            self.refs.append((_Reader(below, layout, (*path, below.node.name)), key))
        self.children: list[tuple[_Reader, KeyOf, int]] = []
        for below in shape.children:
            columns = tuple(right for _, right in below.node.on)
            stored = layout.tables[below.node.table.qualified]
            key = key_of(below.node.table, columns, stored.places(columns))
            index = layout.index(node, below.node).number
            self.children.append((_Reader(below, layout, (*path, below.node.name)), key, index))
        self.groups = [group for group in layout.groups if group.path == path]
        self.where = {id(a): (group, n) for group in self.groups for n, a in enumerate(group.aggregates)}


class Assembler:
    """Puts documents together.

    Args:
        root: the view's tree.
        layout: its layout.
        store: its row store.
        remember: keep rows that documents refer to, ready as JSON. Only while nobody changes them: during a fill.
    """

    def __init__(self, root: Node, layout: Layout, store: RowStore, *, remember: bool = False) -> None:
        self.store, self.remember = store, remember
        self._bytes = 0
        self.shape = Shape(root, layout)
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
            named = [key(part.row) for part in parts]
            found = self._referred(below, {name: None for name in named if name is not None})
            for part, name in zip(parts, named, strict=True):
                part.refs.append(found.get(name) if name is not None else None)
        for below, key, index in reader.children:
            self._children(parts, below, key, index)
        if reader.groups:
            self._aggregates(reader, parts)

    def _referred(self, below: _Reader, wanted: Mapping[str, None]) -> Mapping[str, Part | None]:
        """Rows that are referred to, with all that hangs on them."""
        if not self.remember:
            found = self._rows(below.table, wanted)
            self._fill(below, list(found.values()))
            return found
        held = {name: below.held[name] for name in wanted if name in below.held}
        missing = [name for name in wanted if name not in held]
        if missing:
            found = self._rows(below.table, missing)
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

    def _children(self, parts: Sequence[Part], below: _Reader, key: KeyOf, index: int) -> None:
        members = self.store.members([key_names.index(index, part.key) for part in parts])
        one = below.shape.node.one
        found = self._rows(below.table, (member for of in members for member in of), stamped=one)
        kept: list[Part] = []
        for part, of in zip(parts, members, strict=True):
            # An index may be a step behind: a child counts only if its row still names this parent.
            mine = [found[member] for member in of if member in found and key(found[member].row) == part.key]
            mine = below.shape.arranged(mine)
            part.children.append(mine)
            kept += mine
        self._fill(below, kept)

    def _aggregates(self, reader: _Reader, parts: Sequence[Part]) -> None:
        totals: dict[int, list[dict[str, int]]] = {}
        ends: dict[tuple[int, int], list[list[str]]] = {}
        for group in reader.groups:
            named = [key_names.group(group.number, part.key) for part in parts]
            totals[group.number] = self.store.totals(named)
            for number, aggregate in enumerate(group.aggregates):
                if aggregate.function in ("min", "max"):
                    by_bytes = is_text(value_kind(aggregate))
                    greatest = aggregate.function == "max"
                    asked = [(name, number, greatest, by_bytes) for name in named]
                    ends[group.number, number] = self.store.extremes(asked)
        for at, part in enumerate(parts):
            for aggregate in reader.shape.node.aggregates:
                group, number = reader.where[id(aggregate)]
                part.aggregates.append(_value(group, number, totals[group.number][at], ends, at))


def _value(
    group: Group,
    number: int,
    totals: Mapping[str, int],
    ends: Mapping[tuple[int, int], list[list[str]]],
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
