"""A joined view's rows as its ``fields`` and ``where`` see them, put together from the tables for verification.

Documents name columns as the view's ``columns`` say; Spark SQL knows them by their own names, and sees some that no
document shows: keys, foreign keys and whatever an expression names. One pass gives both: each node's row carries the
document's values under their names and Spark's under marked ones. Of Spark's only those are made that an expression may
look at: where it says `airline.name`, the other columns of airline can't matter; where it says `airline`, all can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from cdc.join.tree import Aggregate, Node
from cdc.types import spark_type
from truth.arithmetic import AVERAGE_EXTRA, INFINITY, MINUS_INFINITY, NAN, Kind, kind_of, scale_of
from truth.placing import Several, standing
from truth.said import Said
from truth.spark_sql import Broken, Shape

# Postgres allows no such character in a name.
MARK = "\0"
# A sum's type in Spark: the widest decimal, as long as eight digits before the point are left; else exact text.
WIDEST, MOST_FRACTION = 38, 30


def marked(root: Node, expressions: Iterable[str]) -> Node:
    """The tree with Spark's columns added under marked names."""
    said = Said.of(expressions)
    return _marked(root, _seen(root, said), said, whole=said.star)


def sparks(marked_root: Node, expressions: Iterable[str]) -> Node:
    """Of a marked tree, what ``shape_of`` and ``spark_row`` take: without the places that no expression looks at."""
    said = Said.of(expressions)
    return _narrowed(marked_root, said, whole=said.star)


