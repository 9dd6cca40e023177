"""One line a Postgres type: what its values become. docs/types.md shows this table to users; a test compares the two."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cdc.catalogue import Column
from cdc.types import times, values
from cdc.types.values import Converter

# Spark's widest decimal; wider numerics, and those without a precision, travel as exact text.
MAX_PRECISION = 38
# A keyword longer than Lucene's 32,766 bytes rejects the document: 256 characters sort and aggregate, the rest is text.
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_KEYWORD = {"type": "keyword", "ignore_above": 8191}
# `infinity`, year 10000 and NaN are values of Postgres: the field is left unindexed, the document is kept.
_DATE = {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True}


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
    elasticsearch: dict[str, Any] = field(default_factory=lambda: dict(_TEXT))


def _typed_stamp(value: Any) -> Any:
    return times.timestamp_us(times.canonical_timestamp(value))


_KEYWORD_RULE = Rule(values.text, values.text, "string", _KEYWORD)
_TEXT_RULE = Rule()
UNKNOWN = Rule(values.text, values.text)

RULES: dict[str, Rule] = {
    "bool": Rule(None, None, "boolean", {"type": "boolean"}),
    "int2": Rule(None, None, "smallint", {"type": "short"}),
    "int4": Rule(None, None, "int", {"type": "integer"}),
    "int8": Rule(None, None, "bigint", {"type": "long"}),
    "oid": Rule(None, None, "bigint", {"type": "long"}),
    "float4": Rule(values.real, values.real_float, "float", {"type": "float", "ignore_malformed": True}),
    "float8": Rule(values.real, values.real_float, "double", {"type": "double", "ignore_malformed": True}),
    "numeric": Rule(values.numeric, values.numeric, "string", {"type": "double", "ignore_malformed": True}),
    "money": Rule(
        values.numeric, values.numeric_decimal, "decimal(19,2)", {"type": "double", "ignore_malformed": True}
    ),
    "text": _TEXT_RULE,
    "varchar": _TEXT_RULE,
    "bpchar": _TEXT_RULE,
    "name": _TEXT_RULE,
    "citext": _TEXT_RULE,
    "uuid": Rule(None, None, "string", _KEYWORD),
    "enum": Rule(None, None, "string", _KEYWORD),
    "timestamptz": Rule(times.canonical_timestamptz, times.timestamp_us, "timestamp", _DATE),
    "timestamp": Rule(times.canonical_timestamp, _typed_stamp, "timestamp_ntz", _DATE),
    "date": Rule(times.canonical_date, times.date_days, "date", _DATE),
    "time": Rule(times.canonical_time, times.canonical_time, "string", _KEYWORD),
    "timetz": Rule(None, None, "string", _KEYWORD),
    "interval": Rule(None, None, "string", _KEYWORD),
    "bytea": Rule(None, values.binary, "binary", {"type": "binary"}),
    "json": Rule(values.json_fragment, values.json_text, "string", {"type": "flattened"}),
    "jsonb": Rule(values.json_fragment, values.json_text, "string", {"type": "flattened"}),
    "hstore": Rule(values.hstore, values.hstore_text, "string", {"type": "flattened"}),
    "inet": _KEYWORD_RULE,
    "cidr": _KEYWORD_RULE,
    "macaddr": _KEYWORD_RULE,
    "macaddr8": _KEYWORD_RULE,
}

_SQL_NAMES = {
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
    return _SQL_NAMES.get(column.base_type, column.base_type)


def element_rule(column: Column) -> Rule:
    """The rule for a column's value, or for its elements if it is an array."""
    key = type_key(column)
    rule = RULES.get(key, UNKNOWN)
    if key == "numeric" and column.precision is not None and _fits_decimal(column):
        return replace(rule, typed=values.numeric_decimal, spark=f"decimal({column.precision},{column.scale or 0})")
    return rule


def _fits_decimal(column: Column) -> bool:
    precision, scale = column.precision or 0, column.scale or 0
    return 0 < precision <= MAX_PRECISION and 0 <= scale <= precision


def rule_for(column: Column) -> Rule:
    """The rule for a column, arrays included."""
    rule = element_rule(column)
    if not column.array:
        return rule
    return Rule(values.array_of(rule.json), values.array_of(rule.typed), f"array<{rule.spark}>", rule.elasticsearch)
