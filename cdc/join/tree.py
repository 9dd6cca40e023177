"""The tree of a joined view: which rows make a document and how they hang together.

A node is one table at one place of the tree; the same table may stand at several. Every edge says "these columns of the
row above equal those of this node's row", and one side is always a whole key, the primary one or another unique one: a
reference (many-to-one) points at this node's key, children (one-to-many) point at the key of the row above. So every
step of a climb or a descent is a look-up by key, by unique value or by foreign-key index, never a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cdc.catalogue import Table

Kind = Literal["root", "ref", "child"]
Function = Literal["count", "sum", "min", "max", "avg"]


@dataclass(frozen=True)
class Order:
    """One column that children are sorted by; nulls stand first ascending and last descending, as in Spark SQL."""

    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Aggregate:
    """A value over the rows that point at a node's row.

    Attributes:
        name: its name in the document.
        table: the rows that are counted or summed.
        on: (column of the row above, column of ``table``); the left columns are a key of the row above, in its order.
        function: what is computed.
        distinct: only for count.
        value: a column of ``table`` or a Spark SQL expression over it; None for ``count(*)``.
        where: Spark SQL condition over a row of ``table``.
        kind: Spark SQL type of ``value`` when that is an expression; known once Spark has analysed it.
    """

    name: str
    table: Table
    on: tuple[tuple[str, str], ...]
    function: Function
    distinct: bool = False
    value: str | None = None
    where: str | None = None
    kind: str | None = None

    @property
    def column(self) -> str | None:
        """The column that ``value`` is, if it is no more than one."""
        return self.value if self.value in self.table.by_name else None

    @property
    def computed(self) -> bool:
        """Whether Spark SQL has to see the rows of ``table``."""
        return self.where is not None or (self.value is not None and self.column is None)

    @property
    def foreign_key(self) -> tuple[str, ...]:
        """The columns of ``table`` that name the row above, in the order of its key."""
        return tuple(right for _, right in self.on)

    @property
    def named(self) -> tuple[str, ...]:
        """The key of the row above that they name."""
        return tuple(left for left, _ in self.on)


@dataclass(frozen=True)
class Node:
    """A table at its place in a view.

    Attributes:
        name: its field in the document of the row above; the view's name for the root.
        kind: root, ref (one row or null) or child (an array).
        table: the table, without columns that Debezium does not deliver.
        on: (column of the row above, column of this row), in the order of the key that one side is; empty for the root.
        columns: (source column, name in the document), in document order.
        refs: rows that this row points at.
        children: rows that point at this row.
        aggregates: values over rows that point at this row.
        order_by: of children; the primary key decides between equals.
        limit: of children: only so many, after sorting.
        one: of children: at most one row points at the row above, and it stands there as a reference would.
        value: the row is no object but the value of this column, the only one of ``columns``.
        hide: the row is not shown; what is below it stands in the row above (``shown``). It has no ``columns``.
        as_of: of a reference: a column of the row above, and the row is shown as it was at that moment. All versions
            of the table's rows are kept then.
    """

    name: str
    kind: Kind
    table: Table
    on: tuple[tuple[str, str], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    refs: tuple[Node, ...] = ()
    children: tuple[Node, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    order_by: tuple[Order, ...] = ()
    limit: int | None = None
    one: bool = False
    value: str | None = None
    hide: bool = False
    as_of: str | None = None

    @property
    def many(self) -> bool:
        """Whether any number of rows stand here; otherwise one or none."""
        return self.kind == "child" and not self.one

    @property
    def nested(self) -> tuple[Node, ...]:
        """References, then children: the order in which they stand in the document."""
        return (*self.refs, *self.children)

    @property
    def lefts(self) -> tuple[str, ...]:
        """Columns of the row above by which this one hangs on it."""
        return tuple(left for left, _ in self.on)

    @property
    def rights(self) -> tuple[str, ...]:
        """Columns of this row by which it hangs on the one above."""
        return tuple(right for _, right in self.on)

    @property
    def shown(self) -> tuple[Shown, ...]:
        """What of other rows stands in this one: what is nested, and in the place of a hidden row what it shows."""
        found: list[Shown] = []
        for node in self.nested:
            if node.hide:
                found += [Shown(one.node, many=node.many or one.many) for one in node.shown]
            else:
                found.append(Shown(node, node.many))
        return tuple(found)

    @property
    def taken(self) -> frozenset[str]:
        """Names of refs, children and aggregates: a column of that name is not in the assembled row."""
        return frozenset([*(one.name for one in self.shown), *(item.name for item in self.aggregates)])

    @property
    def once(self) -> bool:
        """Whether this node's table stands nowhere else: neither below it nor in an aggregate."""
        mine = self.table.qualified
        nodes = [node for _, node in self.walk()]
        tables = [node.table for node in nodes] + [item.table for node in nodes for item in node.aggregates]
        return [table.qualified for table in tables].count(mine) == 1

    def leading(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names of nodes that lead from this one to another, as the document has them: without hidden rows'."""
        node, found = self, []
        for name in names:
            below = next((one for one in node.nested if one.name == name), None)
            if below is None or not below.hide:
                found.append(name)
            if below is None:
                break
            node = below
        return tuple(found)

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
        """This node and all below it, each with the names that lead there."""
        yield path, self
        for node in self.nested:
            yield from node.walk((*path, node.name))

    def versioned(self) -> frozenset[str]:
        """Tables of which every version is kept: ``schema.table``."""
        return frozenset(node.table.qualified for _, node in self.walk() if node.as_of is not None)

    def tables(self) -> Mapping[str, Table]:
        """Every table that the tree reads, aggregates included: ``schema.table`` -> Table."""
        found: dict[str, Table] = {}
        for _, node in self.walk():
            for table in (node.table, *(aggregate.table for aggregate in node.aggregates)):
                found.setdefault(table.qualified, table)
        return found


class Shown(NamedTuple):
    """A node as the document of a row above it has it.

    Attributes:
        node: whose name it has there.
        many: whether it is an array: of its own, or because a hidden row on the way is one of many.
    """

    node: Node
    many: bool

    @property
    def name(self) -> str:
        """Its field."""
        return self.node.name
