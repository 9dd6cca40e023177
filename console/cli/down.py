"""``headwater down``: stop the local servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cdc.errors import StateError
from console.cli.shared.local_options import chosen, only_option
from console.cli.shared.options import confirm


@click.command()
@only_option
@click.option("--wipe", is_flag=True, help="also delete their data, for good")
@click.option("--yes", is_flag=True, help="do not ask before --wipe")
def command(only: str | None, wipe: bool, yes: bool) -> None:
    """Stop the local servers that `headwater up` started in this HEADWATER_HOME, and no others.

    With --wipe all begins afresh: besides the servers' data, `state` and `warehouse` of that folder go, where the
    examples, and by default all pipelines, keep what they know of these servers. Of a pipeline over a database of your
    own, `headwater drop` it before: its slot stays there else, and keeps WAL. With --only they stay.

    \b
    Examples:
      headwater down
      headwater down --only connect
      headwater down --wipe --yes
    """
    from deploy.local.stack import STATE, LocalStack

    stack = LocalStack()
    names = chosen(only)
    kept = _kept(stack.pipelines(), stack.site.home) if wipe else ""
    if wipe and names is None:
        _refuse_living(stack.site.home / STATE)
    if wipe and not yes:
        what = ", ".join(names) if names is not None else f"every server{kept}"
        confirm(f"Delete the data of {what} in {stack.site.home}?")
    stopped = stack.down(names, click.echo)
    if not stopped:
        click.echo("nothing was running")
    if not wipe:
        return
    stack.wipe(names)
    if names is None:
        click.echo(f"data deleted{kept}")
        return
    click.echo("data deleted")
    if kept:
        click.echo(
            f"in {stack.site.home} stay{kept.removeprefix(',')}, which still know of these data: where a pipeline is"
            " refused for it, the message has the way out; `headwater down --wipe` deletes them too"
        )


def _kept(pipelines: Sequence[str], home: Path) -> str:
    """What pipelines have kept in this home, as a part of a sentence; empty if there is nothing."""
    from deploy.local.stack import WAREHOUSE

    state = f", the state of {', '.join(pipelines)}" if pipelines else ""
    return f"{state}{', the warehouse' if (home / WAREHOUSE).exists() else ''}"


def _refuse_living(state: Path) -> None:
    """Who runs would write what it knows of the former servers into the folder again."""
    from operations.state.folder import living

    if run := living(state):
        raise StateError(
            f"what lies in {state} is being run: {', '.join(run)}",
            means="nothing was stopped and nothing deleted",
            fix="stop that process first (Ctrl-C or SIGTERM)",
        )
