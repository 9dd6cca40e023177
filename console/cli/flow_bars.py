"""What ``headwater run`` shows: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from operations.pace import pace
from operations.status.caught_up import Goal
from spark.runner import Running
from spark.status import FlowStatus


class FlowBars:
    """Shows every flow's way to the log's end.

    Args:
        goal: what they are on their way to.
        terminal: bars, else a line a flow now and then.
        line_seconds: pause between lines.
    """

    def __init__(self, goal: Goal, *, terminal: bool, line_seconds: float) -> None:
        self.goal, self.terminal, self.line_seconds = goal, terminal, line_seconds
        self.bars: dict[str, TaskID] = {}
        self.printed: dict[str, tuple[str, str | None, int]] = {}
        self.next_line = time.monotonic()
        self.since = time.monotonic()
        self.begun: dict[str, int] = {}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))

    def __enter__(self) -> FlowBars:
        if self.terminal:
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.terminal:
            self.progress.stop()

    def show(self, statuses: Sequence[FlowStatus]) -> None:
        """Show the flows' state now."""
        due = time.monotonic() >= self.next_line
        for run, status in zip(self.goal.running, statuses, strict=True):
            done, total = self.goal.way(run)
            if self.terminal:
                self._bar(run, status, done, total)
            else:
                self._line(run, status, done, total, due=due)
        if due:
            self.next_line = time.monotonic() + self.line_seconds

    def _pace(self, title: str, done: int, total: int) -> str:
        """``, 12,000/s, 3 min left``; nothing when it is done or has not begun."""
        seconds = time.monotonic() - self.since
        came = done - self.begun.setdefault(title, done)
        return pace(done, total, came, seconds)

    def _bar(self, run: Running, status: FlowStatus, done: int, total: int) -> None:
        title = run.flow.title
        if title not in self.bars:
            self.bars[title] = self.progress.add_task(title, total=total, note="")
        trouble = status.last_error or status.warning
        note = f"{status.state}: {trouble}" if trouble else f"{status.records:,} records applied"
        self.progress.update(self.bars[title], completed=done, total=total or None, note=note)

    def _line(self, run: Running, status: FlowStatus, done: int, total: int, *, due: bool) -> None:
        title, before = run.flow.title, self.printed.get(run.flow.title)
        said = status.last_error or status.warning
        # A warning's days change all the time: it is said again when a line is due anyhow.
        now = (status.state, status.last_error, status.records)
        if before == now or (before is not None and before[:2] == now[:2] and not due):
            return
        self.printed[title] = now
        trouble = f" · {said.splitlines()[0]}" if said else ""
        waiting = f" · {status.deferred:,} documents to be written" if status.deferred else ""
        # Before the log's end is known, or how much a fill has to read, there is no share to tell.
        way = f"{100 * done // total}% of the log{self._pace(title, done, total)} · " if total else ""
        click.echo(f"{title}: {status.state} · {way}{status.records:,} records{waiting}{trouble}", err=True)
