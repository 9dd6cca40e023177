"""``headwater down``: stop the local servers."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli.shared.local_options import chosen, only_option
from console.cli.shared.options import confirm


@click.command()
@only_option
@click.option("--wipe", is_flag=True, help="also delete their data, for good")
@click.option("--yes", is_flag=True, help="do not ask before --wipe")
def command(only: str | None, wipe: bool, yes: bool) -> None:
    """Stop the local servers that `headwater up` started in this HEADWATER_HOME, and no others.

    \b
    Examples:
      headwater down
      headwater down --only connect
      headwater down --wipe --yes
    """
    from deploy.local.services.postgres import Postgres
    from deploy.local.stack import LocalStack

    stack = LocalStack()
    names = chosen(only)
    if wipe and not yes:
        what = ", ".join(names) if names is not None else "every server"
        confirm(f"Delete the data of {what} in {stack.site.home}?")
    stopped = stack.down(names, click.echo)
    if not stopped:
        click.echo("nothing was running")
    if wipe:
        wiped = stack.wipe(names)
        click.echo("data deleted")
        if Postgres.name in wiped and (left := _left(stack.site.home, whole=names is None)):
            click.echo(left)


def _left(home: Path, *, whole: bool) -> str:
    """What to do about what pipelines keep of a Postgres that is gone; empty if they keep nothing. It is told and not
    done: a home holds also what pipelines keep of other servers.

    Args:
        home: where the servers were.
        whole: the log and the sinks are gone as well. Else these know of it too, and are not rid of it with a folder.
    """
    from operations.state.folder import bound

    kept = bound(home / "state")
    if whole and (warehouse := home / "warehouse").exists():
        kept.append(warehouse)
    if not kept:
        return ""
    way_out = (
        "remove it before the next `headwater apply` or `make demo`"
        if whole
        else "`headwater recapture FILE`, once the new one has its tables"
    )
    return (
        f"what pipelines keep stays: {', '.join(map(str, kept))}. Where it is of the Postgres that is gone, the next"
        f" one is refused for it: {way_out}"
    )
