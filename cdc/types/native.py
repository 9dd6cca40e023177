"""Spark's own functions in the place of converters, for the types that need no more than that. Pure: texts of SQL.

``from_json`` reads a raw value as ``Native.raw``; where writing what it has read does not give the very text again, the
record is left to the converters of ``cdc.types.values`` (spark/reading/native.py). So nothing here has to refuse what
is not of its type. What a type allows and only the converters get right is left to them by ``Native.plain``.
docs/decisions/warehouse-decoding.md says why there are two ways; a test holds them against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc.catalogue import Column
from cdc.types import times
from cdc.types.rules import element_rule, type_key
from cdc.types.values import NUMERIC_WORDS

# An expression over another one.
Sql = Callable[[str], str]


def _same(raw: str) -> str:
    return raw


@dataclass(frozen=True)
class Native:
    """How Spark reads a type.

    Attributes:
        raw: the Spark type of the value in Debezium's JSON.
        value: of a raw value, which may be null: the typed one.
        plain: of a raw value that is not null: whether ``value`` is right; None where it always is.
        key: of a raw value that is not null: its text in a document's id; None where only the converters know it.
    """

    raw: str
    value: Sql = _same
    plain: Sql | None = None
    key: Sql | None = None


def _as_text(raw: str) -> str:
    return f"CAST({raw} AS STRING)"


def _decimal(spark: str) -> Native:
    """The digits must be written as the type writes them: a cast would round what has more of a fraction."""
    words = ", ".join(f"'{word}'" for word in NUMERIC_WORDS)

    def value(raw: str) -> str:
        return f"TRY_CAST({raw} AS {spark})"

    def plain(raw: str) -> str:
        return f"({raw} IN ({words}) OR COALESCE(CAST({value(raw)} AS STRING) = {raw}, FALSE))"

    return Native("string", value, plain, _numeric)


def _numeric(raw: str) -> str:
    cases = " ".join(f"WHEN '{word}' THEN '{name}'" for word, name in NUMERIC_WORDS.items())
    return f"CASE {raw} {cases} ELSE {raw} END"


def _no_zeros(text: str) -> str:
    """A fraction without zeros at its end, and without its point where nothing is left."""
    return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"


def _time(raw: str) -> str:
    parts = [f"{raw} DIV 3600000000", f"{raw} DIV 60000000 % 60", f"{raw} DIV 1000000 % 60"]
    clock = ", ".join(f"LPAD(CAST({part} AS STRING), 2, '0')" for part in parts)
    return _no_zeros(f"CONCAT_WS(':', {clock}) || '.' || LPAD(CAST({raw} % 1000000 AS STRING), 6, '0')")


def _timetz(raw: str) -> str:
    clock = f"SUBSTR({raw}, 1, LENGTH({raw}) - 1)"
    return f"IF(CONTAINS({raw}, '.'), {_no_zeros(clock)} || 'Z', {raw})"


_INSTANT = r"'^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z$'"
_BOOLEAN = Native("boolean", key=_as_text)
_JSON = Native("string", lambda raw: rf"TRANSLATE({raw}, '\n\r', '  ')")
# Text in the event, and the same text in a table.
_TEXTS = """text varchar bpchar citext name char uuid enum xml tsvector inet cidr macaddr macaddr8 ltree int4range
    int8range numrange tsrange tstzrange daterange"""
_PLAIN_TEXT = Native("string", key=_same)
_KINDS: dict[str, Native] = {
    "bool": _BOOLEAN,
    "int2": Native("smallint", key=_as_text),
    "int4": Native("int", key=_as_text),
    "int8": Native("bigint", key=_as_text),
    "oid": Native("bigint", key=_as_text),
    "float4": Native("float"),
    "float8": Native("double"),
    "numeric": Native("string", _numeric, key=_numeric),
    "date": Native(
        "int",
        lambda raw: f"DATE_FROM_UNIX_DATE({raw})",
        lambda raw: f"{raw} BETWEEN {times.FIRST_DAY} AND {times.LAST_DAY}",
        lambda raw: _as_text(f"DATE_FROM_UNIX_DATE({raw})"),
    ),
    "timestamp": Native(
        "bigint",
        lambda raw: f"CAST(TIMESTAMP_MICROS({raw}) AS TIMESTAMP_NTZ)",
        lambda raw: f"{raw} BETWEEN {times.FIRST_US} AND {times.LAST_US}",
    ),
    # What has the form and is no day (the snapshot's old calendar has some) would be null without a word.
    "timestamptz": Native(
        "string",
        lambda raw: f"TRY_CAST({raw} AS TIMESTAMP)",
        lambda raw: f"({raw} RLIKE {_INSTANT} AND TRY_CAST({raw} AS TIMESTAMP) IS NOT NULL)",
    ),
    "time": Native("bigint", _time, lambda raw: f"{raw} BETWEEN 0 AND {times.DAY_US}"),
    "timetz": Native("string", _timetz, lambda raw: f"ENDSWITH({raw}, 'Z')"),
    "bytea": Native("binary"),
    "json": _JSON,
    "jsonb": _JSON,
    **dict.fromkeys(_TEXTS.split(), _PLAIN_TEXT),
}
# Of an array in an array of texts Debezium prints the Java object.
_ELEMENT = replace(_PLAIN_TEXT, plain=lambda raw: f"NOT (STARTSWITH({raw}, '[L') AND CONTAINS({raw}, ';@'))")


def native(column: Column) -> Native | None:
    """How Spark reads a column's raw values; None if only the converters can."""
    found = _element(column)
    if found is None or not column.array:
        return found
    one = _ELEMENT if found is _PLAIN_TEXT else found
    value, plain = one.value, one.plain
    return Native(
        f"array<{one.raw}>",
        _same if value is _same else lambda raw: f"TRANSFORM({raw}, e -> {value('e')})",
        None if plain is None else lambda raw: f"FORALL({raw}, e -> e IS NULL OR {plain('e')})",
    )


def _element(column: Column) -> Native | None:
    kind, rule = type_key(column), element_rule(column)
    if kind == "bit" and rule.spark == "boolean":
        return _BOOLEAN
    if kind == "numeric" and (column.scale or 0) < 0:
        return None  # Debezium adds thousands of zeros
    if rule.spark.startswith("decimal("):
        return _decimal(rule.spark)
    return _KINDS.get(kind)
