"""How verbs about letters end: what is left, and what is forgotten."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import click

from console.cli.shared.options import confirm, print_json

# Of letters that are left, so many are printed; --json has more.
MOST_LEFT = 20

Report = Mapping[str, Any]


def told_left(report: Report, show: Callable[[Report], str], summed: str, *, as_json: bool) -> NoReturn:
    """Print what has become of letters; exit code 2 when some are left.

    Args:
        report: with ``left``, and ``why`` of each.
        show: one of ``why`` as a line.
        summed: the last line.
        as_json: print the report instead.
    """
    if as_json:
        print_json(report)
    else:
        for one in report["why"][:MOST_LEFT]:
            click.echo(show(one))
        if report["left"] > MOST_LEFT:
            click.echo(f"… and {report['left'] - MOST_LEFT:,} more (--json)")
        click.echo(summed)
    sys.exit(2 if report["left"] else 0)


def dropped(
    drop: Callable[[Callable[[Report], None]], Report],
    count: Callable[[Report], int],
    lines: Callable[[Report], Iterable[str]] = lambda _report: (),
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Forget letters, asked for first, and print how many they were.

    Args:
        drop: looks, gives what it has found to what it is given, and forgets that unless it only looks.
        count: how many a look has found.
        lines: printed before.
        yes: do not ask.
        dry_run: it only looks.
        as_json: print the report instead.
    """

    def ask(found: Report) -> None:
        if not yes and count(found):
            confirm(f"Forget {count(found):,} letters?")

    report = drop(ask)
    if as_json:
        print_json(report)
        return
    for line in lines(report):
        click.echo(line)
    told = f"{count(report):,} letters would be" if dry_run else f"{report['dropped']:,} letters"
    click.echo(f"{told} forgotten")
