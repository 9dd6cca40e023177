"""``headwater template``: an annotated pipeline file."""

from __future__ import annotations

import click

from cdc.pipeline.template import template


@click.command("template")
def command() -> None:
    """Print an annotated pipeline file: every key with its meaning, unit and default.

    \b
    Examples:
      headwater template > pipeline.yaml
      headwater template | grep -B3 tombstone
    """
    click.echo(template(), nl=False)
