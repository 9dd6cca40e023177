"""What ``tail`` and ``queries tail`` share: where they begin, their line of JSON, and how they go on until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import orjson

from console.cli.shared.options import F, together

if TYPE_CHECKING:
    from operations.push.events import Told
    from operations.push.follows import Sees
    from operations.push.source import Source


def follow_options(snapshot: str) -> Callable[[F], F]:
    """``--from-now``, ``--snapshot`` and ``--after``, as ``start`` and ``cursor``; ``--json`` as ``as_json``.

    Args:
        snapshot: what ``--snapshot`` prints first, as a sentence.
    """
    return together(
        click.option(
            "--from-now", "start", flag_value="now", default="now", help="What comes from now on (the usual)."
        ),
        click.option("--snapshot", "start", flag_value="snapshot", help=snapshot),
        click.option("--after", "cursor", metavar="CURSOR", help="What followed this cursor, of an event before."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line (documented, stable)."),
    )


def print_event(told: Told) -> None:
    """An event as one line of JSON."""
    cursor = b"null" if told.cursor is None else orjson.dumps(told.cursor)
    click.echo(b'{"event":%s,"cursor":%s,"data":' % (orjson.dumps(told.name), cursor) + told.data + b"}")


def print_reset(told: Told, start: str, there: str) -> None:
    """Say to a person why what was shown until now counts no more; where nothing was, what is going to be shown.

    Args:
        told: a ``reset``.
        start: of ``follow_options``.
        there: what ``--snapshot`` shows.
    """
    from operations.push.walk import BEGUN

    why = told.value["why"]
    if why != BEGUN:
        click.echo(f"reset: {why}", err=True)
    elif start == "now":
        click.echo(f"from now on; `--snapshot` shows {there}", err=True)


def followed(source: Source, sees: Sees, cursor: str | None, start: str, show: Callable[[Told], None]) -> None:
    """Show what comes, until Ctrl-C; why nothing comes is said once each time.

    Args:
        source: the view's changes; closed at the end.
        sees: what is to be seen of them.
        cursor: to go on from; None: from the beginning.
        start: of ``follow_options``.
        show: shows one event.

    Raises:
        HeadwaterError: no changes are kept, or the server refuses.
    """
    from operations.push.following import follow

    documents, waiting = start == "snapshot" or cursor is not None, _Waiting()
    try:
        for found in follow(source, sees, cursor, documents=documents, on_wait=waiting.say):
            for one in found:
                waiting.over()
                show(one)
            if found:
                sys.stdout.flush()
    finally:
        source.close()


class _Waiting:
    """Says why nothing comes, once each time."""

    def __init__(self) -> None:
        self._said = ""

    def say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            click.echo(f"waiting: {why}", err=True)

    def over(self) -> None:
        self._said = ""
