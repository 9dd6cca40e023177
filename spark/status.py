"""How a flow fares, on disk for `headwater status` and any other process to read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark.files import write_atomic

if TYPE_CHECKING:
    from spark.flow import Flow


@dataclass(frozen=True)
class FlowStatus:
    """A flow at one moment; counts are since this process started.

    Attributes:
        state: running, filling (a joined view whose target is not complete yet), retrying, failed, finished or stopped.
        batch_id: newest batch that has ended; -1 before the first.
        records: changelog records read.
        written, deleted, stale, rejected: answers of the sink (the warehouse counts only written).
        position: highest source position applied.
        source_ts_ms: newest source timestamp applied (epoch milliseconds).
        batch_ms: how long the newest batch took.
        topics: what the flow reads.
        at: when this was written (epoch seconds).
        current_at: when it was last running, so reading what comes (epoch seconds); 0 before the first time.
    """

    flow: str
    state: str
    pid: int
    batch_id: int
    records: int
    written: int
    deleted: int
    stale: int
    rejected: int
    position: int
    source_ts_ms: int
    batch_ms: int
    last_error: str | None
    topics: Sequence[str]
    at: float
    current_at: float = 0.0

    def write(self, folder: Path) -> None:
        """Replace the flow's status file."""
        write_atomic(folder / "status.json", json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> FlowStatus | None:
        """The flow's last status; None before its first."""
        try:
            return cls(**json.loads((folder / "status.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None


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

    def read(self, query: _Reports) -> None:
        """Take in what is new; Spark keeps the last 100 reports, and this runs every second."""
        self.advanced = False
        for progress in query.recentProgress:
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

    def status(self, flow: Flow, state: str, last_error: str | None) -> FlowStatus:
        """The status now."""
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
            **self.totals,
        )
