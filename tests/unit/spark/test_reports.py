"""Reports of a query are fetched once."""

from __future__ import annotations

import json
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from spark.reports import KEPT, ReportingQuery


class JavaReport:
    """One of Spark's; notes what it is asked."""

    def __init__(self, number: int, asked: list[str]) -> None:
        self.number, self.asked = number, asked

    def timestamp(self) -> str:
        return f"2026-11-28T00:00:00.{self.number:06}Z"

    def json(self) -> str:
        self.asked.append(f"json {self.number}")
        report = {"id": f"{0:032}", "runId": f"{1:032}", "name": "n", "timestamp": self.timestamp()}
        report |= {"batchId": self.number, "batchDuration": 1, "durationMs": {"addBatch": 1}, "eventTime": {}}
        rates = {"numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
        sink = {"description": "d", "numOutputRows": -1}
        return json.dumps({**report, **rates, "stateOperators": [], "sources": [], "sink": sink, "observedMetrics": {}})


class Java:
    """A query of Spark's."""

    def __init__(self) -> None:
        self.reports, self.asked = list[JavaReport](), list[str]()

    def end(self, *numbers: int) -> None:
        self.reports = [*self.reports, *(JavaReport(number, self.asked) for number in numbers)][-KEPT:]

    def lastProgress(self) -> JavaReport | None:
        return self.reports[-1] if self.reports else None

    def recentProgress(self) -> list[JavaReport]:
        self.asked.append("all")
        return self.reports


def test_what_is_known_is_not_asked_for_again() -> None:
    java = Java()
    query = ReportingQuery(StreamingQuery(cast(Any, java)))
    numbers: Any = lambda: [report.batchId for report in query.recentProgress]  # noqa: E731
    assert numbers() == [] and java.asked == []
    java.end(0, 1, 2)
    assert numbers() == [0, 1, 2]
    java.asked.clear()
    assert numbers() == [0, 1, 2] and java.asked == [], "at rest, each look fetched each report"
    java.end(3, 4)
    assert numbers() == [0, 1, 2, 3, 4]
    assert java.asked == ["all", "json 4", "json 3", "json 2"]


def test_as_many_are_kept_as_spark_keeps_and_a_gap_hides_none() -> None:
    java = Java()
    query = ReportingQuery(StreamingQuery(cast(Any, java)))
    java.end(*range(60))
    assert len(query.recentProgress) == 60
    java.end(*range(60, 300))  # Spark has dropped those of before meanwhile
    assert [report.batchId for report in query.recentProgress] == list(range(200, 300))
