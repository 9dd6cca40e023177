"""A flow that is supervised: its query, how it fares, and the word for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

from pyspark.sql import SparkSession

from cdc.errors import HeadwaterError, KafkaRefused
from cdc.log.opening import REFUSED_SECONDS
from spark.disk.status import Restarts
from spark.flow import Flow
from spark.join.query import is_filling, is_joined
from spark.log_gaps import Vigil
from spark.meter import Meter
from spark.pulse import Pulse
from spark.wanted import begin_start

# The pause before a flow that failed is started again for the first time: short enough to be back soon after a broker's
# restart.
FIRST_PAUSE = 1.0
# At most between two starts of a flow that failed: long enough not to burn the machine while a sink is away for an
# hour.
LONGEST_PAUSE = 30.0
# A flow that ran this long was well: its next failure begins with the short pause again.
WELL_AFTER = 60.0


class Query(Protocol):
    """What a flow's start gives: a streaming query, or something that behaves like one."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802, D102 (Spark's name)
    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802, D102 (Spark's name)
    def exception(self) -> Exception | None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


Start = Callable[[SparkSession, Flow], Query]


@dataclass
class Running:
    """A flow and how it fares."""

    flow: Flow
    start: Start
    pool: str
    query: Query | None = None
    starts: Future[Any] | None = None  # its newest start, which may be under way
    unwanted: Event = field(default_factory=Event)  # nobody waits for that any more; it is the last one then
    started: float = 0.0
    pause: float = FIRST_PAUSE
    retry_at: float = 0.0
    lost: int = 0
    failed: bool = False
    halted: bool = False  # it has failed for what its topic or table has become, and not for its sink
    finished: bool = False
    doubts: bool = False  # it met a record that does not fit what is known of its table
    refused_since: float | None = None  # since when brokers refuse it, whenever it is started
    taken: bool = False  # another process has the flow now: its status file is that one's
    alive: bool = False  # the query has reported something
    meter: Meter = field(default_factory=Meter)
    pulse: Pulse = field(default_factory=Pulse)
    last_error: str | None = None
    vigil: Vigil = field(init=False)
    restarts: Restarts = field(init=False)

    def __post_init__(self) -> None:
        self.vigil, self.restarts = Vigil(self.flow), Restarts(self.flow.folder)

    def due(self, now: float) -> bool:
        """Whether it should run, and does not."""
        waits = self.failed or self.finished or self.starting or self.query is not None
        return not waits and now >= self.retry_at

    def begin(self, spark: SparkSession) -> Query:
        """Start it, in this thread."""
        begin_start(self.unwanted)
        return self.start(spark, self.flow)

    def is_refused(self, error: HeadwaterError, now: float, *, let_in: bool) -> bool:
        """Whether a start that has failed was one too many: the brokers have never let in any flow.

        Args:
            error: what it has failed with.
            now: on the monotonic clock.
            let_in: some flow of these brokers has ever run: what was let in once waits to be let in again.
        """
        if not isinstance(error, KafkaRefused):
            self.refused_since = None
            return False
        if self.refused_since is None:
            self.refused_since = now
        return not let_in and now - self.refused_since >= REFUSED_SECONDS

    def again(self, now: float, why: str) -> None:
        """Its query has ended and nothing is wrong: it is to be started now."""
        self.query, self.retry_at = None, now
        self.restarts.add(why)

    def failed_with(self, reason: str, *, terminal: bool, now: float) -> None:
        """Its query or its start has failed: it is started again after a pause, which grows.

        Args:
            reason: why.
            terminal: it can't go on, and is not started again.
            now: on the monotonic clock.
        """
        if self.failed:  # Spark went away under its start
            return
        if terminal:
            self.give_up(reason)
            return
        self.last_error, self.query = reason, None
        self.restarts.add(reason)
        self.retry_at = now + self.pause
        self.pause = min(self.pause * 2, LONGEST_PAUSE)

    def give_up(self, reason: str) -> None:
        """It stays failed, whatever it was."""
        # In this order: another thread may report at any moment, and a flow has not failed without a reason.
        self.last_error, self.query, self.failed = reason, None, True

    def has_ended(self, now: float) -> None:
        """Its query has ended with an error: where it ran long enough, that has nothing to do with those before."""
        if now - self.started > WELL_AFTER:
            self.pause, self.lost = FIRST_PAUSE, 0

    def reports_well(self) -> None:
        """Its query reads, and what failed before has gone through: also an idle flow has recovered then."""
        self.alive, self.last_error, self.lost = True, None, 0

    @property
    def has_run(self) -> bool:
        """Whether it was ever started, here or before."""
        return bool(self.started) or not self.flow.is_new

    @property
    def starting(self) -> bool:
        """Whether a start of it is under way: until it has ended nothing else is done with it."""
        return self.starts is not None and not self.starts.done()

    @property
    def filling(self) -> bool:
        """Whether the flow still fills its sink: documents may be missing though the log is read."""
        return is_filling(self.flow)

    @property
    def deferred(self) -> int | None:
        """Documents that a fan-out has changed and that are still to be written; None while nobody knows."""
        waiting: int | None = getattr(self.query, "waiting", None if is_joined(self.flow) else 0)
        return waiting


def ended_late(starts: Future[Any], end: Callable[[Query], None]) -> Future[None]:
    """End the query of a start that nobody waits for any more, as soon as there is one.

    Args:
        starts: the start, which is under way; gives its query, or None.
        end: how a query is ended.

    Returns:
        done when neither is any more.
    """
    over: Future[None] = Future()
    over.set_running_or_notify_cancel()  # nobody can cancel it

    def came(starts: Future[Any]) -> None:
        try:
            if starts.exception() is None and (query := starts.result()) is not None:
                end(query)
        finally:
            over.set_result(None)

    starts.add_done_callback(came)
    return over


def after_all(late: Sequence[Future[None]], then: Callable[[], None]) -> None:
    """Do something once all of these are done: at once, or in the thread that ends the last one."""
    left = next((one for one in late if not one.done()), None)
    if left is None:
        then()
    else:
        left.add_done_callback(lambda _: after_all(late, then))


def state(run: Running) -> str:
    """What `status` says that a flow does."""
    if run.failed or run.finished:
        return "failed" if run.failed else "finished"
    if run.last_error is not None:
        return "retrying"  # also while its query is up again and the batch that failed has not gone through
    if run.query is None or not (run.alive or _at_work(run.query)):
        return "starting"
    return "filling" if run.filling else "running"


def _at_work(query: Query) -> bool:
    """Whether a query that has reported nothing yet is past finding its sources: then it is in its first batch."""
    status = getattr(query, "status", None)
    return status is None or "Initializing" not in status.get("message", "")
