"""What ``headwater run`` shows: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from console.log_lines import say
from operations.run.flow_lines import LINE_SECONDS, FlowLines
from operations.status.caught_up import Goal
from spark.disk.status import FlowStatus
from spark.running import Running


class FlowBars:
    """Shows every flow's way to the log's end.

    Args:
        goal: what they are on their way to.
        terminal: bars, else a line a flow now and then.
        line_seconds: pause between lines.
    """

    def __init__(self, goal: Goal, *, terminal: bool, line_seconds: float = LINE_SECONDS) -> None:
        self.goal = goal
        self.lines = None if terminal else FlowLines(goal, say, line_seconds)
        self.bars: dict[str, TaskID] = {}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))

    def __enter__(self) -> FlowBars:
        if self.lines is None:
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.lines is None:
            self.progress.stop()

    def show(self, statuses: Sequence[FlowStatus]) -> None:
        """Show the flows' state now."""
        if self.lines is not None:
            self.lines.show(statuses)
            return
        self.goal.look()
        for gone in self.bars.keys() - {run.flow.title for run in self.goal.running}:
            self.progress.remove_task(self.bars.pop(gone))
        for run, status in zip(self.goal.running, statuses, strict=True):
            self._bar(run, status)

    def _bar(self, run: Running, status: FlowStatus) -> None:
        title, (done, total) = run.flow.title, self.goal.way(run)
        if title not in self.bars:
            self.bars[title] = self.progress.add_task(title, total=total, note="")
        trouble = status.last_error or status.warning
        note = f"{status.state}: {trouble}" if trouble else f"{status.records:,} records applied"
        self.progress.update(self.bars[title], completed=done, total=total or None, note=note)
