"""One line a Postgres type: what its values become. docs/types.md shows this table to users; a test compares them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.catalogue import Column
from cdc.types import times, values
from cdc.types.values import Converter

# Spark's widest decimal; wider numerics, and those without a precision, travel as exact text.
MAX_PRECISION = 38
# A keyword longer than Lucene's 32,766 bytes rejects the document: 256 characters sort and aggregate, the rest is text.
TEXT_FIELD = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
# 8,191 characters of four bytes each are the most that fits those 32,766 bytes.
KEYWORD_FIELD = {"type": "keyword", "ignore_above": 8191}
FLATTENED_FIELD = {"type": "flattened", "ignore_above": 8191}
# `infinity`, year 10000 and NaN are values of Postgres: the field is left unindexed, the document is kept.
DATE_FIELD = {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True}
DOUBLE_FIELD = {"type": "double", "ignore_malformed": True}


@dataclass(frozen=True)
class Rule:
    """What a type becomes.

    Attributes:
        json: raw -> canonical JSON value; None: as it is.
        typed: raw -> value that Arrow takes; None: as it is.
        spark: Spark SQL type.
        elasticsearch: default mapping of the field.
    """

    json: Converter | None = None
    typed: Converter | None = None
    spark: str = "string"
    elasticsearch: dict[str, Any] = field(default_factory=lambda: dict(TEXT_FIELD))


def _integer(bits: int, spark: str, elasticsearch: str) -> Rule:
    return Rule(None, values.integer_of(bits), spark, {"type": elasticsearch})


_PLAIN_TEXT = Rule(values.text, values.text)
_KEYWORD = Rule(values.text, values.text, "string", KEYWORD_FIELD)
# Kept in the document but not searched: any mapping that searches refuses some JSON (flattened: scalars; dynamic: a key
# that is a number here and an object there), and one refused row is one row that search does not find at all.
KEPT_FIELD = {"type": "object", "enabled": False}

_JSON = Rule(values.json_fragment, values.json_text, "string", KEPT_FIELD)
UNKNOWN = Rule(values.unknown, values.unknown)

RULES: dict[str, Rule] = {
    "bool": Rule(None, values.boolean, "boolean", {"type": "boolean"}),
    "int2": _integer(16, "smallint", "short"),
    "int4": _integer(32, "int", "integer"),
    "int8": _integer(64, "bigint", "long"),
    "oid": _integer(64, "bigint", "long"),
    "float4": Rule(values.single, values.real_float, "float", {"type": "float", "ignore_malformed": True}),
    "float8": Rule(values.real, values.real_float, "double", DOUBLE_FIELD),
    "numeric": Rule(values.numeric, values.numeric, "string", DOUBLE_FIELD),
    "money": Rule(None, values.decimal_of(19, 2), "decimal(19,2)", DOUBLE_FIELD),
    "text": Rule(None, values.text),
    "varchar": Rule(None, values.text),
    "bpchar": Rule(None, values.text),
    "citext": Rule(None, values.text),
    "name": _KEYWORD,
    "char": _KEYWORD,
    "uuid": Rule(None, values.text, "string", KEYWORD_FIELD),
    "enum": Rule(None, values.text, "string", KEYWORD_FIELD),
    "timestamptz": Rule(times.canonical_timestamptz, times.arrow_timestamptz, "timestamp", DATE_FIELD),
    "timestamp": Rule(times.canonical_timestamp, times.arrow_timestamp, "timestamp_ntz", DATE_FIELD),
    "date": Rule(times.canonical_date, times.arrow_date, "date", DATE_FIELD),
    "time": Rule(times.canonical_time, times.canonical_time, "string", KEYWORD_FIELD),
    "timetz": Rule(times.canonical_timetz, times.canonical_timetz, "string", KEYWORD_FIELD),
    "interval": Rule(values.interval, values.interval, "string", KEYWORD_FIELD),
    "bytea": Rule(None, values.binary, "binary", {"type": "binary"}),
    "json": replace(_JSON, json=values.json_unique),
    "jsonb": _JSON,
    "hstore": Rule(values.hstore, values.hstore_text, "string", FLATTENED_FIELD),
    "bit": _KEYWORD,
    "varbit": _KEYWORD,
    "point": Rule(values.point, values.point_text, "string", {"properties": {"x": DOUBLE_FIELD, "y": DOUBLE_FIELD}}),
    "vector": Rule(values.vector, values.vector),
    "halfvec": Rule(values.vector, values.vector),
    "sparsevec": Rule(values.sparsevec, values.sparsevec),
    "geometry": Rule(values.geometry, values.geometry),
    "geography": Rule(values.geometry, values.geometry),
    "xml": _PLAIN_TEXT,
    "tsvector": _PLAIN_TEXT,
}
# Text in Debezium's events, and words rather than prose.
_WORDS = "inet cidr macaddr macaddr8 ltree int4range int8range numrange tsrange tstzrange daterange"
RULES |= dict.fromkeys(_WORDS.split(), _KEYWORD)

SQL_NAMES = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "decimal": "numeric",
    "character varying": "varchar",
    "character": "bpchar",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "time without time zone": "time",
    "time with time zone": "timetz",
    "bit varying": "varbit",
}


def type_key(column: Column) -> str:
    """The name in ``RULES`` for a column's element type; its own base type if there is no rule for it."""
    if column.enum_values is not None:
        return "enum"
    return SQL_NAMES.get(column.base_type, column.base_type)


def is_float(column: Column) -> bool:
    """Whether a column is a float, of which 0.0 and -0.0 are equal and two texts."""
    return not column.array and type_key(column) in ("float4", "float8")


def element_rule(column: Column) -> Rule:
    """The rule for a column's value, or for its elements if it is an array."""
    key = type_key(column)
    rule = RULES.get(key, UNKNOWN)
    if key == "numeric" and column.precision is not None:
        return _numeric(rule, column.precision, column.scale or 0)
    if key == "bit":
        return _bit(rule, column.type_name)
    if column.array and rule.json is None and rule.spark == "string":
        return replace(rule, json=values.array_text, typed=values.array_text)
    return rule


def _numeric(rule: Rule, precision: int, scale: int) -> Rule:
    # numeric(5,-2) holds seven digits; numeric(2,5) holds 0.00099, for which Spark wants five.
    digits, fraction = (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)
    if scale < 0:
        rule = replace(rule, json=values.numeric_negative_scale, typed=values.numeric_negative_scale)
    if digits > MAX_PRECISION:
        return rule
    decimal = values.decimal_of(digits, fraction)
    typed = values.whole_digits(decimal) if scale < 0 else decimal
    return replace(rule, typed=typed, spark=f"decimal({digits},{fraction})")


def _bit(rule: Rule, type_name: str) -> Rule:
    length = bit_length(type_name)
    if length == 1:
        return RULES["bool"]
    return replace(rule, json=values.bits_of(length), typed=values.bits_of(length))


def bit_length(type_name: str) -> int | None:
    """The length of ``bit(n)``; None where the type's name does not say it (a domain)."""
    found = re.match(r"bit\((\d+)\)", type_name)
    return int(found[1]) if found else 1 if type_name in ("bit", "bit[]") else None


def rule_for(column: Column) -> Rule:
    """The rule for a column, arrays included."""
    rule = element_rule(column)
    if not column.array:
        return rule
    return Rule(values.array_of(rule.json), values.array_of(rule.typed), f"array<{rule.spark}>", rule.elasticsearch)
