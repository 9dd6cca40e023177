"""Putting a document together from the rows of its tree: JSON, typed values for Spark SQL, a table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from cdc import types
from cdc.catalogue import Column
from cdc.join.aggregates import for_json, result_type
from cdc.join.expressions import mentions
from cdc.join.layout import Layout
from cdc.join.ordering import order_key, rank
from cdc.join.tree import Aggregate, Node, Order
from cdc.types import values

_BITS = {"bigint": 64, "int": 32, "smallint": 16, "tinyint": 8}

# What is made of a part of a node.
Made = Callable[["Shape", "Part"], Any]


class Part:
    """A row at its place in a document, with what hangs on it. All that refer to a row share its part.

    Attributes:
        row: stored values.
        refs: a part or None for each reference.
        children: a list of parts for each kind of children.
        aggregates: canonical values.
        json: the part as JSON already, where many documents will show it.
        stamp: which change wrote the row, where one row of several is shown: bytes that are greater for newer ones.
    """

    __slots__ = ("aggregates", "children", "columns", "json", "key", "plain", "refs", "row", "stamp", "typed")

    def __init__(self, key: str, row: list[Any]) -> None:
        self.key, self.row = key, row
        self.refs: list[Part | None] = []
        self.children: list[list[Part]] = []
        self.aggregates: list[Any] = []
        self.plain: Any = None
        self.typed: Any = None
        self.columns: Any = None
        self.json: orjson.Fragment | None = None
        self.stamp = b""


class Shape:
    """A node, compiled: how a row becomes an object.

    Args:
        node: the node.
        layout: of its view.
        said: Spark SQL over the document. None for any: then each aggregate must have a place in its type, and with
            expressions those that one may see. One that nobody names takes no document away.
    """

    def __init__(self, node: Node, layout: Layout, said: Sequence[str] | None = None) -> None:
        self.node = node
        self._name, self._hide = node.name, node.hide
        stored = layout.tables[node.table.qualified]
        by_name = node.table.by_name
        places = {name: index for index, name in enumerate(stored.columns)}
        self._plain = [(out, places[name], types.json_converter(by_name[name])) for name, out in node.columns]
        self._typed = [
            (name, at, types.arrow_converter(by_name[name])) for name, at in places.items() if name not in node.taken
        ]
        self._columns = [(out, places[name], types.arrow_converter(by_name[name])) for name, out in node.columns]
        self._results = [(a.name, _typed_result(a)) for a in node.aggregates]
        self._seen = [
            (name, convert if convert is None or _may_see(said, name) else _or_null(convert))
            for name, convert in self._results
        ]
        self.refs = [Shape(ref, layout, None if _may_see(said, ref.name) else said) for ref in node.refs]
        self.children = [Shape(child, layout, None if _may_see(said, child.name) else said) for child in node.children]
        self._shown = [(one.name, one.many) for one in node.shown]
        self._sort = [_sort_key(by_name[o.column], places[o.column], o) for o in node.order_by]
        self._ties = [_sort_key(by_name[n], places[n], Order(n)) for n in node.table.primary_key]

    def plain(self, part: Part) -> Any:
        """The part as JSON-able values: an object; its value, if it is shown as one; what a hidden row shows."""
        if part.plain is not None:
            return part.plain
        row = part.row
        found = {
            out: row[at] if convert is None or row[at] is None else convert(row[at]) for out, at, convert in self._plain
        }
        if self.node.value is not None:
            part.plain = found[self.node.columns[0][1]]
            return part.plain
        self._nested(part, found, _plain)
        for (name, _), value in zip(self._results, part.aggregates, strict=True):
            found[name] = for_json(value)
        part.plain = found
        return found

    def typed(self, part: Part) -> Any:
        """The part as values for ``JoinedView.arrow_schema``.

        Raises:
            any of ``cdc.types.REFUSALS``: an aggregate's value has no place in its type (terminal).
        """
        if part.typed is not None:
            return part.typed
        row = part.row
        found = {
            name: row[at] if convert is None or row[at] is None else convert(row[at])
            for name, at, convert in self._typed
        }
        if self.node.value is not None:
            part.typed = found[self.node.value]
            return part.typed
        self._nested(part, found, Shape.typed)
        for (name, convert), value in zip(self._seen, part.aggregates, strict=True):
            found[name] = value if convert is None or value is None else convert(value)
        part.typed = found
        return found

    def columns(self, part: Part) -> Any:
        """The part as values for ``cdc.join.columns.arrow_columns``: what the document shows, under its names.

        Raises:
            any of ``cdc.types.REFUSALS``: an aggregate's value has no place in its column's type (terminal).
        """
        if part.columns is not None:
            return part.columns
        row = part.row
        found = {
            out: row[at] if convert is None or row[at] is None else convert(row[at])
            for out, at, convert in self._columns
        }
        if self.node.value is not None:
            part.columns = found[self.node.columns[0][1]]
            return part.columns
        self._nested(part, found, Shape.columns)
        for (name, convert), value in zip(self._results, part.aggregates, strict=True):
            found[name] = value if convert is None or value is None else convert(value)
        part.columns = found
        return found

    def _nested(self, part: Part, found: dict[str, Any], made: Made) -> None:
        """What of other rows stands in this one."""
        for shape, ref in zip(self.refs, part.refs, strict=True):
            if shape._hide:
                shape._lift(() if ref is None else (ref,), found, made)
            else:
                found[shape._name] = None if ref is None else made(shape, ref)
        for shape, children in zip(self.children, part.children, strict=True):
            node = shape.node
            if node.hide:
                shape._lift(children, found, made)
            elif node.one:
                found[node.name] = made(shape, children[0]) if children else None
            elif node.value is not None:
                found[node.name] = [made(shape, child) for child in children if shape.plain(child) is not None]
            else:
                found[node.name] = [made(shape, child) for child in children]

    def _lift(self, parts: Sequence[Part], found: dict[str, Any], made: Made) -> None:
        """Put what hidden rows of this node show into the row above, in the order of these rows.

        A null is no element of an array, whether no row is there or its value is NULL. Only JSON says that it is one:
        some values have no place in Spark's types and are null there.
        """
        rows = [(self.plain(part), made(self, part)) for part in parts]
        for name, many in self._shown:
            if not self.node.many:
                found[name] = rows[0][1][name] if rows else ([] if many else None)
            elif many:
                found[name] = [value for _, row in rows for value in row[name]]
            else:
                found[name] = [row[name] for plain, row in rows if plain[name] is not None]

    def document(self, part: Part) -> bytes:
        """The whole document as JSON, without Spark SQL fields."""
        return orjson.dumps(self.plain(part))

    def arranged(self, children: Iterable[Part]) -> list[Part]:
        """Children sorted as the view says, the primary key deciding between equals, and no more than its limit.

        Where there is to be one it is the newest: while a row takes another one's place, the other may be there still.
        """
        found = list(children)
        if self.node.one:
            return [max(found, key=lambda part: (part.stamp, part.key))] if found else []
        found.sort(key=lambda part: [make(part.row) for make in self._ties])
        for make in reversed(self._sort):
            found.sort(key=lambda part, make=make: make(part.row))  # type: ignore[misc]
        return found if self.node.limit is None else found[: self.node.limit]


def _plain(shape: Shape, part: Part) -> Any:
    return part.json or shape.plain(part)


class _Reversed:
    """A value whose order is turned round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def _kind(column: Column) -> str:
    if types.type_key(column) == "numeric":
        return "array<numeric>" if column.array else "numeric"
    return types.spark_type(column)


