"""What a batch function counts of its batches, in the place of what Spark observes of a streaming plan.

A batch function runs queries of its own, perhaps several a batch, and none where the batch is there already: what Spark
would observe of the streaming plan is then counted twice, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from pyspark.sql import Observation, Row
from pyspark.sql.streaming.query import StreamingQuery

from cdc.errors import StateError

# As many reports as Spark keeps of a query.
KEPT_COUNTS = 100
# An action's observation is complete a few milliseconds after it; one that is not would be waited for for ever.
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Counts:
    """What was counted of a batch.

    Attributes:
        records: of the log.
        written: documents and rows.
        deleted: of them that ended, whether they were there or not.
        rejected: dead letters.
        position: the highest.
        ts_ms: the newest commit, by the source's clock.
    """

    records: int = 0
    written: int = 0
    deleted: int = 0
    rejected: int = 0
    position: int = 0
    ts_ms: int = 0

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Counts:
        """By the names of an observation; nothing was seen of what is null."""
        return cls(**{name: found.get(name) or 0 for name in cls.__dataclass_fields__})

    def with_odd(self, odd: Counts) -> Counts:
        """With what a second pass over some of the same records has given."""
        return Counts(
            self.records,
            self.written + odd.written,
            self.deleted + odd.deleted,
            self.rejected + odd.rejected,
            max(self.position, odd.position),
            max(self.ts_ms, odd.ts_ms),
        )


def told(seen: Observation) -> dict[str, Any]:
    """What was observed of an action that has ended; nothing if Spark has planned the frame away, as it was empty.

    Raises:
        StateError: Spark has not told it: the action did not run the frame (an error of ours).
    """
    until = time.monotonic() + PATIENCE_SECONDS
    inside: Any = seen._jo
    while not inside.future().isCompleted():
        if time.monotonic() > until:
            raise StateError("Spark has not told what it counted of a batch", fix="please report this")
        time.sleep(0.001)
    row = inside.future().value().get().get()
    return dict(seen.get) if row.length() else {}


class CountedQuery:
    """A streaming query whose reports bear what its batch function has counted; else the query itself.

    Args:
        query: the query.
        counts: batch -> what was counted; the batch function adds to it.
    """

    def __init__(self, query: StreamingQuery, counts: Mapping[int, Counts]) -> None:
        self._query, self._counts = query, counts

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether it is at work."""
        return bool(self._query.isActive)

    @property
    def status(self) -> Mapping[str, Any]:
        """As the query tells it."""
        return dict(self._query.status)

    @property
    def runId(self) -> str:  # noqa: N802 (Spark's name)
        """By which its jobs are known to Spark."""
        return str(self._query.runId)

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802 (Spark's name)
        """Spark's reports, with the counts."""
        return [self._with_counts(report) for report in self._query.recentProgress]

    def exception(self) -> Exception | None:
        """Why it ended; None if it was stopped."""
        return self._query.exception()

    def stop(self) -> None:
        """Stop after the current batch, as far as Spark allows."""
        self._query.stop()

    def _with_counts(self, report: Any) -> Any:
        counts = self._counts.get(report.batchId)
        mine = {} if counts is None else {"applied": Row(**asdict(counts))}
        return SimpleNamespace(
            batchId=report.batchId,
            durationMs=report.durationMs,
            observedMetrics={**report.observedMetrics, **mine},
            timestamp=report.timestamp,
        )
