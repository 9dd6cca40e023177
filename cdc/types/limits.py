"""What Debezium 3.7 does not deliver, found by running it on every type: see docs/types.md.

Columns that it never delivers right are left out of views; values that it delivers wrong without a sign are told to the
user by preflight; large values whose absence it does not mark need help from the connector's settings.
"""

from __future__ import annotations

from dataclasses import replace

from cdc.catalogue import Column, Table
from cdc.types.rules import RULES, SQL_NAMES, bit_length, type_key

_ABSENT_ARRAYS = frozenset(("interval", "money", "name", "point", "xml"))
_SHAPES = frozenset(("box", "line", "lseg", "path", "polygon", "circle"))
# pgvector's and PostGIS's, of which Debezium gives the numbers, or the bytes.
_EXTENSIONS = frozenset(("vector", "halfvec", "sparsevec", "geometry", "geography"))
# Array elements for which an unchanged large value is marked; for every other kind of array it arrives as null.
_MARKED_ARRAYS = frozenset(("text", "varchar", "bpchar", "json", "jsonb", "int4", "int8", "uuid", "date", "bytea"))
# Never stored out of line, so never left out of an event.
_FIXED_WIDTH = """bool int2 int4 int8 oid float4 float8 money uuid enum char name point timestamptz timestamp date time
    timetz interval macaddr macaddr8"""
_FIXED = frozenset(_FIXED_WIDTH.split())


def taken(name: str) -> bool:
    """Whether a name is that of a type of Postgres's or an extension's which is treated in a way of its own."""
    return name in RULES or name in SQL_NAMES or name in _SHAPES or name in _EXTENSIONS


def _namesake(column: Column) -> str | None:
    """The type that a user's own one is called like; None if it is called like no other."""
    schema, _, name = column.base_type.rpartition(".")
    return name if schema and taken(name) else None


def unsupported(column: Column) -> str | None:
    """Why a column can't be in a view; None if it can."""
    key = type_key(column)
    if (name := _namesake(column)) and (key != "enum" or column.array):
        return (
            f"Debezium takes {column.base_type} for the {name} that it knows: it gives null, or what is no value, and "
            "its task may fail; give the type another name (ALTER TYPE … RENAME TO …)"
        )
    if key in _SHAPES:
        return f"Debezium gives a {key} in a binary form that is not Postgres's value"
    if column.array and key in _EXTENSIONS:
        return (
            f"Debezium gives {column.type_name} in a form that is not Postgres's value; a text column beside it that a "
            "trigger writes can be in a view"
        )
    return _unsupported_array(column) if column.array else _unsupported_bits(column)


def _unsupported_array(column: Column) -> str | None:
    key = type_key(column)
    if key in _ABSENT_ARRAYS:
        return f"Debezium leaves columns of type {key}[] out of its events"
    if key in ("bit", "varbit"):
        return f"Debezium gives null for every {key}[]"
    if elements_are_domains(column):
        return "Debezium gives null for an array of a domain's values as soon as one of them is NULL"
    return None


def _unsupported_bits(column: Column) -> str | None:
    key = type_key(column)
    if key == "varbit" or (key == "bit" and bit_length(column.type_name) is None):
        return "Debezium cuts a bit string's leading zeros, and this type does not say how many there were"
    return None


def supported(table: Table) -> Table:
    """The table without the columns that can't be in a view."""
    columns = tuple(column for column in table.columns if unsupported(column) is None)
    return table if len(columns) == len(table.columns) else replace(table, columns=columns)


# The days that Java's old calendar, by which JDBC reads, leaves out where it goes over to the Gregorian.
_SKIPPED = "1582-10-05 to 1582-10-14 become ten days later"


def lossy(column: Column) -> str | None:
    """Which of a column's possible values arrive changed, without any sign in the event; None if none does."""
    key = type_key(column)
    if column.array:
        notes = ["arrays of more than one dimension lose their elements (text: the record is rejected)"]
        if key == "numeric":
            notes.append("an array with a NaN or an infinity becomes null")
        if null_breaks_array(column):
            notes.append("an array with a NULL element becomes null")
        if key == "time":
            notes.append("microseconds are cut and 24:00:00 becomes 00:00:00")
        if key in ("timestamp", "timestamptz", "date"):
            notes.append("years before 1 lose their sign or shift by days")
        if key == "timestamp":
            notes.append("moments before 1582-10-15 shift by up to ten days")
        if key in ("timestamptz", "date"):
            notes.append(_SKIPPED)
        return "; ".join(notes)
    if key == "date":
        return f"when they are read by a snapshot, dates before the year 1 lose their sign, and {_SKIPPED}"
    if key == "timetz":
        return "a time whose zone has seconds (+00:00:01) becomes null"
    if key == "interval":
        return "±infinity (Postgres 17) becomes zero"
    return None


def null_breaks_array(column: Column) -> bool:
    """Whether one NULL among an array's elements makes the whole array null."""
    key = type_key(column)
    return column.array and (key in ("enum", "ltree", "tsvector") or key not in RULES)


def elements_are_domains(column: Column) -> bool:
    """Whether an array's element type is a domain (the array type itself being a domain is another thing)."""
    if not column.array or not column.type_name.endswith("[]"):
        return False
    element = column.type_name[:-2].split("(")[0].rsplit(".", 1)[-1].strip('"')
    rest = column.type_name[:-2].partition(")")[2]  # timestamp(3) with time zone
    base = SQL_NAMES.get(element + rest, element + rest)
    own = _namesake(column) or column.base_type
    return base != SQL_NAMES.get(own, own)


def may_be_large(column: Column) -> bool:
    """Whether Postgres may store a value out of line (TOAST), so that an update that keeps it does not log it."""
    return column.array or type_key(column) not in _FIXED


def null_when_unchanged(column: Column) -> bool:
    """Whether an unchanged large value arrives as a plain null, which nothing tells from NULL.

    Such a column is only safe with REPLICA IDENTITY FULL, or if the connector re-reads its nulls.
    """
    key = type_key(column)
    if not column.array:
        return key in ("bit", "varbit") or key in _SHAPES or key in _EXTENSIONS
    is_domain = not column.type_name.endswith("[]")
    return is_domain or key not in _MARKED_ARRAYS


def never_reselected(column: Column) -> bool:
    """Whether Debezium's re-selection overlooks the placeholder (uuid[]): such a column needs REPLICA IDENTITY FULL."""
    return column.array and type_key(column) == "uuid"
