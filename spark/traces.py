"""Spans of the applications that wrote, as far as records of the log bear them: `traceparent` in a record's headers.

Debezium's ActivateTracingSpan, where it is configured, puts it there (docs/logs.md). A batch may hold a hundred
thousand records of as many spans: of these at most ``MOST`` are kept, by Spark itself, so that a batch's report stays
small. Nothing of this is in a plan when the file does not ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

HEADER = "traceparent"
# Links of a span; backends keep 128 at the most.
MOST = 32
METRIC = "traces"


def traceparent() -> Column:
    """The header of a record of Spark's Kafka source, read with its headers; null where it bears none."""
    found = F.expr(f"get(filter(headers, one -> one.key = '{HEADER}'), 0).value")
    return found.cast("string").alias(HEADER)


def observed_traces(records: DataFrame) -> DataFrame:
    """Records of which some spans come with Spark's progress reports: one of each of ``MOST`` heaps, by hash.

    ``collect_set`` would hold all of a batch's.
    """
    heap = F.pmod(F.hash(HEADER), F.lit(MOST))
    return records.observe(METRIC, *(F.max(F.when(heap == at, F.col(HEADER))).alias(f"t{at}") for at in range(MOST)))


def traces_of(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """What a batch's report holds of it."""
    row = metrics.get(METRIC)
    return () if row is None else tuple(value for value in row.asDict().values() if value)
