"""The truth of a joined view by plain loops over its tables (tests/support/join_world.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

from cdc.catalogue import Table
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.keys import document_id
from tests.support.join_world import Row, computed

# In the place of what stands at one of several rows of which there is to be one: any of these.
EITHER = "any of"


def truth(view: JoinedView, tables: Mapping[str, dict[int, Row]]) -> dict[str, Any]:
    """Every document, from the tables; where a `one` has several rows ``{EITHER: [what may stand there]}``."""
    key = view.table.primary_key
    return {
        document_id([row[column] for column in key]): _true(view.tree, row, tables)
        for row in tables[view.table.name].values()
    }


def agrees(want: Any, got: Any) -> bool:
    """Whether a value is what ``truth`` says, types and order and all."""
    if isinstance(want, dict) and EITHER in want:
        return any(agrees(one, got) for one in want[EITHER])
    if isinstance(want, dict) and isinstance(got, dict):
        return list(want) == list(got) and all(agrees(want[name], got[name]) for name in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(agrees, want, got))
    return str(want) == str(got) and type(want) is type(got)


def _true(node: Node, row: Row, tables: Mapping[str, dict[int, Row]]) -> Any:
    """What a row shows: its value, an object, or of a hidden row the object that is merged into the one above."""
    if node.value is not None:
        return row[node.value]
    found = {out: row[source] for source, out in node.columns}
    for below in node.nested:
        shown = [_true(below, other, tables) for other in _joined(below, row, tables)]
        if not below.hide:
            found[below.name] = _placed(below, shown)
        else:
            several = below.kind == "child" and not below.one
            for name, many in _names(below).items():
                parts = [one[name] for one in shown]
                found[name] = _gathered(parts, many=many) if several else _either(parts, [] if many else None)
    for aggregate in node.aggregates:
        found[aggregate.name] = _aggregate(aggregate, _pointing(aggregate.table, aggregate.on, row, tables))
    return found


def _placed(node: Node, shown: list[Any]) -> Any:
    if node.kind == "ref" or node.one:
        return _either(shown, None)
    return [one for one in shown if node.value is None or one is not None]


def _open(part: Any) -> bool:
    return isinstance(part, dict) and EITHER in part


def _choices(part: Any) -> list[Any]:
    return list(part[EITHER]) if _open(part) else [part]


def _either(shown: list[Any], none: Any) -> Any:
    """What stands where there is to be one row or none."""
    if len(shown) < 2:
        return shown[0] if shown else none
    return {EITHER: [choice for part in shown for choice in _choices(part)]}


def _gathered(parts: list[Any], *, many: bool) -> Any:
    """What many hidden rows lead to: their arrays one after the other, or those that are not null."""
    ways = [list(way) for way in product(*map(_choices, parts))]
    found = [[item for one in way for item in (one if many else [one]) if many or item is not None] for way in ways]
    return {EITHER: found} if any(map(_open, parts)) else found[0]


def _names(node: Node) -> dict[str, bool]:
    """What a hidden node leads to: its name, and whether it is an array there."""
    found: dict[str, bool] = {}
    for below in node.nested:
        several = below.kind == "child" and not below.one
        found |= {n: several or many for n, many in _names(below).items()} if below.hide else {below.name: several}
    return found


def _joined(node: Node, row: Row, tables: Mapping[str, dict[int, Row]]) -> list[Row]:
    if node.as_of is not None:
        return _as_it_was(node, row, tables)
    if node.kind == "ref":
        others = tables[node.table.name].values()
        return [r for r in others if _equal((row[left], r[right]) for left, right in node.on)]
    rows = _pointing(node.table, node.on, row, tables)
    for order in node.order_by:
        nulls = [r for r in rows if r[order.column] is None]
        rest = [r for r in rows if r[order.column] is not None]
        rest.sort(key=lambda r: _comparable(r[order.column]), reverse=order.descending)
        rows = nulls + rest if order.nulls_first else rest + nulls
    return rows[: node.limit]


def _as_it_was(node: Node, row: Row, tables: Any) -> list[Row]:
    """The row that was there; what is older than all that is known, and was not made then, is the oldest known."""
    moment, wanted = row[str(node.as_of)], [row[left] for left, _ in node.on]
    if moment is None or None in wanted:
        return []
    named = [right for _, right in node.on]
    mine: dict[int, list[Any]] = {}
    for version in tables.history[node.table.name]:
        mine.setdefault(version.key, []).append(version)
    for versions in mine.values():
        if not any(one.row is not None and [one.row[c] for c in named] == wanted for one in versions):
            continue
        before = [one for one in versions if one.since * 1000 <= moment]
        if before:
            return [] if before[-1].row is None else [before[-1].row]
        first = versions[0]
        return [] if first.created or first.row is None else [first.row]
    return []


def _pointing(of: Table, on: Any, row: Row, tables: Mapping[str, dict[int, Row]]) -> list[Row]:
    rows = [r for r in tables[of.name].values() if _equal((row[left], r[right]) for left, right in on)]
    return sorted(rows, key=lambda r: [_comparable(r[column]) for column in of.primary_key])


def _equal(pairs: Iterable[tuple[Any, Any]]) -> bool:
    """As in SQL: NULL equals nothing."""
    return all(one is not None and one == other for one, other in pairs)


def _comparable(value: Any) -> Any:
    try:
        return Decimal(value)
    except ArithmeticError:
        return value.encode()


def _real(value: Any) -> tuple[bool, float]:
    return (True, 0.0) if value == "NaN" else (False, float(value))


def _aggregate(aggregate: Aggregate, rows: list[Row]) -> Any:  # noqa: PLR0911 (one return a function)
    if aggregate.computed:
        values = [computed(aggregate, row) for row in rows]
    else:
        values = [1 if aggregate.value is None else row[aggregate.value] for row in rows]
    values = [value for value in values if value is not None]
    if aggregate.function == "count":
        return len({_real(v) if aggregate.value == "f" else v for v in values}) if aggregate.distinct else len(values)
    if not values:
        return None
    if aggregate.function in ("min", "max"):
        pick = min if aggregate.function == "min" else max
        if aggregate.value == "f":
            return pick(values, key=lambda value: (_real(value), str(value)))
        return pick(values, key=_comparable) if aggregate.value != "note" else pick(values, key=str.encode)
    if aggregate.value in ("n", "n * 2"):
        return sum(values)
    if aggregate.value == "f":
        return _sum_of_reals(values)
    total = sum((Fraction(value) for value in values), Fraction(0))
    if aggregate.function == "sum":
        return f"{Decimal(total.numerator) / Decimal(total.denominator):.2f}"
    scaled = total / len(values) * 10**6
    whole = (abs(scaled).numerator * 2 + scaled.denominator) // (scaled.denominator * 2)
    text = f"{whole // 10**6}.{whole % 10**6:06d}"
    return f"-{text}" if scaled < 0 and whole else text


def _sum_of_reals(values: list[Any]) -> Any:
    total = math.fsum(float(v) for v in values if v not in ("NaN", "Infinity", "-Infinity"))
    words = {value for value in values if isinstance(value, str)}
    if not words:
        return total
    return words.pop() if len(words) == 1 else "NaN"
