"""A streaming query whose progress reports are fetched once.

Spark keeps a query's last 100 reports, and PySpark asks Java for each of them again whenever it is asked: four calls
and a text of some kilobytes a report. The runner asks every half second, for each flow, whether or not a batch has
ended: a flow at rest that had once worked took 9 % of a core for that, more than for all else.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

# As many as Spark keeps (spark.sql.streaming.numRecentProgressUpdates).
KEPT = 100


class ReportingQuery(StreamingQuery):
    """A query as Spark has started it; what is new among its reports costs some calls, and what is not, none.

    Args:
        query: the query.
    """

    def __init__(self, query: StreamingQuery) -> None:
        super().__init__(query._jsq)
        self._reports: list[StreamingQueryProgress] = []

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802 (Spark's name)
        """Spark's newest reports, the oldest first."""
        java: Any = self._jsq
        last = java.lastProgress()
        if last is not None and not (self._reports and self._reports[-1].timestamp == last.timestamp()):
            self._reports = [*self._reports, *self._fetched(java.recentProgress())][-KEPT:]
        return self._reports

    def _fetched(self, there: Any) -> list[StreamingQueryProgress]:
        """Those that came after the newest that is known: from the end, as far as that one."""
        known = self._reports[-1].timestamp if self._reports else None
        found: list[StreamingQueryProgress] = []
        for index in range(len(there) - 1, -1, -1):
            report = StreamingQueryProgress.fromJson(json.loads(there[index].json()))
            if report.timestamp == known:  # a trigger's moment: no two reports of a query have the same
                break
            found.append(report)
        return found[::-1]
