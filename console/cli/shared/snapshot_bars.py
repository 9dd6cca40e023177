"""Shows a snapshot's progress: a bar a table on a terminal, a line a table now and then elsewhere.

Of many tables it shows how many are read, or looked at for missed deletes, and those that are under way.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from connectors.snapshots.snapshot import Progress, TableProgress

LINE_SECONDS = 5.0
# More tables than this have no bar, or line, each: what is higher than the terminal is cut, whatever is in it.
FEW = 12
# Lines of the terminal that are not for tables under way.
OTHER_LINES = 4
# Tables that a line names.
NAMED = 3
TOTAL = "tables"


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
        self.seen: dict[str, TableProgress] = {}
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
        self.seen |= {table.table: table for table in now.tables}  # while deletes are looked for, not all may be told
        if len(self.seen) > FEW:
            self._show_many(now.sweeps, due=due or now.done)
        else:
            self._show_each(now, due=due)
        if due:
            self.next_line = time.monotonic() + LINE_SECONDS

    def _show_each(self, now: Progress, *, due: bool) -> None:
        for table in now.tables:
            if self.terminal:
                self._bar(table)
            elif (table.done and table.table not in self.told) or (due and not table.done and table.rows):
                self._line(table)

    def _show_many(self, sweeps: int, *, due: bool) -> None:
        """How many are read and what is being read; while ``sweeps`` tables are swept, the same of the sweep alone."""
        tables = [table for table in self.seen.values() if table.sweeping] if sweeps else [*self.seen.values()]
        ready, total = sum(map(_is_swept if sweeps else _is_read, tables)), sweeps or len(tables)
        under_way = [one for one in tables if one.rows and not (_is_swept(one) if sweeps else _is_read(one))]
        # What is read now has grown by more than what is only written to.
        under_way.sort(key=lambda one: -one.rows)
        if self.terminal:
            title = "missed deletes" if sweeps else TOTAL
            self._bars(title, ready, total, under_way[: max(1, self.bars.console.height - OTHER_LINES)])
        elif due and sweeps:
            line = f"missed deletes: {ready:,} of {total:,} tables looked at"
            click.echo(line + _under_way("looking at", under_way), err=True)
        elif due:
            rows = sum(table.rows for table in tables)
            line = f"snapshot: {ready:,} of {total:,} tables read, {rows:,} rows"
            click.echo(line + _under_way("reading", under_way), err=True)

    def _bars(self, title: str, ready: int, total: int, under_way: Collection[TableProgress]) -> None:
        """A bar for all of them, and below it those under way."""
        for gone in self.tasks.keys() - {TOTAL, *(table.table for table in under_way)}:
            self.bars.remove_task(self.tasks.pop(gone))
        if TOTAL not in self.tasks:
            self.tasks[TOTAL] = self.bars.add_task(title, total=None)
        self.bars.update(self.tasks[TOTAL], completed=ready, total=total, description=title)
        for table in under_way:
            self._bar(table)

    def _bar(self, table: TableProgress) -> None:
        if table.table not in self.tasks:
            self.tasks[table.table] = self.bars.add_task(table.table, total=table.total)
        total = table.rows if table.done else table.total
        title = f"{table.table} (missed deletes)" if table.sweeping else table.table
        if total is None:  # `update` takes that for "as before"
            next(task for task in self.bars.tasks if task.id == self.tasks[table.table]).total = None
        self.bars.update(self.tasks[table.table], completed=table.rows, total=total, description=title)

    def _line(self, table: TableProgress) -> None:
        if table.done:
            self.told.add(table.table)
        of = "" if table.done or table.total is None else f" of about {table.total:,}"
        if table.sweeping:
            click.echo(f"missed deletes of {table.table}: {table.rows:,}{of} records looked at", err=True)
            return
        click.echo(f"snapshot {table.table}: {table.rows:,}{of} rows{' (complete)' if table.done else ''}", err=True)


def _is_read(table: TableProgress) -> bool:
    return table.done or table.read


def _is_swept(table: TableProgress) -> bool:
    return table.sweeping and table.rows == table.total


def _under_way(verb: str, tables: Collection[TableProgress]) -> str:
    """What is under way, as the end of a line."""
    said = []
    for table in [*tables][:NAMED]:
        much = f"{table.rows * 100 // table.total} %" if table.total else f"{table.rows:,} rows"
        said.append(f"{table.table} {much}")
    more = f" and {len(tables) - NAMED:,} more" if len(tables) > NAMED else ""
    return f"; {verb} {', '.join(said)}{more}" if said else ""
