"""How far flows are, as plain lines: for a log, and for whoever started the process that they run in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cdc.journal import Line
from cdc.saying import Say
from operations.pace import pace
from operations.status.caught_up import Goal
from spark.disk.status import FlowStatus
from spark.running import Running

LINE_SECONDS = 5.0


class FlowLines:
    """Tells every flow's way to the log's end, a line a flow now and then.

    Args:
        goal: what they are on their way to.
        say: told the lines.
        line_seconds: pause between lines; a change of a flow's state, or of its error, is told at once.
    """

    def __init__(self, goal: Goal, say: Say, line_seconds: float = LINE_SECONDS) -> None:
        self.goal, self.say, self.line_seconds = goal, say, line_seconds
        self._told: dict[str, tuple[str, str | None, int]] = {}
        # Of each flow: offsets done, of how many, and when that was, as it was first seen on this way.
        self._begun: dict[str, tuple[int, int, float]] = {}
        # Flows that were told to be at their goal, of how many offsets: behind again later, they have no other one.
        self._there: dict[str, int] = {}
        self._next = time.monotonic()

    def show(self, statuses: Sequence[FlowStatus]) -> None:
        """Tell what is new, given the flows' states now."""
        due = time.monotonic() >= self._next
        self.goal.look()
        gone = self._told.keys() - {run.flow.title for run in self.goal.running}
        for title in gone:  # one that comes back begins anew: what it did before has another age
            self._told.pop(title)
            self._begun.pop(title, None)
            self._there.pop(title, None)
        for run, status in zip(self.goal.running, statuses, strict=True):
            self._line(run, status, due=due)
        if due:
            self._next = time.monotonic() + self.line_seconds

    def _line(self, run: Running, status: FlowStatus, *, due: bool) -> None:
        done, total = self.goal.way(run)
        title, before = run.flow.title, self._told.get(run.flow.title)
        troubled = status.last_error or status.warning
        # A warning's days change all the time: it is told again when a line is due anyhow.
        now = (status.state, status.last_error, status.records)
        if before == now or (before is not None and before[:2] == now[:2] and not due):
            return
        self._told[title] = now
        trouble = f" · {troubled.splitlines()[0]}" if troubled else ""
        waiting = f" · {status.deferred:,} documents to be written" if status.deferred else ""
        # No share is told before the log's end is known, or how much a fill has to read, nor once it was reached.
        way = f"{100 * done // total}% of the log{self._pace(title, done, total)} · " if total else ""
        if total and self._there.get(title) == total:
            way = ""
        elif total and done >= total:
            self._there[title] = total
        batch = status.batch_id if status.batch_id >= 0 else None
        about = {**run.flow.about, "batch": batch, "state": status.state, "records": status.records}
        self.say(Line(f"{title}: {status.state} · {way}{status.records:,} records{waiting}{trouble}", **about))

    def _pace(self, title: str, done: int, total: int) -> str:
        """``, 12,000/s, 3 min left``; nothing when it is done or has not begun."""
        now = time.monotonic()
        first, whole, since = self._begun.get(title, (done, total, now))
        if whole != total or done < first:  # from a fill to what came meanwhile, or a fill that was begun anew
            first, since = done, now
        self._begun[title] = first, total, since
        return pace(done, total, done - first, now - since)


@contextmanager
def lines(say: Say, goal: Goal) -> Iterator[Callable[[Sequence[FlowStatus]], None]]:
    """As `operations.rebuild.rebuild.Shown` wants it."""
    yield FlowLines(goal, say).show
