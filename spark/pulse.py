"""Whether a batch that takes long gets on: whether Spark's tasks end, and records go through those that have not.

A flow is seen to get on as its batches end. On a machine at its limits one batch of a warehouse takes minutes, and is
no hang: to start `run` again, as one does for a hang, begins it anew. A sink that answers nothing holds its tasks, and
soon what feeds them: then nothing of this moves either.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from spark.reading.source import turn_ahead

_log = logging.getLogger(__name__)
# Batches that end sooner tell enough; and so often is one looked at that takes longer: some calls into Java each.
QUIET_SECONDS, LOOK_SECONDS = 20.0, 5.0
# Names of ended queries that are remembered: one may come to wait a moment after it was told to end.
OVER_KEPT = 1000
# The thread's local property by which Spark tells whose a job is: of a streaming query, its run.
GROUP = "spark.jobGroup.id"

Sign = Hashable


class Pulse:
    """Counts how often a flow's batch was seen to get on.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.count = 0
        self._batch, self._since, self._looked = -2, 0.0, 0.0
        self._sign: Sign = None

    def look(self, batch: int, ask: Callable[[], Sign]) -> int:
        """Look, if it is time to; returns the count.

        Args:
            batch: number of the newest batch that has ended.
            ask: gives something else each time that the one at work has got on, and None if none is.
        """
        now = self._clock()
        if batch != self._batch:
            self._batch, self._since, self._sign = batch, now, None
        if now - self._since < QUIET_SECONDS or now - self._looked < LOOK_SECONDS:
            return self.count
        self._looked = now
        sign = ask()
        if sign is not None:  # else the driver is at work between two jobs, or nothing is
            self.count += self._sign is not None and self._sign != sign
            self._sign = sign
        return self.count


class Turns:
    """A lock that jobs of several queries take in turn, who waits longest first: who waits gets on as long as its
    holder does."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._waiting: list[str] = []
        self._holder: str | None = None
        self._over = deque[str](maxlen=OVER_KEPT)

    @contextmanager
    def turn(self, group: str) -> Iterator[None]:
        """Wait for the turn, and have it.

        Raises:
            RuntimeError: ``give_up`` was called for it.
        """
        with self._free:
            self._waiting.append(group)
            try:
                # A plain lock may go to the same table again and again, as its next batch begins at once.
                self._free.wait_for(lambda: group in self._over or (self._holder is None and self._waiting[0] == group))
                if group in self._over:
                    raise RuntimeError("it was told to end while it waited for another's merge")
            finally:
                self._waiting.remove(group)
                self._free.notify_all()  # whoever is first now, if it was this one that gave up
            self._holder = group
        try:
            yield
        finally:
            with self._free:
                self._holder = None
                self._free.notify_all()

    def give_up(self, query: Any) -> None:
        """Let a query that is told to end wait no longer: Java can't interrupt a wait here, and its `stop` would last
        as long as another's merge.

        Args:
            query: of Spark's, whose jobs bear its run's name; that comes but once.
        """
        with self._free:
            self._over.append(str(query.runId))
            self._free.notify_all()

    def of(self, group: str) -> str:
        """Whose jobs tell how a query gets on: its own, or those that it waits for."""
        return (self._holder or group) if group in self._waiting else group


# Merges into warehouses: two at once would take every task slot (and twice the memory) from a cache's 10 ms tasks. By
# this name their batches are planned in turn, too (``spark.reading.source``): one that waits when it is planned gets
# old.
MERGES, MERGING = Turns(), "merges"


def sign_of(spark: SparkSession, query: Any) -> Sign:
    """How far the jobs of a query are that are at work; None if none is, or nobody knows."""
    try:
        if not query.status.get("isTriggerActive", True):
            return None
        groups: Sequence[str] = getattr(query, "groups", None) or [str(query.runId)]
        return _sign(spark, {MERGES.of(turn_ahead(spark, MERGING, MERGES.of(group))) for group in groups})
    except Exception as error:  # a session that is going away, or a stage that has just ended: the next look tells
        _log.debug("it could not be seen how a batch gets on: %s", error)
        return None


def _sign(spark: SparkSession, groups: set[str]) -> Sign:
    tracker, context = spark.sparkContext.statusTracker(), spark.sparkContext
    mine = {job for group in groups for job in tracker.getJobIdsForGroup(group)}
    jobs = sorted(mine & set(tracker.getActiveJobsIds()))
    if not jobs:
        return None
    store, active = context._jsc.sc().statusStore(), set(tracker.getActiveStageIds())
    infos = [tracker.getJobInfo(job) for job in jobs]
    stages = sorted({stage for info in infos if info for stage in info.stageIds} & active)
    if any(store.lastStageAttempt(stage).numActiveTasks() == 0 for stage in stages):
        stages = sorted(active)  # who waits for a task slot gets on as those do that have them
    return tuple(jobs), tuple(_went(store, stage) for stage in stages)


def _went(store: Any, stage: int) -> tuple[int, ...]:
    one = store.lastStageAttempt(stage)
    records = (one.inputRecords(), one.shuffleReadRecords(), one.shuffleWriteRecords(), one.outputRecords())
    return (stage, one.numCompleteTasks(), *records)
