"""Typed values for verification: a warehouse's columns against Postgres's text, and reals wherever they stand.

A typed column can't hold all that a document can (docs/types.md): no NaN in decimals, no infinite dates. Dates and
times are compared as numbers, because Python's own end with the year 9999.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from cdc.catalogue import Column, Table
from cdc.join.tree import Aggregate, Node
from cdc.json_text import elements, members
from cdc.types import canonical_result, spark_type
from cdc.view import View
from truth.answers import Far
from truth.assembled import aggregate_type
from truth.digest import single
from truth.moments import is_beyond, moment_number
from truth.placing import is_several, standing
from truth.values import canonical, deep, inner, parse

_JSON_KINDS = frozenset(("json", "jsonb", "hstore", "point"))


def _expected(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and kind != "string":  # of two dimensions, too, which no table has: that differs
        return [_expected(item, kind.removeprefix("array<").removesuffix(">")) for item in value]
    if kind.startswith("decimal"):
        return None if value in ("NaN", "Infinity", "-Infinity") else value
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return None if is_beyond(value) else moment_number(value)
    return value


def comparable_expected(view: View, text: bytes) -> dict[str, Any]:
    """An expected document as the warehouse's columns can hold it.

    Args:
        view: the view.
        text: the document.
    """
    tree = tree_of(view)
    # What of a column is nested too deeply depends on the column alone, as it does where a table has it.
    document: dict[str, Any] = _apart(tree or view, text.decode()) if deep(text) else parse(text)
    if tree is not None:
        return _expected_row(tree, document)
    by_name = view.table.by_name
    return {out: _expected(document[out], spark_type(by_name[source])) for source, out in view.columns}


def _expected_row(node: Node, row: Mapping[str, Any]) -> dict[str, Any]:
    by_name = node.table.by_name
    found = {out: _expected(row[out], spark_type(by_name[source])) for source, out in node.columns}
    for name, (below, many) in standing(node).items():
        found[name] = _each(row[name], partial(_expected_below, below), many=many)
    return found | {item.name: _expected(row[item.name], _kind_of(item)) for item in node.aggregates}


def _expected_below(node: Node, value: Any) -> Any:
    if node.value is not None:
        return _expected(value, spark_type(node.table.by_name[node.value]))
    return _expected_row(node, value)


def _apart(node: Node | View, text: str) -> dict[str, Any]:
    """A row of a document, each column's JSON read by itself."""
    columns = {out: node.table.by_name[source] for source, out in node.columns}
    below = {} if isinstance(node, View) else standing(node)
    return {
        name: _below_apart(*below[name], value) if name in below else _column_apart(columns.get(name), value)
        for name, value in members(text).items()
    }


def _below_apart(node: Node, many: bool, text: str) -> Any:
    if many and text.startswith("["):
        return [_below_apart(node, False, item) for item in elements(text)]
    if node.value is not None:
        return _column_apart(node.table.by_name[node.value], text)
    return _apart(node, text) if text.startswith("{") else parse(text)


def _column_apart(column: Column | None, text: str) -> Any:
    if column is None or column.base_type not in _JSON_KINDS:
        return parse(text)
    return [inner(item) for item in elements(text)] if column.array and text.startswith("[") else inner(text)


def _each(value: Any, made: Callable[[Any], Any], *, many: bool) -> Any:
    """Of what stands in a row each, or the one; in the place of what is wrong there are words, and they stay."""
    if value is None or is_several(value):
        return value
    return [None if item is None else made(item) for item in value] if many else made(value)


def _kind_of(item: Aggregate) -> str:
    """The type of an aggregate's column; of an expression as Spark has analysed it."""
    return aggregate_type(item, {(item.table.qualified, item.value or ""): item.kind or "string"})


def numbered(value: Any) -> Any:
    """What Spark SQL gave, with days and moments as the numbers that a table's rows are compared by."""
    if isinstance(value, date | Far):  # a moment is a date too
        return moment_number(str(canonical_result(value)))
    if isinstance(value, list):
        return [numbered(item) for item in value]
    return {name: numbered(item) for name, item in value.items()} if isinstance(value, dict) else value


