"""Adds up what a query reports of its batches."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spark.disk.batches import SUMMED, Batch, KeptBatch, batch_of, kept
from spark.disk.process import signature
from spark.disk.status import BATCH_SECONDS, FlowStatus

if TYPE_CHECKING:
    from spark.flow import Flow


class _Reports(Protocol):
    """A streaming query, as far as its progress goes."""

    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802 (Spark's name)


def _nothing(_batch: Batch) -> None:
    pass


class Meter:
    """Adds up a query's progress reports."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(SUMMED, 0)
        self.batch_id, self.position, self.ts_ms, self.batch_ms = -1, 0, 0, 0
        self.phases, self.buckets = Counter[str](), [0] * (len(BATCH_SECONDS) + 1)
        self.current_at = 0.0
        self.fresh: list[KeptBatch] = []

    def read(self, query: _Reports, tell: Callable[[Batch], None] = _nothing) -> bool:
        """Take in what is new; Spark keeps the last 100 reports, and this runs every second.

        Args:
            query: whose reports.
            tell: told each batch that is new.

        Returns:
            whether the query has reported anything at all: it reads, and the batch that it began with is done.
        """
        reports = query.recentProgress
        for progress in reports:
            if progress.batchId <= self.batch_id or not progress.durationMs.get("addBatch"):
                continue
            self.batch_id = progress.batchId
            tell(self._take(batch_of(progress)))
        return bool(reports)

    def _take(self, batch: Batch) -> Batch:
        self.fresh.append(kept(batch, self.position))
        self.batch_ms = batch.ms
        self.phases.update(batch.phases)
        self.buckets[bisect_left(BATCH_SECONDS, batch.ms / 1000)] += 1
        for name, count in batch.counts.items():
            self.totals[name] += count
        self.position = max(self.position, batch.position)
        self.ts_ms = max(self.ts_ms, batch.ts_ms)
        return batch

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
            batch_id=self.batch_id,
            position=self.position,
            source_ts_ms=self.ts_ms,
            batch_ms=self.batch_ms,
            last_error=last_error,
            topics=sorted(flow.spec.topics),
            at=time.time(),
            current_at=self.current_at,
            phase_ms=dict(self.phases),
            batch_buckets=list(self.buckets),
            **signature(),
            **{**more, **self.totals},
        )