def document_of(node: Node, row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row of the marked tree, what the document shows."""
    return _project(node, row, [(name, name) for _, name in node.columns if not name.startswith(MARK)], document_of)


def spark_row(node: Node, row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row of the marked tree, what Spark SQL sees."""
    return _project(node, row, [(name[1:], name) for _, name in node.columns if name.startswith(MARK)], spark_row)


def shape_of(node: Node, kinds: Mapping[tuple[str, str], str]) -> Shape:
    """The shape of ``spark_row``.

    Args:
        node: of the marked tree.
        kinds: (``schema.table``, expression) -> its Spark SQL type, for aggregates over expressions.
    """
    by_name = node.table.by_name
    columns = {name[1:]: spark_type(by_name[source]) for source, name in node.columns if name.startswith(MARK)}
    order = (*columns, *standing(node), *(item.name for item in node.aggregates))
    columns |= {item.name: aggregate_type(item, kinds) for item in node.aggregates}
    lists, structs, arrays = dict[str, str](), dict[str, Shape](), dict[str, Shape]()
    for name, (below, many) in standing(node).items():
        if below.value is not None:
            (lists if many else columns)[name] = spark_type(below.table.by_name[below.value])
        else:
            (arrays if many else structs)[name] = shape_of(below, kinds)
    return Shape(columns, structs, arrays, lists, order)


class Sums:
    """The sums and averages that must have a place in Spark SQL's types: those that an expression names, and all of an
    object that one names, whether as a whole or not.

    Of a row with one that has none the engine makes a dead letter (docs/views.md). Spark would fail for its whole page.

    Args:
        node: of the marked tree.
        said: by the view's expressions.
        kinds: as ``shape_of`` takes them.
        whole: all of the node's are.
    """

    def __init__(self, node: Node, said: Said, kinds: Mapping[tuple[str, str], str], *, whole: bool = False) -> None:
        whole = whole or said.every
        self._own = [
            (item, aggregate_type(item, kinds))
            for item in node.aggregates
            if item.function in ("sum", "avg") and (whole or said.mentions(item.name))
        ]
        below = [
            (name, many, Sums(one, said, kinds, whole=whole or said.mentions(name)))
            for name, (one, many) in standing(node).items()
        ]
        self._below = [one for one in below if one[-1]]

    def __bool__(self) -> bool:
        return bool(self._own or self._below)

    def without_place(self, row: Mapping[str, Any]) -> Broken | None:
        """What is said of a row of the tree that has such a one; None of any other."""
        for item, kind in self._own:
            value = row[item.name]
            if value is not None and not _has_place(value, kind):
                said = f"{item.function}({item.value})"
                return Broken({f"aggregate {item.name}": said}, f"{_digits(value)} has no place in its type, {kind}")
        for name, many, sums in self._below:
            value = row[name].value if isinstance(row[name], Several) else row[name]
            for one in value if many else [value]:
                found = None if one is None else sums.without_place(one)
                if found is not None:
                    return found
        return None


def sums_of(marked_root: Node, expressions: Iterable[str], kinds: Mapping[tuple[str, str], str]) -> Sums:
    """Those of a marked tree; arguments as ``sparks`` and ``shape_of`` take them."""
    return Sums(marked_root, Said.of(expressions), kinds)


def _has_place(value: Any, kind: str) -> bool:
    if kind == "bigint":
        return -(1 << 63) <= int(_digits(value)) < 1 << 63
    if not kind.startswith("decimal(") or value in (NAN, INFINITY, MINUS_INFINITY):  # which are null there
        return True
    precision, scale = kind[8:-1].split(",")
    return len(_digits(value).lstrip("-").partition(".")[0]) <= int(precision) - int(scale)


def _digits(value: Any) -> str:
    """Of a number, which is a fragment of JSON where it is beyond 64 bits."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def aggregate_type(item: Aggregate, kinds: Mapping[tuple[str, str], str]) -> str:
    """Spark SQL type of an aggregate in the row that ``fields`` see."""
    column = item.table.by_name.get(item.value or "")
    if item.function == "count":
        return "bigint"
    if column is not None:
        plain, (adds, scale) = spark_type(column), (kind_of(column), scale_of(column))
    else:
        plain = kinds[item.table.qualified, item.value or ""]
        adds, scale = _adds(plain)
    if item.function in ("min", "max"):
        return plain
    if adds == "float" or (adds == "whole" and item.function == "avg"):
        return "double"
    if adds == "whole":
        return "bigint"
    if scale is None or scale > MOST_FRACTION:
        return "string"
    return f"decimal({WIDEST},{scale + (AVERAGE_EXTRA if item.function == 'avg' else 0)})"


def _adds(kind: str) -> tuple[Kind, int | None]:
    if kind.startswith("decimal("):
        return "exact", int(kind[8:-1].split(",")[1])
    if kind == "string":
        return "exact", None
    return ("float" if kind in ("float", "double") else "whole"), None


def _marked(node: Node, seen: Mapping[str, set[str]], said: Said, *, whole: bool) -> Node:
    if node.value is not None:
        return node  # the document and Spark see the same value
    # A reference `origin` hides the column of that name: `origin.name` is the airport's.
    taken = {*standing(node), *(item.name for item in node.aggregates)}
    names = [
        column.name
        for column in node.table.columns
        if column.name in seen[node.table.qualified]
        and column.name not in taken
        and (whole or said.mentions(column.name))
    ]
    return replace(
        node,
        columns=(*node.columns, *((name, MARK + name) for name in names)),
        refs=tuple(_marked(ref, seen, said, whole=_whole(ref, said, whole=whole)) for ref in node.refs),
        children=tuple(_marked(child, seen, said, whole=_whole(child, said, whole=whole)) for child in node.children),
    )


def _whole(node: Node, said: Said, *, whole: bool) -> bool:
    """Whether all of a nested row is meant: of a hidden one, what is below it, if all of the row above is."""
    return whole or (not node.hide and said.means_whole(node.name))


def _narrowed(node: Node, said: Said, *, whole: bool) -> Node:
    def kept(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        there = [below for below in nodes if below.hide or whole or said.mentions(below.name)]
        return tuple(_narrowed(below, said, whole=_whole(below, said, whole=whole)) for below in there)

    aggregates = tuple(item for item in node.aggregates if whole or said.mentions(item.name))
    return replace(node, refs=kept(node.refs), children=kept(node.children), aggregates=aggregates)


def _seen(root: Node, said: Said) -> dict[str, set[str]]:
    """``schema.table`` -> the columns that a row of it has for Spark SQL, wherever it stands in the tree."""
    seen = {name: set(table.primary_key) for name, table in root.tables().items()}
    for _, node in root.walk():
        mine = seen[node.table.qualified]
        mine.update(source for source, _ in node.columns)
        mine.update(one.column for one in node.order_by)
        mine.update(name for name in node.table.by_name if said.every or said.mentions(name))
        for below in node.nested:
            mine.update(left for left, _ in below.on)
            mine.update([below.as_of] if below.as_of is not None else ())
            seen[below.table.qualified].update(right for _, right in below.on)
        for item in node.aggregates:
            mine.update(item.named)
            seen[item.table.qualified].update(item.foreign_key)
    return seen


def _project(node: Node, row: Mapping[str, Any], names: list[tuple[str, str]], below: Any) -> dict[str, Any]:
    out = {name: row[held] for name, held in names}
    for name, (one, many) in standing(node).items():
        value = row[name]
        if isinstance(value, Several):
            if below is document_of:
                out[name] = value.said
                continue
            value = value.value
        if one.value is not None or value is None:
            out[name] = value
        else:
            out[name] = [below(one, item) for item in value] if many else below(one, value)
    return out | {item.name: row[item.name] for item in node.aggregates}
