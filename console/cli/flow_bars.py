"""What ``headwater run`` shows: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cdc.errors import KafkaError
from cdc.log.ends import LogEnds, reached
from cdc.pipeline import Pipeline
from operations.pace import pace
from spark.checkpoint import committed_offsets
from spark.runner import Running
from spark.status import FlowStatus


class Watch:
    """Shows every flow's way to the log's end.

    Args:
        pipeline: for Kafka's address.
        running: the flows.
        terminal: bars, else a line a flow now and then.
        line_seconds: pause between lines.
    """

    def __init__(self, pipeline: Pipeline, running: Sequence[Running], *, terminal: bool, line_seconds: float) -> None:
        self.running, self.terminal, self.line_seconds = running, terminal, line_seconds
        self.log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
        self.goal = self._ends()
        self.bars: dict[str, TaskID] = {}
        self.printed: dict[str, tuple[str, str | None, int]] = {}
        self.next_line = time.monotonic()
        self.since = time.monotonic()
        self.begun: dict[str, int] = {}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))

    def __enter__(self) -> Watch:
        if self.terminal:
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.terminal:
            self.progress.stop()
        self.log.close()

    def _ends(self) -> dict[str, dict[int, int]]:
        topics = {topic for run in self.running for topic in run.flow.spec.topics}
        try:
            return self.log.ends(sorted(topics))
        except KafkaError:
            return {}  # Kafka is away: the flows say so themselves

    def _way(self, run: Running) -> tuple[int, int]:
        """Offsets done and to do for a flow; of a joined view that is being filled, records of both its passes."""
        told = getattr(run.query, "progress", None) if run.filling else None
        if told is not None:
            _, done, total = told()
            return done, total
        if not self.goal:
            self.goal = self._ends()
        _, committed = committed_offsets(run.flow.checkpoint)
        goal = {topic: self.goal.get(topic, {}) for topic in run.flow.spec.topics}
        total = sum(end for parts in goal.values() for end in parts.values())
        done = sum(min(committed.get(t, {}).get(p, 0), end) for t, parts in goal.items() for p, end in parts.items())
        return done, total

    def caught_up(self) -> bool:
        """Whether every flow that is not failed has committed what the log held at the start."""
        for run in self.running:
            goal = {topic: self.goal.get(topic, {}) for topic in run.flow.spec.topics}
            there = not run.filling and not run.deferred and reached(committed_offsets(run.flow.checkpoint)[1], goal)
            if not self.goal or (not run.failed and not there):
                return False
        return True

    def show(self, statuses: Sequence[FlowStatus]) -> None:
        """Show the flows' state now."""
        due = time.monotonic() >= self.next_line
        for run, status in zip(self.running, statuses, strict=True):
            done, total = self._way(run)
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
