"""Tables and ages, as several verbs print them."""

from __future__ import annotations

import sys
import time

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc.ages import at_least


def ago(at: float) -> str:
    """How long ago a moment is, in one unit. Args: ``at``: epoch seconds."""
    seconds = at_least(at, time.time())
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word} ago"
    return f"{seconds:.0f} s ago"


def print_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows below headings; see ``show``."""
    table = plain_table(*headings)
    for row in rows:
        table.add_row(*map(Text, row))
    show(table)


def plain_table(*headings: str) -> Table:
    """A table without a frame."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def show(table: Table) -> None:
    """Print a table as wide as the terminal, or 200 characters where there is none: a file, another program."""
    Console(width=width()).print(table)


def width() -> int:
    """Characters of a line of the terminal, or 200 where there is none."""
    return Console().width if sys.stdout.isatty() else 200
