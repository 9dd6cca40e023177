"""Options and output that several verbs share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from cdc.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def pipeline_argument(function: F) -> F:
    """The pipeline file, as the verb's argument ``file``."""
    return click.argument("file", type=click.Path(path_type=Path), metavar="FILE")(function)


def sink_argument(function: F) -> F:
    """One sink, as the verb's argument ``sink``."""
    return click.argument("sink", metavar="SINK")(function)


def generation_option(function: F) -> F:
    """``--generation N``, as ``number``."""
    return click.option(
        "--generation", "number", type=click.IntRange(1), default=None, metavar="N", help="Which generation."
    )(function)


def json_option(function: F) -> F:
    """``--json``: one machine-readable document on standard output."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document (documented, stable).")(
        function
    )


def sink_option(function: F) -> F:
    """``--sink NAME``, more than once: only these sinks."""
    return click.option("--sink", "only", multiple=True, metavar="NAME", help="Only this sink (may be repeated).")(
        function
    )


def master_option(function: F) -> F:
    """``--master URL``: where Spark runs, instead of what the file says."""
    return click.option(
        "--master", default=None, metavar="URL", help="Where Spark runs, instead of engine.master of the file."
    )(function)


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, listed in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# What letters of any kind are chosen by.
cause_option = click.option(
    "--cause", metavar="REGEX", help="Only those whose reason matches (RE2), in any letter case."
)
since_option = click.option("--since", metavar="WHEN", help="Only since then: 30m, 2h, 7d ago, or a date or time.")


def since_of(text: str | None) -> float | None:
    """The moment that ``--since`` names, in epoch seconds; None: no matter since when.

    Raises:
        ConfigError: it names none.
    """
    from operations.letters.wanted import moment

    return None if text is None else moment(text)


def confirm(question: str) -> None:
    """Ask before something is removed.

    Raises:
        ConfigError: there is nobody to answer (terminal); with ``--yes`` nobody is asked.
        click.Abort: the answer is no.
    """
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise ConfigError(
            "this command asks before it removes anything, and there is no terminal for an answer",
            means="nothing was removed",
            fix="say --yes, if that is meant",
        ) from None
    if not agreed:
        raise click.Abort


def print_json(value: Any) -> None:
    """Print a JSON document."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS, default=str))


def is_terminal() -> bool:
    """Whether a person is watching: progress bars; else plain lines."""
    return sys.stderr.isatty()
