"""``headwater ps``: show the local servers."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
@click.option(
    "--env", is_flag=True, help="print `export` lines for pipeline files (holds the local superuser's password)"
)
def command(as_json: bool, env: bool) -> None:
    """Show the local servers: state, pid, address, memory.

    \b
    Examples:
      headwater ps
      headwater ps --json
      eval "$(headwater ps --env)"
    """
    from deploy.local.stack import LocalStack

    stack = LocalStack()
    if env:
        click.echo(stack.endpoints.exports())
        return
    states = stack.ps()
    if as_json:
        click.echo(
            json.dumps({"home": str(stack.site.home), "services": [asdict(state) for state in states]}, indent=2)
        )
        return
    from rich.table import Column, Table

    from console.cli.shared.tables import show

    address = Column("address", overflow="fold")  # an address that is cut off can't be copied
    table = Table("server", "state", "pid", address, "up", "MiB", "", title=f"local stack in {stack.site.home}")
    colours = {"running": "green", "unhealthy": "yellow", "foreign": "red"}
    for state in states:
        colour = colours.get(state.state, "dim")
        minutes, seconds = divmod(int(state.uptime_seconds), 60)
        table.add_row(
            state.name,
            f"[{colour}]{state.state}[/{colour}]",
            str(state.pid or ""),
            state.address,
            f"{minutes}m{seconds:02}s" if state.pid else "",
            f"{state.rss_mib:.0f}" if state.pid else "",
            state.detail,
        )
    total = sum(state.rss_mib for state in states)
    table.caption = f"{total:.0f} MiB in all"
    show(table)
