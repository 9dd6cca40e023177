"""Keeps a pipeline's flows alive: starts them, watches them, starts them again, and says how they are.

One flow's trouble is its own: a flow whose sink or broker is away is started again with growing pauses, its offsets
not moving (back-pressure, never loss), while the others go on. A flow that can't go on (its sink refuses, its
checkpoint has lost its place, the log has a gap) stays failed with the reason.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc.errors import DiskFull, Fenced, HeadwaterError, ShapeUnknown
from cdc.hands import Hands
from cdc.journal import about
from cdc.records.position import format_lsn, unpack
from spark import failures
from spark.disk.batches import Batch, keep
from spark.disk.status import FlowStatus
from spark.flow import Flow
from spark.log_gaps import LogWatch
from spark.pulse import MERGES, sign_of
from spark.running import Query, Running, Start, after_all, ended_late, state
from spark.unread import Look

_log = logging.getLogger(__name__)

# Flows of one sink that are started, and flows that are stopped, at one time. After a migration all of them are; one
# after the other, the readers of the last one waited for the sum. By sinks, because one that is silent holds as many as
# it gets.
HANDS = 4
# How often flows that are up write their status while others are still being started.
REPORT_SECONDS = 1.0
# A start that takes longer is not waited for: a sink that is silent takes its ``request_timeout_seconds``, a minute and
# more, and for so long no other flow was started again, no altered table followed, and no SIGTERM heeded.
STEP_SECONDS = 5.0
# Who ends flows waits so long for those that are just being started. What comes later is ended when it comes: a silent
# sink kept the whole process from ending, and from following its leases and its file.
ARRIVE_SECONDS = 10.0

# The log says that offsets are gone. A broker that comes back from a crash says so too for a moment, before it has
# recovered its high watermark: it counts only when it is said this often in a row (about half a minute).
_LOST = re.compile(
    r"Some data may have been lost|KafkaIllegalStateException|KAFKA_DATA_LOSS|OffsetOutOfRange"
    r"|UNKNOWN_TOPIC_OR_PARTITION|UnknownTopicOrPartition|PARTITIONS_DELETED|OFFSET_CHANGED"
)
LOST_TIMES = 6
# Nothing is wrong, the query only has to be started again, and this says why.
_HARMLESS = {
    # Where spark/replay.py could not prevent it: after it has replayed and committed a batch that a crash had cut.
    re.compile(r"KafkaMicroBatchStream.*metrics|IterableOps\.map\(scala\.Function1\)\" because the return value"): (
        "the Kafka source failed in its metrics after a replayed batch (Spark)"
    ),
    # Readers were led to another generation: under its new name the flow finds its own, or its start refuses.
    re.compile(r"Table UUID does not match|Failed to load table \S+ from catalog \S+: dropped by another process"): (
        "its table was given another name: readers see another generation"
    ),
}


class Runner:
    """Supervises flows in one Spark session.

    Args:
        spark: the session.
        flows: (flow, how to start it) pairs; a flow's sink names its scheduler pool.
        look: gives the newest look at the log's ends; asks Kafka in the background if None.
        tell: told each batch of a flow that has ended.

    Attributes:
        trouble: why the flows' status could not be written; None when it could.
    """

    def __init__(
        self,
        spark: SparkSession,
        flows: Sequence[tuple[Flow, Start]],
        look: Callable[[Flow], Look | None] | None = None,
        tell: Callable[[Flow, Batch], None] | None = None,
    ) -> None:
        self.spark = spark
        self._told = tell
        self.trouble: str | None = None
        self._watch = LogWatch()
        self._look = look or self._watch.look
        # Kept for as long as this lives: Spark gives each thread of ours one of its own, and a connection to it.
        self._hands = defaultdict[str, Hands](partial(Hands, HANDS, "flows"))
        self._ends = Hands(HANDS, "ends")
        # Folders of flows whose last start nobody waits for any more: done when that, and its query, have ended.
        self._late: dict[Path, Future[None]] = {}
        self.running: list[Running] = []
        self.add(flows)

    def add(self, flows: Sequence[tuple[Flow, Start]]) -> None:
        """Supervise more flows."""
        for flow, start in flows:
            self.running.append(Running(flow, start, flow.title.partition("/")[0]))

    def remove(self, folder: Path, *, anew: bool = False) -> None:
        """Stop the flows of a generation's folder and forget them.

        Args:
            folder: the generation's.
            anew: it is opened anew at once: nobody has told them to end, as `status` would say.
        """
        mine = self._of(folder)
        self._each(partial(self._stop, until=_until(), state="starting" if anew else "stopped"), mine)
        for run in mine:
            self.running.remove(run)  # in place: whoever shows how far they are looks at this list

    def once_over(self, folder: Path, then: Callable[[], None]) -> None:
        """Do something once no start of a generation's folder is under way that came too late for ``remove`` or
        ``stop``: at once as a rule. Until then it may write, and its lease is not to be given back."""
        after_all([late for one, late in self._late.items() if one.parent == folder], then)

    def fail(self, folder: Path, reason: str, *, taken: bool = False) -> None:
        """Stop the flows of a generation's folder for good.

        Args:
            folder: the generation's.
            reason: why.
            taken: another process has them now, and writes their status.
        """
        until = _until()
        for run in self._of(folder):
            run.taken = run.taken or taken
            self._fail(run, reason, until)

    def halt(
        self, reasons: Mapping[str, str], folder: Path | None = None, instead: Collection[str] = ()
    ) -> dict[str, str]:
        """Stop for good the flows that read one of these topics.

        Args:
            reasons: topic -> why.
            folder: only those of this generation's folder.
            instead: of what was said earlier: who is stopped for it is told the newer reason.

        Returns:
            flow's title -> topic, of those that were not stopped before.
        """
        stopped, until = {}, _until()
        for run in self.running if folder is None else self._of(folder):
            topic = next((topic for topic in sorted(run.flow.spec.topics) if topic in reasons), None)
            if topic is not None and not run.failed:
                run.halted = True
                self._fail(run, reasons[topic], until)
                stopped[run.flow.title] = topic
            elif topic is not None and run.halted and run.last_error in instead and run.last_error != reasons[topic]:
                self._fail(run, reasons[topic], until)
        return stopped

    @property
    def doubting(self) -> set[Path]:
        """Folders of generations with a flow that waits to be told of its tables' new columns."""
        return {run.flow.folder.parent for run in self.running if run.doubts}

    def abandon(self, reason: str) -> None:
        """Every flow has failed because Spark itself is gone; nothing of it is called any more."""
        for run in self.running:
            run.give_up(reason)
        self.step()

    def _of(self, folder: Path) -> list[Running]:
        return [run for run in self.running if run.flow.folder.parent == folder]

    def step(self, meanwhile: Callable[[list[FlowStatus]], None] | None = None) -> list[FlowStatus]:
        """Start what should run, note what ended, and return every flow's status.

        Args:
            meanwhile: told the same now and then while flows are being started. Starts that take longer than a step
                may go on, and are seen by later ones.
        """
        now = time.monotonic()
        self.trouble = None
        for run in self.running:
            if run.starting:
                continue
            self._arrived(run, now)  # nobody has waited for a slow one
            with about(**run.flow.about):
                self._look_at(run, now)
        due = [run for run in self.running if run.due(now)]
        for run in due:
            run.starts = self._hands[run.flow.spec.sink].submit(self._told_whose, self._start, run)
        self._wait([run.starts for run in due if run.starts], now + STEP_SECONDS, meanwhile)
        return self._reports()

    @staticmethod
    def _told_whose(work: Callable[[Running], Any], run: Running) -> Any:
        with about(**run.flow.about):
            return work(run)

    def _each(self, work: Callable[[Running], None], runs: Sequence[Running]) -> None:
        """Do the same for some flows, side by side: one whose server does not answer must not hold up the others."""
        first = sorted(runs, key=lambda run: run.starting)  # those for whose starts nobody has to wait
        self._wait([self._ends.submit(self._told_whose, work, run) for run in first])

    def _wait(
        self,
        work: Sequence[Future[Any]],
        until: float = math.inf,
        meanwhile: Callable[[list[FlowStatus]], None] | None = None,
    ) -> None:
        """Wait for work, at most until a moment; what is told of the others ``meanwhile`` goes on."""
        left = set(work)
        while left and (seconds := min(REPORT_SECONDS, until - time.monotonic())) > 0:
            done, left = wait(left, seconds)
            for one in done:
                one.result()
            if left and meanwhile is not None:
                meanwhile(self._reports())

    def _reports(self) -> list[FlowStatus]:
        return [self._starting(run) if run.starting and not run.failed else self._report(run) for run in self.running]

    @staticmethod
    def _starting(run: Running) -> FlowStatus:
        """Of a flow that is being started, and is not written: its start asks what is there whether it ever ran."""
        return run.meter.status(run.flow, "starting" if run.last_error is None else "retrying", run.last_error)

    def _look_at(self, run: Running, now: float) -> None:
        if run.failed or run.finished or run.query is None:
            return
        if not run.query.isActive:
            self._ended(run, now)
        elif run.vigil.late(self._look(run.flow), filling=run.filling):
            self._halt(run, now)

    def _start(self, run: Running) -> Query | None:
        # A pool a sink: FAIR scheduling then shares the task slots between sinks, not between tasks.
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", run.pool)
        run.alive, query = False, None
        try:
            try:
                query = run.begin(self.spark)
                if not run.unwanted.is_set():
                    run.query, run.started = query, time.monotonic()
            finally:
                run.vigil.reread(filling=run.filling)  # a note that it can't read is this flow's trouble alone
            return query
        except Exception as error:
            if query is not None:
                self._end(query)
            if run.unwanted.is_set():
                _log.debug("a start that nobody waits for any more has failed: %s", error)
            else:
                self._unbegun(run, error)
        return None

    def _unbegun(self, run: Running, error: Exception) -> None:
        now = time.monotonic()
        if not isinstance(error, HeadwaterError):  # Spark wraps what servers say in many types: the text decides
            self._spark_failure(run, str(error), now)
            return
        let_in = any(one.has_run for one in [*self.running])
        run.failed_with(str(error), terminal=not error.transient or run.is_refused(error, now, let_in=let_in), now=now)

    def _ended(self, run: Running, now: float) -> None:
        assert run.query is not None
        run.meter.read(run.query, partial(self._tell, run.flow))
        error = run.query.exception()
        run.query = None
        if error is None:
            run.finished = True
            return
        run.has_ended(now)
        self._spark_failure(run, failures.whole(error), now)

    def _halt(self, run: Running, now: float) -> None:
        """Stop a flow before it reads on: its start looks at the log, and refuses, or finds that nothing was missed."""
        assert run.query is not None
        self._end(run.query)
        run.again(now, "looked at the log: it may have forgotten deletes that were not read yet")

    def _spark_failure(self, run: Running, text: str, now: float) -> None:
        if why := next((why for harmless, why in _HARMLESS.items() if harmless.search(text)), None):
            run.again(now, why)
            return
        if failures.full_here(text):
            run.failed_with(failures.no_room(run.flow.checkpoint, text), terminal=False, now=now)
            return
        kinds = failures.kinds(text)
        run.taken, run.doubts = run.taken or Fenced in kinds, ShapeUnknown in kinds
        run.lost = run.lost + 1 if _LOST.search(text) else 0
        terminal = failures.refused(text) or run.lost >= LOST_TIMES
        run.failed_with(failures.explain(text), terminal=terminal, now=now)

    def _report(self, run: Running) -> FlowStatus:
        if run.query is not None and not run.failed:  # one that comes late takes no reason away
            run.meter.current_at = time.time()
            if run.meter.read(run.query, partial(self._tell, run.flow)) and not run.alive:
                run.reports_well()
            run.pulse.look(run.meter.batch_id, partial(sign_of, self.spark, run.query))
        return self._write(run, state(run))

    def _tell(self, flow: Flow, batch: Batch) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            lsn = format_lsn(unpack(batch.position)[1]) if batch.position else None
            said = {**flow.about, "batch": batch.number, "lsn": lsn, "seconds": batch.ms / 1000, **batch.counts}
            _log.debug("a batch was applied", extra=said)
        if self._told is not None:
            self._told(flow, batch)

    def _write(self, run: Running, state: str) -> FlowStatus:
        status = run.meter.status(
            run.flow,
            state,
            run.last_error,
            deferred=run.deferred or 0,
            unread_since=run.vigil.since,
            warning=None if run.failed or run.finished else run.vigil.warning,
            restarts=run.restarts.count,
            restarted=run.restarts.newest,
            got_on=run.pulse.count,
        )
        if not run.taken:
            try:
                status.write(run.flow.folder)
                if run.meter.fresh:
                    keep(run.flow.folder, run.meter.fresh)
                    run.meter.fresh.clear()
            except (OSError, DiskFull) as error:  # a full disk must not end the flows that need none of it
                self.trouble = str(error)
        return status

    def stop(self) -> None:
        """Stop every query after its current batch, as far as Spark allows; offsets of a cut batch do not move."""
        self._watch.close()
        self._each(partial(self._stop, until=_until()), self.running)
        over = all(late.done() for late in self._late.values())
        for hands in (*self._hands.values(), self._ends):
            hands.close(wait=over)

    @staticmethod
    def _end(query: Query) -> None:
        try:
            if query.isActive:
                if hasattr(query, "runId"):  # of Spark's
                    MERGES.give_up(query)
                query.stop()
        except Exception as error:  # the JVM is gone, which ends a query as well: a group's SIGTERM reaches it first
            _log.debug("a query was not stopped in an orderly way: %s", error)

    def _fail(self, run: Running, reason: str, until: float) -> None:
        """Stop a flow for good, with a reason: `status` must not say for a moment that somebody has told it to end."""
        self._arrived(run, until)
        if run.query is not None:
            self._end(run.query)
        run.give_up(reason)
        self._write(run, "failed")

    def _arrived(self, run: Running, until: float) -> None:
        """Wait until a start that is under way has ended, at most until a moment: its query would run on, and nobody
        know of it. One that comes later writes nothing more, and is ended when it comes."""
        if run.starts is None:
            return
        starts, run.starts = run.starts, None
        if starts.cancel():  # it had not begun
            return
        wait([starts], max(until - time.monotonic(), 0.0))
        if starts.done():
            starts.result()
            return
        run.unwanted.set()
        self._late[run.flow.folder] = ended_late(starts, self._end)

    def _stop(self, run: Running, until: float, state: str = "stopped") -> None:
        self._arrived(run, until)
        if run.failed or run.finished:
            return
        if run.query is not None:
            self._end(run.query)
        run.query = None
        self._write(run, state)

    @property
    def all_failed(self) -> bool:
        """No flow is left that could do anything."""
        return all(run.failed for run in self.running)

    @property
    def errors(self) -> Mapping[str, str]:
        """Failed flows and why."""
        return {run.flow.title: run.last_error or "" for run in self.running if run.failed}


def _until() -> float:
    """The moment, on the monotonic clock, until which who begins now to end flows waits for their starts."""
    return time.monotonic() + ARRIVE_SECONDS
