"""How canonical values compare and add up: what SQL's ``=``, ``ORDER BY`` and aggregates make of them, exactly.

It shares nothing with the engine's aggregates. Every sum is a fraction of whole numbers until it is printed, so that no
order of adding and no rounding on the way can show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import orjson

from cdc.catalogue import Column
from cdc.types.results import canonical_result
from cdc.types.rules import type_key
from truth.answers import Far

Kind = Literal["whole", "exact", "float", "other"]

# JSON has no word for these numbers; documents write them as text.
NAN, INFINITY, MINUS_INFINITY = "NaN", "Infinity", "-Infinity"
# Digits after the point of an average over a numeric without a scale, and what an average adds to a scale.
AVERAGE_DIGITS, AVERAGE_EXTRA = 16, 4

_WHOLE = frozenset(("int2", "int4", "int8", "oid"))
_FLOATS = frozenset(("float4", "float8"))
_EXACT = frozenset(("numeric", "money"))
_MOMENTS = frozenset(("date", "timestamp", "timestamptz"))
_THEMSELVES = _WHOLE | _MOMENTS | frozenset(("text", "varchar", "name", "enum", "uuid", "bool"))
_DAY = re.compile(r"([+-]?\d+)(-.*)")


@dataclass(frozen=True, slots=True)
class Cell:
    """One value that an aggregate looks at.

    Attributes:
        json: as it stands in a document.
        same: equal for values that SQL calls equal.
        order: sorts as the values do.
        kind: how it adds up.
        number: its exact number; None for what is no finite number.
        scale: digits after the point that its type has; None where the type does not say.
    """

    json: Any
    same: Hashable
    order: Any
    kind: Kind
    number: Fraction | None = None
    scale: int | None = None


def kind_of(column: Column) -> Kind:
    """How a column's values add up."""
    key = type_key(column)
    if column.array:
        return "other"
    return "whole" if key in _WHOLE else "float" if key in _FLOATS else "exact" if key in _EXACT else "other"


def scale_of(column: Column) -> int | None:
    """Digits after the point that a numeric column's type allows; None if it does not say."""
    if type_key(column) == "money":
        return 2
    return None if column.precision is None else max(column.scale or 0, 0)


def same(column: Column, value: Any) -> Hashable:
    """A key that is equal for values of a column that SQL calls equal (1.0 and 1.00, ``char(n)`` with its blanks)."""
    if isinstance(value, list):
        return tuple(same(column, item) for item in value)
    key = type_key(column)
    if key in _EXACT and value not in (NAN, None):
        return Decimal(value)
    if key == "bpchar" and value is not None:
        return str(value).rstrip(" ")
    if key == "citext" and value is not None:
        return str(value).lower()
    return _hashable(value)


def same_of(column: Column) -> Callable[[Any], Hashable] | None:
    """``same`` for one column's values (not None); None where the value itself is that key."""
    if type_key(column) in _THEMSELVES and not column.array:
        return None
    return partial(same, column)


def order(column: Column, value: Any) -> Any:
    """A key that sorts as a column's values (not None) do: numbers and moments by value, text by its bytes."""
    if isinstance(value, list):
        return [(item is None, None if item is None else order(column, item)) for item in value]
    key = type_key(column)
    if key in _EXACT or key in _FLOATS or key in _WHOLE:
        return _number_order(Decimal(value))
    if key in _MOMENTS:
        return _moment_order(value)
    # Python compares text by code points, which is the order of its UTF-8 bytes.
    return _hashable(value)


def cells_of(column: Column) -> Callable[[Any], Cell]:
    """A function from a column's canonical values (not None) to cells."""
    kind, scale = kind_of(column), scale_of(column)

    def cell(value: Any) -> Cell:
        return Cell(value, same(column, value), order(column, value), kind, _number(value, kind), scale)

    return cell


def cell_of_result(value: Any) -> Cell:
    """The cell of what Spark SQL computed (not None): int, float, Decimal, text, date, …"""
    json = canonical_result(value)
    if isinstance(value, date | Far):  # some of a column are the one, some the other
        return Cell(json, json, _moment_order(json), "other")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return Cell(json, _hashable(json), value, "other")
    kind: Kind = "whole" if isinstance(value, int) else "float" if isinstance(value, float) else "exact"
    scale = max(-int(value.as_tuple().exponent), 0) if isinstance(value, Decimal) else None
    number = Decimal(value)
    return Cell(json, NAN if number.is_nan() else number, _number_order(number), kind, _number(json, kind), scale)


