"""Why a joined document looks as it does: the rows of the store that make it, and the changes that made those rows.

Only reads. The document is put together by the engine's own assembler; beside it stands every row that was looked at,
with the stamp that the row carries: position, partition and offset of the change that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cdc.join.document import Part, Shape
from cdc.join.keying import KeyOf
from cdc.join.rows import Stamp, Stored, read
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.keys import document_id, split_id
from sinks.rowstore import key_names
from sinks.rowstore.contract import RowStore
from spark.join.assemble import Assembler, name_of, value_of

# shown      it is in the document
# deleted    only the mark of a deleted row is left
# missing    a row refers to it, and the store has never had it
# elsewhere  an index names it, but the row itself now points at another parent, or has another unique value: the
#            index is a step behind
# older      it has the same unique value as the one that is shown, whose change is newer: its own next change is on
#            its way
# second     it points here as the one that is shown does, and the view says `one: true`
State = Literal["shown", "deleted", "missing", "elsewhere", "older", "second"]


@dataclass(frozen=True)
class Row:
    """A row that the document was made of, or would be.

    Attributes:
        path: its place: ``flight_card.airline``, ``plane_card.flights[0]``.
        table: ``schema.table``.
        key: its id; of one that is missing and referred to by a unique key, that key's value.
        state: see State.
        stamp: of the change that wrote it; None for a row that is missing.
    """

    path: str
    table: str
    key: str
    state: State
    stamp: Stamp | None = None


@dataclass(frozen=True)
class Total:
    """An aggregate.

    Attributes:
        path: its place.
        table: ``schema.table`` of the rows that it is over.
        value: as in the document; None when not ``known``.
        count: how many values are in it (of count(distinct): different ones); None where that is not kept: min and max.
        known: whether the value could be read: its type may be known to Spark SQL alone.
    """

    path: str
    table: str
    value: Any
    count: int | None
    known: bool


@dataclass(frozen=True)
class Explained:
    """What the row store knows of one document.

    Attributes:
        version: of the document; None if none was raised: it was never made, or not since its fill.
        document: what the store would make of it now, without ``fields`` and ``where``; None if its row is not there.
        rows: the root's first.
        cut: path -> children that the view's ``limit`` leaves out.
        totals: aggregates.
        unknown: names that lead in the document to aggregates whose value is not known here.
        waiting: documents of the view, this or others, that a large fan-out has left to be made again.
    """

    version: int | None
    document: bytes | None = None
    rows: list[Row] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    totals: list[Total] = field(default_factory=list)
    unknown: frozenset[tuple[str, ...]] = frozenset()
    waiting: int = 0


def row_id(view: JoinedView, key: str) -> str | None:
    """The root row's id of a document's, the other way round than ``view.document_of``; None if it can't be one."""
    texts = split_id(key, len(view.key))
    if len(texts) != len(view.key):
        return None
    by_name = dict(zip(view.key, texts, strict=True))
    return document_id([by_name[name] for name in view.table.primary_key])


def explain(view: JoinedView, store: RowStore, key: str) -> Explained:
    """Look a document up in the row store.

    Args:
        view: the view; the types of its aggregates' expressions may be unknown (``spark.join.child_expressions``).
        store: its row store.
        key: the document's id.

    Raises:
        SinkUnavailable: the store does not answer (transient).
        StateError: it holds what is no row (terminal).
    """
    root = row_id(view, key)
    if root is None:
        return Explained(None)
    untyped = frozenset(_untyped(view.tree))
    unknown = frozenset(map(view.tree.leading, untyped))
    if untyped:
        view = replace(view, root=_guessed(view.tree))
    counter, value = store.get(
        [key_names.version(root), key_names.row(view.layout.tables[view.table.qualified].number, root)]
    )
    version = int(counter) if counter is not None else None
    if value is None:
        return Explained(version, unknown=unknown, waiting=store.waiting())
    # By the indexes: arrangements (``cdc.join.layout.Ordered``) have only stores of since there are any.
    assembler = Assembler(view.tree, view.layout.over("none"), store)
    part = assembler.read([root]).get(root)
    walk = _Walk(view, store)
    walk.ask(view.name, view.table.qualified, root, "shown" if part is not None else "missing")
    document = None
    if part is not None:
        walk.node(assembler.shape, part, view.name, ())
        document = assembler.shape.document(part)
    rows = walk.rows()
    return Explained(version, document, rows, walk.cut, walk.totals(untyped), unknown, store.waiting())


@dataclass(frozen=True)
class _Indexed:
    """Rows that an index leads to, children of one row or holders of one unique value, and which of them are shown."""

    path: str
    node: Node
    index: str
    value: str
    of: KeyOf
    kept: frozenset[str]


