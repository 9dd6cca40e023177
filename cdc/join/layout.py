"""What the row store keeps for a view: per table the columns that the view uses, the indexes and the aggregates.

Only what is used is kept: key and foreign-key columns, the columns of the document, those that an expression names, and
for each aggregate the one value that a row contributes. Everything is called by a small number, because the number is
part of every key in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cdc.catalogue import Table
from cdc.join.expressions import mentions
from cdc.join.tree import Aggregate, Node, Order

# What versions are arranged by: no column has an empty name.
SINCE = ""
# How a row store has the first of many children, which stays as it was when it was filled: as a layout says; by
# ``Ordered.former``, if columns that are the same for all of them were not passed over then; or not at all, if it was
# filled before there was any of this.
Arranged = Literal["now", "former", "none"]
# The number of what is found by an arrangement alone.
NO_INDEX = -1


@dataclass(frozen=True)
class Index:
    """Which rows of a table hold certain values, of a foreign key or a unique one: (table, columns) -> primary keys.

    One of a unique key has one row for a value at rest, and in passing two or none: changes of two rows come in any
    order.
    """

    number: int
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """The aggregates of one node over one table by one foreign key: they share a key in the store.

    Attributes:
        number: of the group.
        path: names from the root to the node that the aggregates belong to.
        table: ``schema.table`` of the rows that contribute.
        foreign_key: its columns that name the node's row, in the order of that row's key.
        named: that key.
        aggregates: in document order.
        first: where the group's values begin among a stored row's contributions.
    """

    number: int
    path: tuple[str, ...]
    table: str
    foreign_key: tuple[str, ...]
    named: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    first: int


@dataclass(frozen=True)
class Ordered:
    """Rows of a table by what they refer to, arranged as a view shows the first of them.

    So that the first fifty of a million are found by looking at fifty. Arranged by the first column that they are
    sorted by and that tells them apart, as far as a double does (``cdc.join.ordering.rank``).

    Attributes:
        number: of the arrangement.
        path: names from the root to the node whose rows they are.
        index: of the same rows by the same columns.
        order: the first column that they are sorted by and that is not the same for all that name one row.
        former: the first column that they are sorted by, of children of which only some are shown.
    """

    number: int
    path: tuple[str, ...]
    index: Index
    order: Order
    former: Order | None = None


@dataclass(frozen=True)
class TableLayout:
    """A table as it is stored: a row is an array of ``columns``, then one contribution for each of ``aggregates``.

    Attributes:
        number: of the table.
        table: the table.
        columns: stored columns, in the table's order.
        routes: those that a climb or an index needs: all foreign keys, and unique keys that rows are joined by.
        aggregates: whose contributions a row of this table carries.
        versions: each change is a row of its own, with when it began (microseconds since 1970) and what it was
            (``cdc.join.versions``) in the place of contributions.
    """

    number: int
    table: Table
    columns: tuple[str, ...]
    routes: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = ()
    groups: tuple[Group, ...] = ()
    versions: bool = False

    def places(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where columns stand in a stored row."""
        return tuple(self.columns.index(name) for name in names)


