"""Postgres types: what each becomes in documents, in Spark and in Elasticsearch. docs/types.md is for users."""

from __future__ import annotations

from typing import Any

from cdc.catalogue import Column
from cdc.types.limits import lossy, may_be_large, never_reselected, null_when_unchanged, supported, taken, unsupported
from cdc.types.results import canonical_result, mapping_of_spark, merge_fields
from cdc.types.rules import RULES, Rule, element_rule, is_float, rule_for, type_key
from cdc.types.values import REFUSALS, Converter, text

__all__ = [
    "REFUSALS",
    "RULES",
    "Converter",
    "Rule",
    "arrow_converter",
    "arrow_type",
    "canonical_result",
    "elasticsearch_mapping",
    "element_rule",
    "is_float",
    "json_converter",
    "lossy",
    "mapping_of_spark",
    "may_be_large",
    "merge_fields",
    "never_reselected",
    "null_when_unchanged",
    "rule_for",
    "spark_type",
    "supported",
    "taken",
    "text",
    "type_key",
    "unsupported",
]


def json_converter(column: Column) -> Converter | None:
    """Raw Debezium value -> canonical JSON value; None if the raw value is right as it is."""
    return rule_for(column).json


def arrow_converter(column: Column) -> Converter | None:
    """Raw Debezium value -> value for ``arrow_type(column)``; None if the raw value is right as it is."""
    return rule_for(column).typed


def spark_type(column: Column) -> str:
    """Spark SQL type of a column: ``decimal(10,2)``, ``array<string>``, …"""
    return rule_for(column).spark


def arrow_type(column: Column) -> Any:
    """``pyarrow.DataType`` of a column."""
    from cdc.types.arrow import arrow_of_spark  # pyarrow takes 0.2 s to import and not every verb needs it

    return arrow_of_spark(spark_type(column))


def elasticsearch_mapping(column: Column) -> dict[str, Any]:
    """Elasticsearch's default mapping of a column's field; a pipeline file's ``mapping:`` overrides it."""
    return dict(rule_for(column).elasticsearch)
