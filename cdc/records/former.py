"""Records of today for a generation that goes on with a table as it was: values as its columns can hold them. Pure.

While the next generation is built, the living one serves what it can hold (docs/decisions/schema-evolution.md). A value
whose column has another type by now is brought to the former one where that says the same, and is null where it does
not: one column must not cost a whole row, and its documents, their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from cdc import types
from cdc.catalogue import Column, Table

_INTEGERS = frozenset(("int2", "int4", "int8"))
_TEXTS = frozenset(("text", "varchar", "bpchar", "name", "enum"))
_AS_TEXT = _INTEGERS | _TEXTS | {"numeric", "uuid"}
_WHOLE = re.compile(r"(-?\d+)(?:\.0+)?", re.ASCII)
# How Debezium gives a value; everything else is text.
_FORMS = dict.fromkeys(("int2", "int4", "int8", "date", "timestamp", "time"), int) | {
    "bool": bool,
    "float4": float,
    "float8": float,
}

Bring = Callable[[Any], Any]


class Former:
    """Brings rows of a table to what it was.

    Args:
        table: with what the database has in its columns' place now (``Table.present``).
    """

    def __init__(self, table: Table) -> None:
        keys = set(table.primary_key)  # of another type, a key makes other documents: such a table is not gone on with
        self._columns = [
            (name, _bring(table.by_name[name], now))
            for name, now in table.present
            if now is not None and name in table.by_name and name not in keys and _differ(table.by_name[name], now)
        ]

    def __bool__(self) -> bool:
        return bool(self._columns)

    def bring(self, row: dict[str, Any], missing: Collection[str] = ()) -> None:
        """Change a row in place.

        Args:
            row: raw values by the columns' former names.
            missing: columns whose value is not in the record.
        """
        for name, bring in self._columns:
            value = row.get(name)
            if value is not None and name not in missing:
                row[name] = bring(value)


def with_digits(frozen: Table, now: Table) -> Table:
    """A table as it was, but for how many digits its numerics have: a document, and a sum in it, has room for all.
    Pure.

    Args:
        frozen: as it was.
        now: as it is.
    """
    present = {column.ordinal: column for column in now.columns}
    columns = tuple(
        replace(was, type_name=one.type_name, precision=one.precision, scale=one.scale)
        if (one := present.get(was.ordinal)) is not None
        and types.type_key(was) == types.type_key(one) == "numeric"
        and was.array == one.array
        and was.name not in frozen.primary_key
        else was
        for was in frozen.columns
    )
    return replace(frozen, columns=columns)


def _differ(was: Column, now: Column) -> bool:
    return (was.base_type, was.precision, was.scale, was.array, was.enum_values) != (
        now.base_type,
        now.precision,
        now.scale,
        now.array,
        now.enum_values,
    )


def _bring(was: Column, now: Column) -> Bring:
    convert = _converted(was, now)
    checks = [check for check in (types.json_converter(was), types.arrow_converter(was)) if check is not None]

    def bring(value: Any) -> Any:
        try:
            value = convert(value)
            for check in checks:
                check(value)
        except types.REFUSALS:
            return None
        return value

    return bring


def _converted(was: Column, now: Column) -> Bring:
    """What says the same in the former type; raises any of ``cdc.types.REFUSALS`` where nothing does."""
    old, new = types.type_key(was), types.type_key(now)
    if was.array != now.array or (was.array and old != new):
        return _never
    if old == new == "numeric" and was.scale is not None:
        return partial(_to_scale, max(was.scale, 0))
    if old == new or {old, new} <= _INTEGERS:
        return _same
    if (old in _TEXTS and new in _AS_TEXT) or (old == "numeric" and new in _INTEGERS):
        return _as_text
    if old in _INTEGERS and new == "numeric":
        return _as_integer
    form = _FORMS.get(old, str)
    return _never if form is _FORMS.get(new, str) else partial(_from_before, form)


def _from_before(form: type, value: Any) -> Any:
    """The value of a record from before the column was altered."""
    if type(value) is not form:
        raise TypeError("of the new type")
    return value


def _same(value: Any) -> Any:
    return value


def _to_scale(scale: int, value: Any) -> Any:
    """Without the zeros that a greater scale put behind: Postgres then writes 1.25 as 1.2500, which says the same."""
    if type(value) is list:
        return [_to_scale(scale, one) for one in value]
    if type(value) is not str:
        return value
    whole, point, fraction = value.partition(".")
    kept = fraction[:scale] + fraction[scale:].rstrip("0")
    return whole + point + kept if kept else whole


def _never(value: Any) -> Any:
    """A day can't be told from a microsecond."""
    raise ValueError("it has another meaning")


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _as_integer(value: Any) -> Any:
    if type(value) is str:
        found = _WHOLE.fullmatch(value)
        if found is None:
            raise ValueError("no whole number")
        return int(found[1])
    return value
