"""The newest batches of a flow, on disk beside its status: from where to where in the log, and what took the time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from spark.disk.files import write_somehow
from spark.traces import traces_of

FILE = "batches.json"
# Enough to see whether one batch is slow or all of them are, and small enough to be written as each ends.
KEPT = 40
# What the tasks count, over a batch.
SUMMED = ("records", "written", "deleted", "stale", "rejected", "retries", "sink_us")
# Spark's words for what a batch spends its time on, in ours; what it has no word for is ``other``.
_PHASES: Mapping[str, str] = {
    "latestOffset": "offsets",
    "getBatch": "plan",
    "queryPlanning": "plan",
    "addBatch": "apply",
    "walCommit": "commit",
    "commitOffsets": "commit",
    "commitBatch": "commit",
}
PHASES = ("offsets", "plan", "apply", "commit", "other")


@dataclass(frozen=True)
class Batch:
    """A batch that has ended.

    Attributes:
        number: Spark's, in the flow's whole sequence.
        began: epoch seconds.
        ms: how long it took.
        phases: what of that was spent on what, in ms.
        counts: what its tasks counted.
        position: the highest that it has applied; 0 for none.
        traces: some of the spans that wrote its records.
        ts_ms: the newest commit that it has applied, by the source's clock; 0 for none.
    """

    number: int
    began: float
    ms: int
    phases: Mapping[str, int]
    counts: Mapping[str, int]
    position: int = 0
    traces: Sequence[str] = field(default=())
    ts_ms: int = 0


def phases_of(durations: Mapping[str, int]) -> dict[str, int]:
    """Spark's ``durationMs`` in our phases, which add up to the whole. Pure."""
    found = dict.fromkeys(PHASES, 0)
    for name, took in durations.items():
        if name in _PHASES:
            found[_PHASES[name]] += took
    found["other"] = max(durations.get("triggerExecution", 0) - sum(found.values()), 0)
    return found


def batch_of(progress: Any) -> Batch:
    """A batch by Spark's report of it. Pure, but for the clock where the report names no moment (a fill's)."""
    took: Mapping[str, int] = progress.durationMs
    whole = took.get("triggerExecution", 0)
    row = progress.observedMetrics.get("applied")
    values: Mapping[str, Any] = {} if row is None else row.asDict()
    return Batch(
        progress.batchId,
        _began(progress, whole),
        whole,
        phases_of(took),
        {name: values.get(name) or 0 for name in SUMMED},
        values.get("position") or 0,
        traces_of(progress.observedMetrics),
        values.get("ts_ms") or 0,
    )


def _began(progress: Any, ms: int) -> float:
    try:
        return datetime.fromisoformat(str(getattr(progress, "timestamp", ""))).timestamp()
    except ValueError:
        return time.time() - ms / 1000


@dataclass(frozen=True)
class KeptBatch:
    """A batch that has ended.

    Attributes:
        batch: its number in the flow.
        at: when it began (epoch seconds).
        ms: how long it took; ``parts`` are what on.
        after, position: it has applied what lies behind the first, through the second (cdc/records/position.py); 0
            where that is not known: a batch of records that were stale, or the first of a process.
        records: changelog records read.
        written, deleted, stale, rejected: answers of the sink.
    """

    batch: int
    at: float
    ms: int
    parts: Mapping[str, int] = field(default_factory=dict)
    after: int = 0
    position: int = 0
    records: int = 0
    written: int = 0
    deleted: int = 0
    stale: int = 0
    rejected: int = 0


_COUNTS = ("records", "written", "deleted", "stale", "rejected")


def kept(batch: Batch, after: int) -> KeptBatch:
    """What is kept of a batch; ``after`` is the highest position that was applied before it."""
    counts = {name: batch.counts[name] for name in _COUNTS}
    return KeptBatch(batch.number, batch.began, batch.ms, batch.phases, after, batch.position, **counts)


def keep(folder: Path, fresh: Sequence[KeptBatch]) -> None:
    """Add batches to those that are kept of a flow.

    Args:
        folder: the flow's.
        fresh: the newest, in their order.

    Raises:
        OSError, DiskFull: there is no room.
    """
    newest = [*reversed(fresh), *read_batches(folder)][:KEPT]
    write_somehow(folder / FILE, json.dumps([vars(one) for one in newest]))


def read_batches(folder: Path) -> list[KeptBatch]:
    """The newest batches of a flow, the newest first; none where nothing was kept."""
    known = {one.name for one in fields(KeptBatch)}
    try:
        found = json.loads((folder / FILE).read_text())
        return [KeptBatch(**{name: value for name, value in one.items() if name in known}) for one in found]
    except (OSError, ValueError, TypeError, AttributeError):
        return []
