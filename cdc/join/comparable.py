"""Which columns can be joined, sorted by, added and counted: reasons in words, from types alone.

Rows are found by the text of a key's canonical value (cdc/keys.py). So a join needs types of which equal values always
have equal texts, and sorting needs types whose values cdc/join/ordering.py puts into the order that Postgres has.
"""

from __future__ import annotations

from cdc.catalogue import Column
from cdc.types import RULES, type_key

# Of a timetz: two of one moment are two values, and one in the log.
ZONED = "its zone counts in Postgres, and is not in the log"
_INTEGERS = frozenset(("int2", "int4", "int8", "oid"))
_TEXTS = frozenset(("text", "varchar", "name"))
# Equal in Postgres, yet of different texts.
_AMBIGUOUS = {
    "citext": "'A' and 'a' are one citext",
    "float4": "0 and -0 are one float",
    "float8": "0 and -0 are one float",
    "interval": "'1 day' and '24 hours' are one interval",
    "timetz": ZONED,
    "jsonb": "1.0 and 1 are one value",
    "numrange": "bounds of 1.0 and 1 are one",
}
# Of a nondeterministic collation, also: 'a' and 'A', or two spellings of 'é', may be equal.
COLLATED = "its collation is nondeterministic: texts that differ may be equal in Postgres, and are not here"
_NO_EQUALITY = frozenset(
    ("json", "xml", "point", "tsvector", "hstore", "vector", "halfvec", "sparsevec", "geometry", "geography")
)
# Text that Postgres does not order as text.
_OTHER_ORDER = _NO_EQUALITY | {"interval", "timetz", "inet", "cidr", "ltree", "bytea", "jsonb"}
# Values that are neither numbers nor texts.
_OBJECTS = frozenset(("json", "jsonb", "hstore", "point"))
_NUMBERS = frozenset(("int2", "int4", "int8", "float4", "float8", "numeric", "money"))


def kind(column: Column) -> str:
    """A column's type for messages, as the source names it."""
    return column.type_name


def spelled_otherwise(column: Column) -> str | None:
    """How equal values of a column may have different texts; None if they can't.

    Numerics are not told of: their digits are compared where their scale is fixed.
    """
    if column.unpadded or column.type_name == "bpchar":  # with a length all are filled up to it
        return "blanks at its end do not count in Postgres, and without a length it keeps them"
    return _AMBIGUOUS.get(type_key(column))


def not_joined(one: Column, other: Column) -> str | None:
    """Why the values of two columns can't be compared as a join does; None if they can.

    Args:
        one: a column of one table.
        other: the column of the other table that shall be equal.
    """
    left, right = type_key(one), type_key(other)
    for column, key in ((one, left), (other, right)):
        if column.array:
            return f"{column.name} is an array ({kind(column)})"
        if why := spelled_otherwise(column):
            return f"{column.name} is {kind(column)}, and equal values may have different texts: {why}"
        if column.collated:
            return f"{column.name} can't be compared, {COLLATED}"
        if key in _NO_EQUALITY or key not in RULES:
            return f"{column.name} is {kind(column)}, by which rows can't be found"
    same = left == right or {left, right} <= _INTEGERS or {left, right} <= _TEXTS
    if same and left == right == "numeric":
        same = one.precision is not None and other.precision is not None and one.scale == other.scale
        if not same:
            return (
                f"{one.name} is {kind(one)}, {other.name} is {kind(other)}: numerics are compared by their digits, so "
                "both need the same scale"
            )
    if same and left in ("enum", "bpchar", "bit"):
        same = one.type_name == other.type_name
    return None if same else f"{one.name} is {kind(one)}, {other.name} is {kind(other)}"


def not_sorted(column: Column) -> str | None:
    """Why rows can't be sorted by a column, nor its least or greatest value be taken; None if they can."""
    key = type_key(column)
    if column.array:
        return f"{column.name} is an array ({kind(column)})"
    if column.collated:
        return f"{column.name} can't be ordered, {COLLATED}"
    if key in _OTHER_ORDER or key.endswith("range") or key not in RULES:
        why = f": {_AMBIGUOUS[key]}" if key == "timetz" else ""
        return f"{column.name} is {kind(column)}, which has no order here{why}"
    return None


def not_arranged(column: Column) -> str | None:
    """Why the first of many rows can't be found by a column of a key; None if they can.

    A place among others is a number (``cdc.join.ordering.rank``), and of what is neither a number nor a text none is
    made. All of the rows can be sorted by it.
    """
    if column.array:
        return f"{column.name} is an array ({kind(column)})"
    return f"{column.name} is {kind(column)}" if type_key(column) in _OBJECTS else None


def not_added(column: Column) -> str | None:
    """Why a column has no sum and no average; None if it has."""
    if not column.array and type_key(column) in _NUMBERS:
        return None
    return f"{column.name} is {kind(column)}, no number"


def not_counted(column: Column) -> str | None:
    """Why a column's distinct values can't be counted; None if they can."""
    key = type_key(column)
    if column.array:
        return f"{column.name} is an array ({kind(column)})"
    if key in _NO_EQUALITY or key not in RULES:
        return f"{column.name} is {kind(column)}, whose values can't be told apart"
    if column.collated:
        return f"{column.name} can't be told apart, {COLLATED}"
    if key not in ("float4", "float8") and (why := spelled_otherwise(column)):
        return f"{column.name} is {kind(column)}, and equal values may have different texts: {why}"
    return None


def respelled(column: Column) -> bool:
    """Whether a value may give way to an equal one of another text, which is another id here."""
    free = type_key(column) == "numeric" and column.precision is None  # 1.0 and 1.00
    return free or column.collated or spelled_otherwise(column) is not None