def cell_of_number(value: Any) -> Cell:
    """The same for a sum, where text is a numeric without a precision: Spark holds those as their digits.

    Raises:
        ValueError: text that is no number.
    """
    if not isinstance(value, str) or isinstance(value, Far):
        return cell_of_result(value)
    try:
        number = Decimal(value)
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number") from error
    return Cell(value, number, number, "exact", _number(value, "exact"))


def aggregate(function: str, cells: Sequence[Cell], *, distinct: bool = False) -> Any:
    """The JSON value of an aggregate over cells; nulls are left out before.

    Args:
        function: count, sum, min, max or avg.
        cells: the values that are not null.
        distinct: count equal ones once.

    Raises:
        ValueError: the values do not add up (text).
    """
    if function == "count":
        return len({cell.same for cell in cells}) if distinct else len(cells)
    if not cells:
        return None
    if function in ("min", "max"):
        pick = min if function == "min" else max
        # 1.0 and 1.00 are equal and two texts: one of them, always the same one.
        return pick(cells, key=lambda cell: (cell.order, str(cell.json))).json
    return _added(function, cells)


def _added(function: str, cells: Sequence[Cell]) -> Any:
    kind = cells[0].kind
    if kind == "other":
        raise ValueError(f"{function} needs numbers, not {cells[0].json!r}")
    words = {cell.json for cell in cells if cell.number is None}
    if words:
        return words.pop() if len(words) == 1 else NAN
    total = sum((cell.number for cell in cells if cell.number is not None), Fraction(0))
    if function == "avg":
        total /= len(cells)
    if kind == "exact":
        return _exact_text(function, total, cells)
    if kind == "whole" and function == "sum":
        return whole(int(total))
    return _nearest(total)


def _exact_text(function: str, total: Fraction, cells: Sequence[Cell]) -> str:
    scale = cells[0].scale
    if scale is not None:
        return digits(total, scale + (AVERAGE_EXTRA if function == "avg" else 0))
    if function == "avg":
        return _trimmed(digits(total, AVERAGE_DIGITS))
    return _trimmed(digits(total, max(-int(Decimal(cell.json).as_tuple().exponent) for cell in cells)))


def digits(number: Fraction, scale: int) -> str:
    """Plain decimal text with so many digits after the point, halves rounded away from zero."""
    scale = max(scale, 0)
    units = int(abs(number) * 10**scale + Fraction(1, 2))
    text = format(Decimal(units), "f").rjust(scale + 1, "0")  # str(int) refuses more than 4,300 digits
    sign = "-" if number < 0 and units else ""
    return f"{sign}{text[:-scale]}.{text[-scale:]}" if scale else sign + text


def whole(number: int) -> Any:
    """An integer for orjson, which takes 64 bits and refuses more: those as a fragment of JSON."""
    return number if -(1 << 63) <= number < 1 << 64 else orjson.Fragment(str(number))


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _nearest(number: Fraction) -> float | str:
    try:
        return float(number)
    except OverflowError:
        return INFINITY if number > 0 else MINUS_INFINITY


def _number(value: Any, kind: Kind) -> Fraction | None:
    if kind == "other" or value in (NAN, INFINITY, MINUS_INFINITY):
        return None
    return Fraction(Decimal(value))  # not Fraction(text), which refuses more than 4,300 digits


def _number_order(number: Decimal) -> tuple[bool, Decimal]:
    """NaN is equal to itself and greater than every number, as in Postgres and Spark."""
    return (True, Decimal(0)) if number.is_nan() else (False, number)


def _moment_order(text: str) -> tuple[float, str]:
    """A moment by year and rest: ISO's text alone sorts wrongly outside the years 0 to 9999 and around fractions."""
    if text in ("infinity", "-infinity"):
        return (float(text), "")
    found = _DAY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date")
    return (int(found[1]), found[2].removesuffix("Z"))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, dict | list | orjson.Fragment):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return value if isinstance(value, Hashable) else str(value)
