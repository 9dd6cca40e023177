"""How a flow fares, on disk for `headwater status` and any other process to read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark.files import write_somehow

if TYPE_CHECKING:
    from spark.flow import Flow


@dataclass(frozen=True)
class FlowStatus:
    """A flow at one moment; counts are since this process started, and a fill's are among them.

    Attributes:
        state: starting, running, filling (a joined view whose target is not complete yet), retrying, failed, finished
            or stopped; docs/json-output.md says when which.
        batch_id: newest batch that has ended; -1 before the first.
        records: changelog records read.
        written, deleted, stale, rejected: answers of the sink (the warehouse counts only written and rejected).
        position: highest source position applied.
        source_ts_ms: newest source timestamp applied (epoch milliseconds).
        batch_ms: how long the newest batch took.
        topics: what the flow reads.
        at: when this was written (epoch seconds).
        current_at: when it was last running, so reading what comes (epoch seconds); 0 before the first time.
        deferred: documents that a fan-out has changed and that are still to be written.
        unread_since: nothing that it has not read was written before this (epoch seconds); 0 when not known.
        warning: what will become trouble if nobody does anything.
        restarts: how often its query ended and was started again, over all processes.
        restarted: the newest of these: ``at`` (epoch seconds) and ``reason``.
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
    deferred: int = 0
    unread_since: float = 0.0
    warning: str | None = None
    restarts: int = 0
    restarted: Sequence[Mapping[str, Any]] = ()

    def write(self, folder: Path) -> None:
        """Replace the flow's status file."""
        write_somehow(folder / "status.json", json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> FlowStatus | None:
        """The flow's last status; None before its first."""
        try:
            found = json.loads((folder / "status.json").read_text())
            known = {field.name for field in fields(cls)}  # a later version may have written more
            return cls(**{name: value for name, value in found.items() if name in known})
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
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


# How many restarts are told of one by one; all are counted.
RESTARTS_KEPT = 20
_LINE = 300


class Restarts:
    """How often a flow's query ended and was started again, and why; earlier processes' are counted in.

    Args:
        folder: the flow's.
    """

    def __init__(self, folder: Path) -> None:
        before = FlowStatus.read(folder)
        self.count = before.restarts if before else 0
        self.newest: list[Mapping[str, Any]] = list(before.restarted) if before else []

    def add(self, reason: str) -> None:
        """One more."""
        self.count += 1
        said = (reason.strip() or "no reason was given").splitlines()[0][:_LINE]
        self.newest = [*self.newest, {"at": time.time(), "reason": said}][-RESTARTS_KEPT:]