class _Walk:
    """Goes through a document's parts and collects what to read beside them; reads it afterwards, in bulk."""

    def __init__(self, view: JoinedView, store: RowStore) -> None:
        self.layout, self.store = view.layout, store
        self.cut: dict[str, int] = {}
        self._asked: list[Row] = []
        self._indexed: list[_Indexed] = []
        self._aggregates: list[tuple[str, tuple[str, ...], Aggregate, Any, str | None, int]] = []
        # References by a unique key whose value no row has.
        self._unheld: list[Row] = []

    def ask(self, path: str, table: str, key: str, state: State) -> None:
        """Remember a row."""
        self._asked.append(Row(path, table, key, state))

    def node(self, shape: Shape, part: Part, path: str, names: tuple[str, ...]) -> None:
        """A row at its place, and all below it."""
        node = shape.node
        for below, ref in zip(shape.refs, part.refs, strict=True):
            at = f"{path}.{below.node.name}"
            value = value_of(self.layout, node.table, below.node.lefts)(part.row)
            if value is not None:
                self._referred(below.node, ref, at, value)
            if ref is not None:
                self.node(below, ref, at, (*names, below.node.name))
        for below, children in zip(shape.children, part.children, strict=True):
            self._below(node, below, part, children, f"{path}.{below.node.name}", (*names, below.node.name))
        for group in (group for group in self.layout.groups if group.path == names):
            for number, item in enumerate(group.aggregates):
                value = part.aggregates[[a.name for a in node.aggregates].index(item.name)]
                key = name_of(self.layout, node.table, group.named)(part)
                named = None if key is None else key_names.group(group.number, key)
                self._aggregates.append((f"{path}.{item.name}", (*names, item.name), item, value, named, number))

    def _referred(self, node: Node, ref: Part | None, path: str, value: str) -> None:
        """A reference's row, and what else has or had the unique value by which it is found."""
        if node.as_of is not None:
            # Other versions are no rows that the document might show instead.
            key = ref.key if ref is not None else value
            self.ask(path, node.table.qualified, key, "shown" if ref is not None else "missing")
            return
        unique = self.layout.unique(node.table, node.rights)
        if unique is None or ref is not None:
            key = value if ref is None else ref.key
            self.ask(path, node.table.qualified, key, "shown" if ref is not None else "missing")
        else:
            self._unheld.append(Row(path, node.table.qualified, value, "missing"))
        if unique is not None:
            of = value_of(self.layout, node.table, node.rights)
            kept = frozenset([ref.key] if ref is not None else ())
            index = key_names.index(unique.number, value)
            self._indexed.append(_Indexed(path, node, index, value, of, kept))

    def _below(
        self, node: Node, below: Shape, part: Part, children: Sequence[Part], path: str, names: tuple[str, ...]
    ) -> None:
        value = name_of(self.layout, node.table, below.node.lefts)(part)
        if value is None:
            return
        of = value_of(self.layout, below.node.table, below.node.rights)
        index = key_names.index(self.layout.index(node, below.node).number, value)
        kept = frozenset(child.key for child in children)
        self._indexed.append(_Indexed(path, below.node, index, value, of, kept))
        for number, child in enumerate(children):
            at = f"{path}[{number}]" if below.node.many else path
            self.ask(at, below.node.table.qualified, child.key, "shown")
            self.node(below, child, at, names)

    def rows(self) -> list[Row]:
        """Every row that was asked for, with its stamp; then those that an index names and the document does not."""
        held = self._read([(row.table, row.key) for row in self._asked])
        known = [_stamped(row, held.get((row.table, row.key))) for row in self._asked]
        return known + self._unheld + self._left_out()

    def _left_out(self) -> list[Row]:
        found: list[Row] = []
        members = self.store.members([one.index for one in self._indexed])
        left = [(one, key) for one, of in zip(self._indexed, members, strict=True) for key in of if key not in one.kept]
        held = self._read([(one.node.table.qualified, key) for one, key in left])
        for one, key in left:
            table = one.node.table.qualified
            stored = held.get((table, key))
            if stored is not None and stored.row is not None and one.of(stored.row) == one.value:
                if one.node.kind == "child" and not one.node.one:
                    self.cut[one.path] = self.cut.get(one.path, 0) + 1
                else:
                    second: State = "second" if one.node.one else "older"
                    found.append(_stamped(Row(one.path, table, key, second), stored))
            else:
                state: State = "missing" if stored is None else "elsewhere"
                found.append(_stamped(Row(one.path, table, key, state), stored))
        return found

    def totals(self, unknown: frozenset[tuple[str, ...]]) -> list[Total]:
        """The aggregates, with how many values are in each."""
        found = []
        # Nothing points at a row whose unique key is NULL.
        asked = [named for *_, named, _ in self._aggregates if named is not None]
        held = dict(zip(asked, self.store.totals(asked), strict=True))
        for path, names, item, value, named, number in self._aggregates:
            totals = held[named] if named is not None else {}
            known = names not in unknown
            count = totals.get(f"{'d' if item.distinct else 'n'}{number}", 0)
            counted = None if item.function in ("min", "max") else count
            found.append(Total(path, item.table.qualified, value if known else None, counted, known))
        return found

    def _read(self, asked: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Stored]:
        wanted = list(dict.fromkeys(asked))
        values = self.store.get([key_names.row(self.layout.tables[table].number, key) for table, key in wanted])
        return {one: read(value) for one, value in zip(wanted, values, strict=True) if value is not None}


def _stamped(row: Row, stored: Stored | None) -> Row:
    if stored is None:
        return row
    return replace(row, stamp=stored.stamp, state="deleted" if stored.row is None else row.state)


def _is_untyped(item: Aggregate) -> bool:
    return item.column is None and item.value is not None and item.function != "count" and item.kind is None


def _untyped(root: Node) -> list[tuple[str, ...]]:
    """Names that lead to aggregates over expressions whose type only Spark SQL knows."""
    return [(*path, item.name) for path, node in root.walk() for item in node.aggregates if _is_untyped(item)]


def _guessed(node: Node) -> Node:
    """The tree with a type for each of those by which they can be read, though not understood."""
    return replace(
        node,
        refs=tuple(_guessed(ref) for ref in node.refs),
        children=tuple(_guessed(child) for child in node.children),
        aggregates=tuple(replace(a, kind="string") if _is_untyped(a) else a for a in node.aggregates),
    )
