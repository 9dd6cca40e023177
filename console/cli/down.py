"""``headwater down``: stop the local servers."""

from __future__ import annotations

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
        stack.wipe(names)
        click.echo("data deleted")
