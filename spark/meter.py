"""Adds up what a query reports of its batches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spark.status import FlowStatus

if TYPE_CHECKING:
    from spark.flow import Flow
    from spark.status import FlowStatus


class _Reports(Protocol):
    """A streaming query, as far as its progress goes."""

    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802 (Spark's name)


_SUMMED = ("records", "written", "deleted", "stale", "rejected")


class Meter:
    """Adds up a query's progress reports."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(_SUMMED, 0)
        self.batch_id, self.position, self.ts_ms, self.batch_ms = -1, 0, 0, 0
        self.current_at = 0.0
        self.advanced = False

    def read(self, query: _Reports) -> bool:
        """Take in what is new; Spark keeps the last 100 reports, and this runs every second.

        Returns:
            whether the query has reported anything at all: it reads, and the batch that it began with is done.
        """
        self.advanced = False
        reports = query.recentProgress
        for progress in reports:
            if progress.batchId <= self.batch_id or not progress.durationMs.get("addBatch"):
                continue
            self.batch_id, self.advanced = progress.batchId, True
            self.batch_ms = progress.durationMs.get("triggerExecution", 0)
            row = progress.observedMetrics.get("applied")
            if row is None:
                continue
            values = row.asDict()
            for name in _SUMMED:
                self.totals[name] += values.get(name) or 0
            self.position = max(self.position, values.get("position") or 0)
            self.ts_ms = max(self.ts_ms, values.get("ts_ms") or 0)
        return bool(reports)

    def status(self, flow: Flow, state: str, last_error: str | None, **more: Any) -> FlowStatus:
        """The status now; ``more`` are fields of it that are no matter of progress reports."""
        if state == "running":
            self.current_at = time.time()
        elif not self.current_at:
            before = FlowStatus.read(flow.folder)
            self.current_at = before.current_at if before else 0.0
        return FlowStatus(
            flow=flow.title,
            state=state,
            pid=os.getpid(),
            batch_id=self.batch_id,
            position=self.position,
            source_ts_ms=self.ts_ms,
            batch_ms=self.batch_ms,
            last_error=last_error,
            topics=sorted(flow.spec.topics),
            at=time.time(),
            current_at=self.current_at,
            **{**more, **self.totals},
        )
