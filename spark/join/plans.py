"""The Spark plans of a joined view: records in, summary out, by way of Spark SQL where the view has any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from spark.arrow import map_in_arrow
from spark.join import child_expressions
from spark.join.stage import view_of
from spark.reading.expressions import compute, entry_schema
from spark.reading.spec import FlowSpec
from spark.write import SUMMARY_DDL, apply_entries


def with_computed(records: DataFrame, spec: FlowSpec, packed: bytes) -> DataFrame:
    """Records with what Spark SQL computes for aggregates beside them, if any does."""
    view = view_of(spec)
    if not child_expressions.needed(view):
        return records
    typed = map_in_arrow(
        records, partial(child_expressions.with_structs, packed), child_expressions.record_schema(view)
    )
    return typed.select(*child_expressions.computed_columns(view))


def documents(
    records: DataFrame, spec: FlowSpec, packed: bytes, plain: Callable[..., Any], rows: Callable[..., Any]
) -> DataFrame:
    """Records to written documents.

    Args:
        records: or whatever ``plain`` and ``rows`` take.
        spec: the flow's work.
        packed: the same, packed.
        plain: stage that writes; for a view without ``fields`` and ``where``.
        rows: stage that gives entries with typed rows; for a view with them.
    """
    view = view_of(spec)
    if not view.needs_spark:
        return map_in_arrow(records, partial(plain, packed), SUMMARY_DDL)
    typed = map_in_arrow(records, partial(rows, packed), entry_schema(view))
    finish = partial(apply_entries, packed)
    return map_in_arrow(compute(typed, view), finish, SUMMARY_DDL)
