"""The tree of a joined view, resolved: tables, keys and types are checked against the catalogue (see cdc/join/tree.py).

The key rule is what keeps documents right cheaply: one side of every edge is a whole key, the primary one or another
unique one, so that from a changed row every document that shows it is found by key or by an index of the row store, and
no step ever scans a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.gather import Gathering
from cdc.join.comparable import not_added, not_arranged, not_counted, not_joined, not_sorted
from cdc.join.layout import first_sorts
from cdc.join.order import AggregateText, TextError, parse_aggregate, parse_order
from cdc.join.tree import Aggregate, Node, Order
from cdc.pipeline import Pipeline, View
from cdc.pipeline.joins import Aggregate as AggregatePart
from cdc.pipeline.joins import Child, Nested, Ref, standing
from cdc.pipeline.messages import dotted
from cdc.resolve.names import MOMENTS, Path, columns_of, distinct, error, find_table, keyed, known, present
from cdc.types import spark_type, supported

On = tuple[tuple[str, str], ...]
Columns = tuple[tuple[str, str], ...]
Orders = tuple[Order, ...]

# Words that Spark SQL takes for values, where a column of that name is not.
_CONSTANTS = frozenset(("true", "false", "null"))
# How the remedy ends where no index is known over the columns of an edge.
NO_CONSTRAINT = "has no unique constraint over it"


def resolve_tree(pipeline: Pipeline, catalogue: Catalogue, name: str, model: View, table: Table) -> Node:
    """The tree of a view that has refs, children or aggregates.

    Args:
        pipeline: the loaded file, for places.
        catalogue: the source's tables.
        name: the view's.
        model: what the file says of it.
        table: its root, which has a primary key.

    Raises:
        ConfigError: a table or column is not there, an edge does not follow a key, types do not fit: all that is
            wrong, in one error (terminal).
    """
    found = Gathering()
    node = _Row(pipeline, catalogue, table, ("views", name)).node(name, "root", model, found)
    found.end()
    _once(pipeline, name, node)
    return node


def _once(pipeline: Pipeline, name: str, root: Node) -> None:
    """Refuse a table that stands somewhere as it was, and somewhere else too: the store has rows or versions of it."""
    for path, node in root.walk():
        if node.as_of is None:
            continue
        mine = node.table.qualified
        count = sum(one.table.qualified == mine for _, one in root.walk())
        count += sum(item.table.qualified == mine for _, one in root.walk() for item in one.aggregates)
        if count > 1:
            what = f"view {name}: {mine} is shown as it was in `{'.'.join(path)}`, and the view has it a second time"
            raise error(pipeline, _at(name, root, path), what, "make a view of its own of the other place")


def _at(view: str, node: Node, path: tuple[str, ...]) -> Path:
    """Where the file says that a row is shown as it was."""
    at: list[str | int] = ["views", view]
    for name in path:
        node = next(one for one in node.nested if one.name == name)
        at += ["refs" if node.kind == "ref" else "children", name]
    return (*at, "as_of")


@dataclass(frozen=True)
class _Row:
    """A row at its place in a view, to which others are joined."""

    pipeline: Pipeline
    catalogue: Catalogue
    table: Table
    path: Path

    def _wrong(self, path: Path, what: str, fix: str = "") -> ConfigError:
        return error(self.pipeline, path, f"{dotted(path)}: {what}", fix)

    def _table(self, name: str, path: Path) -> Table:
        """The nested table; its rows must be told apart to be stored at all."""
        at: Path = (*path, "table")
        table = find_table(self.pipeline, self.catalogue, name, at, f"{dotted(at)}: ")
        keyed(self.pipeline, table, at, f"{dotted(at)}: ")
        return table

    # -- what a row has -----------------------------------------------------------------------------------------------

    def columns(self, model: View | Nested) -> tuple[tuple[str, str], ...]:
        if isinstance(model, Nested) and model.hide:
            return ()
        at: Path = (*self.path, "columns")
        if isinstance(model, Nested) and model.value is not None:
            at, value = (*self.path, "value"), present(self.table, model.value)
            return columns_of(self.pipeline, self.table, ((value, value),), at, f"{dotted(at)}: ")
        names = [name for _, name, _ in standing(model)] + [*model.aggregates]
        found = columns_of(self.pipeline, self.table, model.picks, at, f"{dotted(at)}: ", names)
        outs = [out for _, out in found]
        distinct(self.pipeline, [*outs, *names], self.path, f"{dotted(self.path)}: two things get the name")
        return found

    def ref(self, name: str, model: Ref) -> Node:
        path: Path = (*self.path, "refs", name)
        table, found, on = self._table(model.table, path), Gathering(), On()
        with found.step():
            on = self._reaching(model.on, table, (*path, "on"))
        if model.as_of is not None:
            with found.step():
                self._moment(model.as_of, on, table, (*path, "as_of"))
        node = _Row(self.pipeline, self.catalogue, table, path).node(name, "ref", model, found, on)
        found.end()
        return node if model.as_of is None else replace(node, as_of=present(self.table, model.as_of))

    def _moment(self, name: str, on: On, table: Table, path: Path) -> None:
        """Refuse what says no moment, and versions of a row that has no lasting name."""
        name = present(self.table, name)
        known(self.pipeline, self.table, name, path, f"{dotted(path)}: ")
        kind = spark_type(self.table.by_name[name])
        if kind not in MOMENTS:
            what = f"column {name} of {self.table.qualified} is of type {kind}, which is no moment"
            raise self._wrong(path, what, "name a column of type timestamptz, or timestamp (taken for UTC)")
        if on and tuple(right for _, right in on) != table.primary_key:
            what = f"a row as it was is found by its primary key, ({', '.join(table.primary_key)})"
            raise self._wrong(path, what, "join by it, or leave `as_of` out for the row as it is")

    def child(self, name: str, model: Child) -> Node:
        path: Path = (*self.path, "children", name)
        table, found, on, order_by = self._table(model.table, path), Gathering(), On(), Orders()
        with found.step():
            on = self._starting(model.on, table, (*path, "on"))
        with found.step():
            order_by = self._order(model.order_by, table, (*path, "order_by")) if model.order_by else ()
        node = _Row(self.pipeline, self.catalogue, table, path).node(name, "child", model, found, on)
        found.end()
        node = replace(node, order_by=order_by, limit=model.limit, one=model.one)
        if node.many and node.limit is not None:
            self._limited(node, (*path, "limit"))
        return node

    def _limited(self, node: Node, path: Path) -> None:
        """Refuse the first of many where only all of them can be sorted."""
        column = node.table.by_name[first_sorts(node)[0].column]
        if (reason := not_arranged(column)) is not None:
            what = f"the first rows of {node.table.qualified} can't be found by its key: {reason}"
            fix = "sort them by a number, a text or a moment (`order_by`), or leave `limit` out"
            raise self._wrong(path, what, fix)

    def node(
        self,
        name: str,
        kind: Literal["root", "ref", "child"],
        model: View | Nested,
        found: Gathering,
        on: On = (),
    ) -> Node:
        """This row and all below it; what is wrong goes to ``found``, and the node is then not to be used."""
        columns, refs, children, aggregates = Columns(), list[Node](), list[Node](), list[Aggregate]()
        with found.step():
            columns = self.columns(model)
        for label, ref in model.refs.items():
            with found.step():
                refs.append(self.ref(label, ref))
        for label, child in model.children.items():
            with found.step():
                children.append(self.child(label, child))
        for label, aggregate in model.aggregates.items():
            with found.step():
                aggregates.append(self.aggregate(label, aggregate))
        node = Node(name, kind, supported(self.table), on, columns, tuple(refs), tuple(children), tuple(aggregates))
        if isinstance(model, View):
            return node
        # A value has no name in the document that could go on after a rename.
        value = None if model.value is None else present(self.table, model.value)
        return replace(node, value=value, hide=model.hide)

    # -- the key rule -------------------------------------------------------------------------------------------------

    def _reaching(self, on: Mapping[str, str], table: Table, path: Path) -> On:
        """A reference's pairs, in the order of the key that they reach."""
        self._pairs(on, table, path)
        key = _key(on.values(), table)
        if key is not None:
            return tuple(sorted(on.items(), key=lambda pair: key.index(pair[1])))
        primary = table.primary_key
        if self._turned(on, table) and _key(on, table) is not None:
            fix = self._swapped(on, table)
        elif _key(on, self.table) is not None:
            fix = f"if rows of {table.name} point at this row, put it under `children`"
        else:
            fix = _by_key(on.values(), f"{{{', '.join(f'…: {name}' for name in primary)}}}", table)
        raise self._wrong(
            path,
            f"a reference reaches one row by a whole key, and {_no_key(on.values(), table)}",
            fix,
        )

    def _starting(self, on: Mapping[str, str], table: Table, path: Path) -> On:
        """Pairs of children or of an aggregate, in the order of the key that they start from."""
        self._pairs(on, table, path)
        key = _key(on, self.table)
        if key is not None:
            return tuple(sorted(on.items(), key=lambda pair: key.index(pair[0])))
        primary = self.table.primary_key
        if self._turned(on, table) and _key(on.values(), self.table) is not None:
            fix = self._swapped(on, table)
        elif _key(on.values(), table) is not None:
            fix = f"if this row points at one of {table.name}, put it under `refs`"
        else:
            fix = _by_key(on, f"{{{', '.join(f'{name}: …' for name in primary)}}}", self.table)
        raise self._wrong(
            path,
            f"rows that point at this row hold a whole key of it, and {_no_key(on, self.table)}",
            fix,
        )

    def _turned(self, on: Mapping[str, str], table: Table) -> bool:
        """Whether `on` means something the other way round too, and something else."""
        return any(left != right for left, right in on.items()) and all(
            left in table.by_name and right in self.table.by_name for left, right in on.items()
        )

    def _swapped(self, on: Mapping[str, str], table: Table) -> str:
        pairs = ", ".join(f"{right}: {left}" for left, right in on.items())
        return (
            f"the sides look swapped: write on: {{{pairs}}}, that is {{column of {self.table.name}: column of "
            f"{table.name}}}"
        )

    def _pairs(self, on: Mapping[str, str], table: Table, path: Path) -> None:
        """Columns that are there, once each, and whose values can be compared."""
        found = Gathering()
        for left, right in on.items():
            with found.step():
                self._pair(on, left, right, table, (*path, left))
        found.end()

    def _pair(self, on: Mapping[str, str], left: str, right: str, table: Table, at: Path) -> None:
        if self._turned(on, table) and (left not in self.table.by_name or right not in table.by_name):
            missing = (self.table, left) if left not in self.table.by_name else (table, right)
            raise self._wrong(at, f"{missing[0].qualified} has no column {missing[1]}", self._swapped(on, table))
        found = Gathering()
        with found.step():
            known(self.pipeline, self.table, left, at, f"{dotted(at)}: ")
        with found.step():
            known(self.pipeline, table, right, at, f"{dotted(at)}: ")
        found.end()
        if list(on.values()).count(right) > 1:
            raise self._wrong(at, f"{table.qualified}.{right} is here a second time", "name each column once")
        if (reason := not_joined(self.table.by_name[left], table.by_name[right])) is not None:
            pair = f"{self.table.qualified}.{left} and {table.qualified}.{right}"
            raise self._wrong(at, f"{pair} can't be joined: {reason}", "join by columns of one type")

    # -- order and aggregates -----------------------------------------------------------------------------------------

    def _order(self, text: str, table: Table, path: Path) -> tuple[Order, ...]:
        try:
            orders = parse_order(text)
        except TextError as wrong:
            raise self._wrong(path, wrong.what, wrong.fix) from None
        found, sorted_by = Gathering(), list[Order]()
        for order in orders:
            with found.step():
                sorted_by.append(self._sortable(table, order, path))
        found.end()
        return tuple(sorted_by)

    def _sortable(self, table: Table, order: Order, path: Path) -> Order:
        column = self._column(table, order.column, path)
        if (reason := not_sorted(column)) is not None:
            raise self._wrong(path, f"rows of {table.qualified} can't be sorted: {reason}", "leave it out")
        return Order(column.name, order.descending, order.nulls_first)

    def aggregate(self, name: str, model: AggregatePart) -> Aggregate:
        path: Path = (*self.path, "aggregates", name)
        table, found, on = self._table(model.table, path), Gathering(), On()
        with found.step():
            on = self._starting(model.on, table, (*path, "on"))
        with found.step():
            parsed, value = self._aggregated(model.value, table, (*path, "value"))
        found.end()
        return Aggregate(name, supported(table), on, parsed.function, parsed.distinct, value, model.where)

    def _aggregated(self, text: str, table: Table, at: Path) -> tuple[AggregateText, str | None]:
        try:
            parsed = parse_aggregate(text)
        except TextError as wrong:
            raise self._wrong(at, wrong.what, wrong.fix) from None
        value = parsed.value
        if value is not None and parsed.named and value.lower() not in _CONSTANTS - table.by_name.keys():
            column = self._column(table, value, at)
            self._computable(parsed, table, column, at)
            value = column.name
        return parsed, value

    def _computable(self, parsed: AggregateText, table: Table, column: Column, path: Path) -> None:
        reason = None
        if parsed.function in ("sum", "avg"):
            reason = not_added(column)
        elif parsed.function in ("min", "max"):
            reason = not_sorted(column)
        elif parsed.distinct:
            reason = not_counted(column)
        if reason is not None:
            what = f"{parsed.function}({'distinct ' if parsed.distinct else ''}{column.name})"
            raise self._wrong(
                path, f"{what} over {table.qualified}: {reason}", "take another column, or an expression over it"
            )

    def _column(self, table: Table, name: str, path: Path) -> Column:
        """A column in any letter case, as Spark SQL reads names."""
        same = [column for column in table.columns if column.name.lower() == name.lower()]
        exact = name if len(same) != 1 or name in table.by_name else same[0].name
        known(self.pipeline, table, exact, path, f"{dotted(path)}: ")
        return table.by_name[exact]


