"""Shows a snapshot's progress: a bar a table on a terminal, a line a table now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from connectors.snapshot import Progress, TableProgress

LINE_SECONDS = 5.0


class SnapshotView:
    """A context manager whose ``show`` takes each progress.

    Args:
        terminal: draw bars; else print lines.
    """

    def __init__(self, *, terminal: bool) -> None:
        self.terminal = terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bars = Bars(*columns, console=Console(stderr=True))
        self.tasks: dict[str, TaskID] = {}
        self.told: set[str] = set()
        self.next_line = 0.0

    def __enter__(self) -> SnapshotView:
        if self.terminal:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.terminal:
            self.bars.stop()

    def show(self, now: Progress) -> None:
        """Show the progress now."""
        due = time.monotonic() >= self.next_line
        for table in now.tables:
            if self.terminal:
                self._bar(table)
            elif (table.done and table.table not in self.told) or (due and not table.done and table.rows):
                self._line(table)
        if due:
            self.next_line = time.monotonic() + LINE_SECONDS

    def _bar(self, table: TableProgress) -> None:
        if table.table not in self.tasks:
            self.tasks[table.table] = self.bars.add_task(table.table, total=table.total)
        total = table.rows if table.done else table.total
        title = f"{table.table} (missed deletes)" if table.sweeping else table.table
        self.bars.update(self.tasks[table.table], completed=table.rows, total=total, description=title)

    def _line(self, table: TableProgress) -> None:
        if table.done:
            self.told.add(table.table)
        of = "" if table.done or table.total is None else f" of about {table.total:,}"
        if table.sweeping:
            click.echo(f"missed deletes of {table.table}: {table.rows:,}{of} records looked at", err=True)
            return
        click.echo(f"snapshot {table.table}: {table.rows:,}{of} rows{' (complete)' if table.done else ''}", err=True)