def comparable_row(view: View, row: Mapping[str, Any]) -> dict[str, Any]:
    """A warehouse's row as ``comparable_expected`` gives it: the view's columns and fields, JSON texts read.

    Args:
        view: the view.
        row: column -> value; dates are days and timestamps microseconds since 1970, other values canonical.
    """
    by_out = {out: view.table.by_name[source] for source, out in view.columns}
    tree = tree_of(view)
    if tree is not None:
        return {**_row_of(tree, row), **{name: row[name] for name in view.fields if name in row}}
    return {
        name: _read(by_out[name], value) if name in by_out else value
        for name, value in row.items()
        if name in by_out or name in view.fields
    }


def _row_of(node: Node, row: Mapping[str, Any]) -> dict[str, Any]:
    """A nested row of the table as ``_expected_row`` gives it: texts of JSON read."""
    by_name = node.table.by_name
    found = {out: _read(by_name[source], row[out]) for source, out in node.columns if out in row}
    for name, (below, many) in standing(node).items():
        if name in row:
            found[name] = _each(row[name], partial(_below_of, below), many=many)
    return found | {item.name: row[item.name] for item in node.aggregates if item.name in row}


def _below_of(node: Node, value: Any) -> Any:
    return _read(node.table.by_name[node.value], value) if node.value is not None else _row_of(node, value)


def _read(column: Column, value: Any) -> Any:
    if value is None or column.base_type not in _JSON_KINDS:
        return value
    return [None if item is None else _json(item) for item in value] if column.array else _json(value)


def _json(text: str) -> Any:
    try:
        return inner(text)
    except ValueError:  # somebody else has written it: what no column of JSON has
        return {NO_DOCUMENT: text}


def with_singles(view: View, document: Any) -> Any:
    """A document or comparable row, with every ``real`` as the number it is; untouched bytes if there is none."""
    plan = _Reals.of(tree_of(view) or view)
    if not plan:
        return document
    return plan.applied(parse(document) if isinstance(document, bytes) else document)


# The only field of what is there and is no document: its text.
NO_DOCUMENT = "(no document)"


def as_read(document: Any) -> dict[str, Any]:
    """A document or comparable row as JSON reads it, numbers as they are compared.

    Args:
        document: perhaps no JSON object at all: then ``NO_DOCUMENT`` holds its text.
    """
    try:
        found = parse(canonical(document))
    except (ValueError, TypeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    text = document if isinstance(document, bytes) else repr(document).encode("utf-8", "backslashreplace")
    return {NO_DOCUMENT: text.decode("utf-8", "backslashreplace")}


def readable(view: View, document: Any) -> Any:
    """``with_singles`` of what may be no JSON; then as it stands."""
    try:
        return with_singles(view, document)
    except (ValueError, RecursionError):
        return document


def tree_of(view: View) -> Node | None:
    """A joined view's tree; None for a view of one table."""
    from cdc.join.view import JoinedView

    return view.root if isinstance(view, JoinedView) else None


@dataclass(frozen=True)
class _Reals:
    """Where in a document there are reals: under these names, and in what is nested under those."""

    names: tuple[str, ...]
    nested: Mapping[str, _Reals]

    def __bool__(self) -> bool:
        return bool(self.names or self.nested)

    @classmethod
    def of(cls, node: Node | View) -> _Reals:
        names = [out for source, out in node.columns if _is_real(node.table, source)]
        if isinstance(node, View):
            return cls(tuple(names), {})
        names += [a.name for a in node.aggregates if a.function in ("min", "max") and _is_real(a.table, a.value)]
        below: dict[str, _Reals] = {}
        for item in node.nested:
            plan = cls.of(item)
            if item.hide:  # what is below it stands here
                names, below = names + list(plan.names), {**below, **plan.nested}
            elif item.value is not None:
                names += [item.name] if plan.names else []
            elif plan:
                below[item.name] = plan
        return cls(tuple(names), below)

    def applied(self, values: Any) -> Any:
        """The same values with those numbers replaced; what is not a row or rows stays what it is."""
        if isinstance(values, list):
            return [self.applied(item) for item in values]
        if not isinstance(values, Mapping):
            return values
        changed = {name: single(values[name]) for name in self.names if name in values}
        changed |= {name: plan.applied(values[name]) for name, plan in self.nested.items() if name in values}
        return {**values, **changed}


def _is_real(table: Table, column: str | None) -> bool:
    return column is not None and column in table.by_name and table.by_name[column].base_type in ("float4", "real")
