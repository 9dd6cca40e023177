"""What rows contribute to aggregates, and how a parent's group gets there from what they contributed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from cdc.join.aggregates import Delta, value_kind
from cdc.join.layout import Group, TableLayout
from cdc.join.ordering import is_text, score
from sinks.rowstore.contract import Contribution


def given(layout: TableLayout, group: Group, row: list[Any] | None) -> list[Any] | None:
    """What a row contributes to a group; None when it contributes nothing to any of its aggregates."""
    if row is None:
        return None
    first = len(layout.columns) + group.first
    values = row[first : first + len(group.aggregates)]
    return values if any(value is not None for value in values) else None


def change_of(name: str, group: Group, wanted: Mapping[str, list[Any] | None], held: Sequence[bytes]) -> Contribution:
    """What brings a parent's children from what they contribute now to what is wanted; without children if it is so."""
    delta = Delta(group.aggregates)
    children: list[tuple[str, bytes, bytes]] = []
    for (child, after), text in zip(wanted.items(), held, strict=True):
        new = b"" if after is None else orjson.dumps(after)
        if new != text:
            children.append((child, text, new))
            delta.move(orjson.loads(text) if text else None, after)
    kinds = [value_kind(aggregate) for aggregate in group.aggregates]
    ordered = []
    for (number, member), count in delta.ordered.items():
        if count:
            at = 0.0 if is_text(kinds[number]) else score(kinds[number], delta.values[member])
            ordered.append((number, at, member, count))
    distinct = [
        (f"{number}:{value}", count, f"d{number}") for (number, value), count in delta.distinct.items() if count
    ]
    totals = {field: count for field, count in delta.totals.items() if count}
    return Contribution(name, children, totals, distinct, ordered)
