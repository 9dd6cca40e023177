"""Typed values for verification: a warehouse's columns against Postgres's text, and reals wherever they stand.

A typed column can't hold all that a document can (docs/types.md): no NaN in decimals, no infinite dates. Dates and
times are compared as numbers, because Python's own end with the year 9999.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from cdc.catalogue import Column, Table
from cdc.join.tree import Aggregate, Node
from cdc.types import canonical_result, spark_type
from cdc.types.times import days_of
from cdc.view import View
from truth.answers import Far
from truth.assembled import aggregate_type
from truth.digest import single
from truth.placing import is_several, standing
from truth.values import canonical, parse

_MOMENT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?Z?)?")
_JSON_KINDS = frozenset(("json", "jsonb", "hstore", "point"))


def moment_number(text: str) -> int | None:
    """Days (a date) or microseconds (a timestamp) since 1970 of canonical text; None for ±infinity."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction = found.groups()
    days = days_of(int(year), int(month), int(day))
    if hour is None:
        return days
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _expected(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and kind.startswith("array<"):
        return [_expected(item, kind[6:-1]) for item in value]
    if kind.startswith("decimal"):
        return None if value in ("NaN", "Infinity", "-Infinity") else value
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return moment_number(value)
    return value


def comparable_expected(view: View, document: Mapping[str, Any]) -> dict[str, Any]:
    """An expected document as the warehouse's columns can hold it."""
    tree = tree_of(view)
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
        name: parse(value) if value is not None and name in by_out and _is_json(by_out[name]) else value
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
    return parse(value) if value is not None and _is_json(column) else value


def _is_json(column: Column) -> bool:
    return column.base_type in _JSON_KINDS and not column.array


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