def _key(named: Collection[str], table: Table) -> tuple[str, ...] | None:
    """The key of a table that has just these columns, in its order: the primary one or another unique one."""
    keys = (table.primary_key, *table.unique_keys)
    return next((key for key in keys if key and sorted(key) == sorted(named)), None)


def _no_key(named: Collection[str], table: Table) -> str:
    """That some columns are none of a table's keys, in words."""
    others = [f"({', '.join(key)})" for key in table.unique_keys]
    more = f", other unique ones are {', '.join(others)}" if others else ""
    primary = ", ".join(table.primary_key)
    return f"({', '.join(named)}) is none of {table.qualified}: its primary key is ({primary}){more}"


def _by_key(named: Collection[str], pairs: str, table: Table) -> str:
    """What to do about an edge that names other columns than a key: some of them only, or what an index that makes no
    key is over, say."""
    if set(named) < set(table.primary_key):
        return f"name the key: {pairs}"
    columns = ", ".join(named)
    indexes = [one for one in table.not_unique if set(named) <= set(one.columns)]
    if indexes:
        why = " and ".join(f"{one.name} makes no key of ({columns}): {one.reason}" for one in indexes)
        return f"{why}; make a unique constraint over all rows and plain columns, or join by the key: {pairs}"
    larger = [key for key in table.unique_keys if set(named) < set(key)]
    if larger:
        return f"name a whole key: ({', '.join(larger[0])}) or {pairs}"
    return f"join by a key: {pairs}; ({columns}) is none, as long as {table.qualified} {NO_CONSTRAINT}"
