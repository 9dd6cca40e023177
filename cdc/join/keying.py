"""Ids of rows from their stored values: the primary key's, and those that foreign keys name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cdc import types
from cdc.catalogue import Table
from cdc.keys import document_id

# From an array of raw values to the id that its key columns make; None when one of them is NULL.
KeyOf = Callable[[Sequence[Any]], str | None]


def key_of(table: Table, names: Sequence[str], places: Sequence[int]) -> KeyOf:
    """A function that makes a row id of some columns.

    Args:
        table: whose columns they are.
        names: the columns, in the order of the key that they name.
        places: where they stand in the array that the function gets.
    """
    plan = tuple((at, types.json_converter(table.by_name[name])) for name, at in zip(names, places, strict=True))
    if len(plan) == 1:
        return _single(*plan[0])

    def several(values: Sequence[Any]) -> str | None:
        found = []
        for at, convert in plan:
            value = values[at]
            if value is None:
                return None
            found.append(value if convert is None else convert(value))
        return document_id(found)

    return several


def _single(at: int, convert: types.Converter | None) -> KeyOf:
    def plain(values: Sequence[Any]) -> str | None:
        value = values[at]
        # Nearly all keys are texts or integers, and there are several for each row that is loaded.
        if type(value) is str:
            return value
        if type(value) is int:
            return str(value)
        return None if value is None else document_id([value])

    if convert is None:
        return plain

    def single(values: Sequence[Any]) -> str | None:
        value = values[at]
        if value is None:
            return None
        return document_id([convert(value)])

    return single