@dataclass(frozen=True)
class Layout:
    """The whole layout of a view.

    Attributes:
        tables: ``schema.table`` -> its layout.
        indexes: (table, columns) -> index.
        groups: all groups of aggregates.
        ordered: arrangements of children of which only some are shown.
        dated: by the path of a node that is shown as it was: the rows that refer to it, by their moments.
        versions: tables of which all versions are kept: these by when they began.
    """

    tables: dict[str, TableLayout] = field(default_factory=dict)
    indexes: dict[tuple[str, tuple[str, ...]], Index] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    ordered: tuple[Ordered, ...] = ()
    dated: tuple[Ordered, ...] = ()
    versions: tuple[Ordered, ...] = ()

    @classmethod
    def of(cls, root: Node, expressions: Sequence[str] = ()) -> Layout:
        """Lay a tree out.

        Args:
            root: the tree.
            expressions: Spark SQL over the assembled row, whose columns must be stored too.
        """
        found = _Found(root, expressions)
        groups = _groups(found.grouped)
        tables = {}
        for number, (name, table) in enumerate(sorted(root.tables().items())):
            kept = tuple(c.name for c in table.columns if c.name in found.used[name] | found.routes[name])
            mine = tuple(group for group in groups if group.table == name)
            tables[name] = TableLayout(
                number,
                table,
                kept,
                tuple(c for c in kept if c in found.routes[name]),
                tuple(aggregate for group in mine for aggregate in group.aggregates),
                mine,
                name in root.versioned(),
            )
        indexes = {pair: Index(number, *pair) for number, pair in enumerate(dict.fromkeys(found.pairs))}
        ordered = tuple(
            Ordered(number, path, indexes[node.table.qualified, node.rights], *first_sorts(node))
            for number, (path, node) in enumerate(found.limited)
        )
        return cls(tables, indexes, groups, ordered, *_dated(found.dated, len(ordered)))

    def description(self) -> dict[str, object]:
        """What stored rows depend on, as plain data: rows that were stored under another one can't be read."""
        dated = [[one.number, one.index.table, [*one.index.columns, one.order.column]] for one in self.dated]
        versions = [[one.number, one.index.table, list(one.index.columns)] for one in self.versions]
        return {
            "tables": {
                name: [table.number, list(table.columns), [a.name for a in table.aggregates]]
                for name, table in self.tables.items()
            },
            **({"dated": dated, "versions": versions} if dated else {}),
            "indexes": [[index.number, index.table, list(index.columns)] for index in self.indexes.values()],
            "groups": [[group.number, group.table, list(group.foreign_key)] for group in self.groups],
            "ordered": [[one.number, one.index.table, [*one.index.columns, one.order.column]] for one in self.ordered],
        }

    def over(self, arranged: Arranged) -> Layout:
        """This layout over a row store that may have been filled by an older version.

        Args:
            arranged: how it has the first of many children.
        """
        if arranged == "now":
            return self
        former = tuple(replace(one, order=one.former or one.order) for one in self.ordered)
        return replace(self, ordered=former if arranged == "former" else ())

    def arranged(self, path: tuple[str, ...]) -> Ordered | None:
        """The arrangement of a node's rows; None where all of them are shown."""
        return next((one for one in self.ordered if one.path == path), None)

    def renamed(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """An older description with the columns' present names: a row is stored by places, and has no names."""
        now = {name: dict(layout.table.renamed) for name, layout in self.tables.items()}
        tables = {
            name: [number, [now.get(name, {}).get(column, column) for column in columns], aggregates]
            for name, (number, columns, aggregates) in description["tables"].items()
        }
        parts = {
            part: [[number, table, [now.get(table, {}).get(c, c) for c in columns]] for number, table, columns in found]
            for part, found in description.items()
            if part != "tables"
        }
        return {"tables": tables, **parts}

    def index(self, above: Node, nested: Node) -> Index:
        """The index by which ``nested``'s edge is walked: of children by parent, or of rows by what they refer to."""
        holder, columns = _holder(above, nested)
        return self.indexes[holder.qualified, columns]

    def unique(self, table: Table, key: tuple[str, ...]) -> Index | None:
        """The index by which rows are found that hold a unique value; None for the primary key, which is their id."""
        return None if key == table.primary_key else self.indexes[table.qualified, key]

    def as_of(self, path: tuple[str, ...]) -> tuple[Ordered, Ordered] | None:
        """Of a node that is shown as it was: what refers to it by moments, and its versions; None for another."""
        dated = next((one for one in self.dated if one.path == path), None)
        return None if dated is None else (dated, next(one for one in self.versions if one.path == path))


# (path of the node, ``schema.table``, foreign key, key that it names)
_Grouped = tuple[tuple[str, ...], str, tuple[str, ...], tuple[str, ...]]


class _Found:
    """What a tree asks for, in the order of its nodes: indexes and groups have their numbers by it, which are stored.

    Args:
        root: the tree.
        expressions: Spark SQL over the assembled row.

    Attributes:
        used: ``schema.table`` -> columns that are read.
        routes: ``schema.table`` -> columns that a climb or an index needs.
        pairs: (table, columns) of indexes, each as often as it is asked for.
        limited: nodes of which only some children are shown, with their paths.
        grouped: aggregates of one node over one table by one foreign key.
        dated: nodes that are shown as they were, with their paths and the nodes above them.
    """

    def __init__(self, root: Node, expressions: Sequence[str]) -> None:
        self.used: dict[str, set[str]] = {name: set(table.primary_key) for name, table in root.tables().items()}
        self.routes: dict[str, set[str]] = {name: set() for name in self.used}
        self.pairs: list[tuple[str, tuple[str, ...]]] = []
        self.limited: list[tuple[tuple[str, ...], Node]] = []
        self.grouped: dict[_Grouped, list[Aggregate]] = {}
        self.dated: list[tuple[tuple[str, ...], Node, Node]] = []
        for path, node in root.walk():
            self._node(path, node, expressions)
            for nested in node.nested:
                self._nested(path, node, nested)
            for aggregate in node.aggregates:
                self._aggregate(path, node, aggregate)

    def _node(self, path: tuple[str, ...], node: Node, expressions: Sequence[str]) -> None:
        used = self.used[node.table.qualified]
        if node.many and node.limit is not None:
            self.limited.append((path, node))
        used |= {source for source, _ in node.columns} | {order.column for order in node.order_by}
        for text in expressions:
            used |= mentions(text, node.table.by_name)

    def _nested(self, path: tuple[str, ...], node: Node, nested: Node) -> None:
        holder, columns = _holder(node, nested)
        self.routes[holder.qualified] |= set(columns)
        if nested.as_of is not None:
            self.used[node.table.qualified].add(nested.as_of)
            self.routes[nested.table.qualified] |= set(nested.rights)
            self.dated.append(((*path, nested.name), node, nested))
            return
        self.pairs.append((holder.qualified, columns))
        self._keyed(*_named(node, nested))

    def _aggregate(self, path: tuple[str, ...], node: Node, aggregate: Aggregate) -> None:
        at = (path, aggregate.table.qualified, aggregate.foreign_key, aggregate.named)
        self.grouped.setdefault(at, []).append(aggregate)
        self._keyed(node.table, aggregate.named)
        self.routes[aggregate.table.qualified] |= set(aggregate.foreign_key)

    def _keyed(self, table: Table, key: tuple[str, ...]) -> None:
        """A key that is not the primary one has an index of its own."""
        if key != table.primary_key:
            self.routes[table.qualified] |= set(key)
            self.pairs.append((table.qualified, key))


def _holder(above: Node, nested: Node) -> tuple[Table, tuple[str, ...]]:
    """The table that holds an edge's foreign key, and its columns in the order of the key that they name."""
    return (above.table, nested.lefts) if nested.kind == "ref" else (nested.table, nested.rights)


def _named(above: Node, nested: Node) -> tuple[Table, tuple[str, ...]]:
    """The table whose key an edge's foreign key names, and that key."""
    return (nested.table, nested.rights) if nested.kind == "ref" else (above.table, nested.lefts)


def first_sorts(node: Node) -> tuple[Order, Order]:
    """By what a node's rows are arranged, and what they are sorted by first.

    A column by which they hang on the row above is the same for all of them: arranged by it, all would share one place
    and be read. What is after it sorts them as well.
    """
    sorts = [*node.order_by, *map(Order, node.table.primary_key)]
    return next((order for order in sorts if order.column not in node.rights), sorts[0]), sorts[0]


def _dated(
    found: Sequence[tuple[tuple[str, ...], Node, Node]], first: int
) -> tuple[tuple[Ordered, ...], tuple[Ordered, ...]]:
    """Rows that refer to others as they were, and the versions of these; these have no plain index besides."""
    dated, versions = list[Ordered](), list[Ordered]()
    for number, (path, above, node) in enumerate(found):
        at = first + 2 * number
        referring = Index(NO_INDEX, above.table.qualified, node.lefts)
        dated.append(Ordered(at, path, referring, Order(str(node.as_of))))
        own = Index(NO_INDEX, node.table.qualified, node.rights)
        versions.append(Ordered(at + 1, path, own, Order(SINCE)))
    return tuple(dated), tuple(versions)


def _groups(grouped: dict[_Grouped, list[Aggregate]]) -> tuple[Group, ...]:
    found: list[Group] = []
    taken: dict[str, int] = {}
    for number, ((path, table, foreign_key, named), aggregates) in enumerate(grouped.items()):
        first = taken.get(table, 0)
        taken[table] = first + len(aggregates)
        found.append(Group(number, path, table, foreign_key, named, tuple(aggregates), first))
    return tuple(found)
