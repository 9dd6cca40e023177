"""Aggregates that are kept exact while rows come, change, move to another parent and go.

Each child contributes one value to each aggregate of its parent, or null. What is kept for a parent is what sums and
counts can be corrected by: how many values there are, and their sum as decimal digits in limbs of nine, each limb an
integer that a server can add to. Sums are therefore exact for every numeric, and for doubles too (a double is a finite
decimal): the result does not depend on the order in which the changes came, as a floating sum would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import orjson

from cdc import types
from cdc.join.ordering import order_key
from cdc.join.tree import Aggregate

# Nine digits: 9.2e9 rows may add to one limb before a signed 64-bit integer overflows.
LIMB_DIGITS = 9
BASE = 10**LIMB_DIGITS
AVG_DIGITS = 16  # after the point, for a numeric without a scale
_INTEGERS = frozenset(("tinyint", "smallint", "int", "bigint"))
_FLOATS = frozenset(("float", "double"))
_WORDS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "ninf"}


def value_kind(aggregate: Aggregate) -> str:
    """Spark SQL type of the values that are aggregated; ``numeric`` for one that travels as text."""
    if aggregate.column is None:
        kind = aggregate.kind or "bigint"
        return kind if kind != "string" or aggregate.function not in ("sum", "avg") else "numeric"
    column = aggregate.table.by_name[aggregate.column]
    return "numeric" if types.type_key(column) == "numeric" and not column.array else types.spark_type(column)


def scale_of(aggregate: Aggregate) -> int | None:
    """Digits after the point of a decimal result; None when the type does not bound them."""
    if aggregate.column is not None:
        column = aggregate.table.by_name[aggregate.column]
        if types.type_key(column) == "money":
            return 2
        return max(column.scale or 0, 0) if column.precision is not None else None
    kind = value_kind(aggregate)
    return int(kind[8:-1].split(",")[1]) if kind.startswith("decimal(") else None


def result_type(aggregate: Aggregate) -> str:
    """Spark SQL type of the aggregate's value, for expressions over the assembled row."""
    kind = value_kind(aggregate)
    if aggregate.function == "count":
        return "bigint"
    if aggregate.function in ("min", "max"):
        return "string" if kind == "numeric" and aggregate.column is None else _column_type(aggregate, kind)
    if kind in _FLOATS or (aggregate.function == "avg" and kind in _INTEGERS):
        return "double"
    if kind in _INTEGERS:
        return "bigint"
    scale = scale_of(aggregate)
    if scale is None or scale > 30:
        return "string"
    return f"decimal(38,{scale + 4 if aggregate.function == 'avg' else scale})"


def _column_type(aggregate: Aggregate, kind: str) -> str:
    return types.spark_type(aggregate.table.by_name[aggregate.column]) if aggregate.column else kind


def elasticsearch_mapping(aggregate: Aggregate) -> dict[str, Any]:
    """Default mapping of the aggregate's field."""
    kind = value_kind(aggregate)
    if aggregate.function in ("min", "max") and aggregate.column is not None:
        return types.elasticsearch_mapping(aggregate.table.by_name[aggregate.column])
    if kind == "numeric" and aggregate.function != "count":
        return types.mapping_of_spark("double")
    if aggregate.function == "sum" and kind in _INTEGERS:
        # One beyond 64 bits is kept in the document and not indexed: it would be refused, and the document with it.
        return types.mapping_of_spark("bigint") | {"ignore_malformed": True}
    return types.mapping_of_spark(result_type(aggregate))


# -- sums ----------------------------------------------------------------------------------------------------


def limbs(value: Any) -> dict[str, int]:
    """What a canonical number adds to a sum: limb name -> integer; NaN and the infinities are counted by name."""
    if isinstance(value, str) and value in _WORDS:
        return {_WORDS[value]: 1}
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    # By slices: Python takes no text of more than 4,300 digits for an integer, and a numeric may have 147,455.
    shift = exponent % LIMB_DIGITS
    text, place = "".join(map(str, digits)) + "0" * shift, (exponent - shift) // LIMB_DIGITS
    found: dict[str, int] = {}
    for end in range(len(text), 0, -LIMB_DIGITS):
        if limb := int(text[max(end - LIMB_DIGITS, 0) : end]):
            found[str(place)] = -limb if sign else limb
        place += 1
    return found


def total(parts: Mapping[str, int]) -> Decimal | str:
    """The exact sum that limbs make; a word when a NaN or an infinity is among the values."""
    if parts.get("nan") or (parts.get("inf") and parts.get("ninf")):
        return "NaN"
    if parts.get("inf") or parts.get("ninf"):
        return "Infinity" if parts.get("inf") else "-Infinity"
    return _carried({int(name): limb for name, limb in parts.items() if name not in ("nan", "inf", "ninf")})


def _carried(held: Mapping[int, int]) -> Decimal:
    """Limbs as one number. Its text is what they are made into, which takes time by the digit; an integer would not."""
    if not held:
        return Decimal(0)
    least, carry, digits = min(held), 0, list[int]()
    for place in range(least, max(held) + 1):
        carry, limb = divmod(held.get(place, 0) + carry, BASE)
        digits.append(limb)
    if carry < 0:
        return _carried({place: -limb for place, limb in held.items()}).copy_negate()
    text = "".join([f"{limb:0{LIMB_DIGITS}d}" for limb in reversed(digits)])
    return Decimal(f"{carry}{text}E{least * LIMB_DIGITS}")