def rank_of(column: Column, at: int, order: Order) -> Callable[[Sequence[Any]], float]:
    """A function that gives a stored row's place among others, as they are sorted by one column.

    Args:
        column: that they are sorted by.
        at: where it stands in a stored row.
        order: how.
    """
    kind, convert = _kind(column), types.json_converter(column)

    def of(row: Sequence[Any]) -> float:
        value = row[at]
        made = value if convert is None or value is None else convert(value)
        return rank(kind, made, descending=order.descending, nulls_first=order.nulls_first)

    return of


def _sort_key(column: Column, at: int, order: Order) -> Any:
    key, convert = order_key(_kind(column)), types.json_converter(column)

    def of(row: Sequence[Any]) -> tuple[bool, Any]:
        value = row[at]
        if value is None:
            return (not order.nulls_first, 0)
        made = key(value if convert is None else convert(value))
        return (order.nulls_first, _Reversed(made) if order.descending else made)

    return of


def _typed_result(aggregate: Aggregate) -> types.Converter | None:
    """From an aggregate's canonical value to what Arrow takes.

    A number that its type has no room for is refused by itself: Arrow would refuse all rows beside it.
    """
    kind = result_type(aggregate)
    if aggregate.function in ("min", "max") and kind in ("timestamp", "timestamp_ntz", "date"):
        return _moment_of(kind)
    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return _finite(values.decimal_of(int(precision), int(scale)))
    if kind in _BITS:
        return _named(aggregate, values.integer_of(_BITS[kind]))
    return float if kind in ("double", "float") else None


def _finite(convert: types.Converter) -> types.Converter:
    """The same converter for canonical values: what is no number is null there (docs/types.md), as it is in a column.

    A column's converter knows Debezium's words for it, and these are other ones.
    """
    words = frozenset(values.NUMERIC_WORDS.values())
    return lambda value: None if value in words else convert(value)


def _may_see(said: Sequence[str] | None, name: str) -> bool:
    return said is None or any(mentions(one, (name,)) for one in said)


def _or_null(convert: types.Converter) -> types.Converter:
    """The same converter, for what nobody looks at: nothing in the place of what has none."""

    def tried(value: Any) -> Any:
        try:
            return convert(value)
        except types.REFUSALS:
            return None

    return tried


def _named(aggregate: Aggregate, convert: types.Converter) -> types.Converter:
    """The same converter, whose refusal says of which aggregate: a letter has nothing else to tell where to look."""
    where = f"aggregate {aggregate.name}"
    if aggregate.function == "sum":
        where += ", for which a sum of decimals has room (docs/views.md, Aggregates)"

    def named(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    return named


def _moment_of(kind: str) -> types.Converter:
    from cdc.join.ordering import moment

    def days_or_micros(value: str) -> int | None:
        found = moment(value)
        if not isinstance(found, int):
            return None
        if kind == "date":
            return found // 86_400_000_000
        return found if found.bit_length() < 64 else None  # after 294247-01-10: null, as of a column

    return days_or_micros