def decimal_text(number: Decimal, scale: int, *, trim: bool = False) -> str:
    """A decimal as plain text, rounded half up (away from zero)."""
    rounded = number.quantize(Decimal((0, (1,), -scale)), context=_room(number, scale, ROUND_HALF_UP))
    text = format(rounded.copy_abs(), "f")
    if trim and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"-{text}" if rounded < 0 else text


def _exact_text(number: Decimal) -> str:
    """A finite decimal with all of its digits."""
    text = format(number, "f") if number else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _room(number: Decimal, scale: int, rounding: str) -> Context:
    """A context that holds a number with so many digits after the point, where Python's own would hold 28 in all."""
    return Context(max(number.adjusted(), 0) + scale + 3, rounding, MIN_EMIN, MAX_EMAX)


# -- results ----------------------------------------------------------------------------------------------------


def summed(aggregate: Aggregate, parts: Mapping[str, int], count: int) -> Any:
    """The canonical JSON value of a sum or an average.

    Args:
        aggregate: which.
        parts: its limbs.
        count: how many values are in it.
    """
    if not count:
        return None
    kind, found = value_kind(aggregate), total(parts)
    if isinstance(found, str):
        return found
    average = aggregate.function == "avg"
    if kind in _FLOATS or (average and kind in _INTEGERS):
        return _double(Fraction(found) / count if average else Fraction(found))
    if kind in _INTEGERS:
        return int(found)
    scale = scale_of(aggregate)
    if average:
        digits = AVG_DIGITS if scale is None else scale + 4
        return decimal_text(_mean(found, count, digits), digits, trim=scale is None)
    return _exact_text(found) if scale is None else decimal_text(found, scale)


def _mean(number: Decimal, count: int, scale: int) -> Decimal:
    """A quotient with a digit more than is kept, and what follows cut off: half up looks at that digit alone."""
    return _room(number, scale, ROUND_DOWN).divide(number, Decimal(count))


def for_json(value: Any) -> Any:
    """A result for orjson, which takes 64 bits of an integer and refuses more: such a sum is a fragment of JSON.

    Args:
        value: canonical, as ``summed`` and ``extreme`` give it.
    """
    wide = type(value) is int and not -(1 << 63) <= value < 1 << 64
    return orjson.Fragment(str(value)) if wide else value


def _double(number: Fraction) -> float | str:
    try:
        return float(number)
    except OverflowError:
        return "Infinity" if number > 0 else "-Infinity"


def extreme(aggregate: Aggregate, candidates: list[Any]) -> Any:
    """The least or greatest of canonical values; None of none."""
    if not candidates:
        return None
    choose = min if aggregate.function == "min" else max
    order = order_key(value_kind(aggregate))
    # Of equals (0.0 and -0.0, 1.0 and 1.00) always the same one, in whatever order they come.
    return choose(candidates, key=lambda value: (order(value), str(value)))


# -- changes ----------------------------------------------------------------------------------------------------


class Delta:
    """What one parent's group gains and loses when children's contributions change.

    Attributes:
        totals: field -> integer to add.
        distinct: (aggregate, value's text) -> integer to add.
        ordered: (aggregate, value's text) -> how many children more have it, of min and max.
    """

    def __init__(self, aggregates: tuple[Aggregate, ...]) -> None:
        self.aggregates = aggregates
        self.totals: Counter[str] = Counter()
        self.distinct: Counter[tuple[int, str]] = Counter()
        self.ordered: Counter[tuple[int, str]] = Counter()
        self.values: dict[str, Any] = {}

    def move(self, before: list[Any] | None, after: list[Any] | None) -> None:
        """One child's contribution changes from ``before`` to ``after``; None is none."""
        for number, aggregate in enumerate(self.aggregates):
            old = None if before is None else before[number]
            new = None if after is None else after[number]
            # Not ``old == new``: 0.0 and -0.0 are equal, and so are 1 and True; what came in must go out as itself.
            if orjson.dumps(old) == orjson.dumps(new):
                continue
            if old is not None:
                self._add(number, aggregate, old, -1)
            if new is not None:
                self._add(number, aggregate, new, 1)

    def _add(self, number: int, aggregate: Aggregate, value: Any, sign: int) -> None:
        if aggregate.function in ("min", "max"):
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            self.values[text] = value
            self.ordered[number, text] += sign
            return
        if aggregate.distinct:
            self.distinct[number, _distinct_text(value_kind(aggregate), value)] += sign
            return
        self.totals[f"n{number}"] += sign
        if aggregate.function in ("sum", "avg"):
            for name, limb in limbs(value).items():
                self.totals[f"s{number}:{name}"] += sign * limb


def _distinct_text(kind: str, value: Any) -> str:
    """A text that two canonical values share only if they are equal: 1.0 and 1.00 are one number."""
    if kind == "numeric" or kind.startswith("decimal"):
        number = Decimal(value)
        return _exact_text(number) if number.is_finite() else str(number)
    if kind in _FLOATS and not isinstance(value, str):
        return repr(float(value) + 0.0)  # -0.0 and 0.0 are equal
    return value if isinstance(value, str) else orjson.dumps(value).decode()
