"""``headwater schema``: the pipeline file's JSON Schema."""

from __future__ import annotations

import json

import click

from cdc.pipeline.schema import json_schema


@click.command("schema")
def command() -> None:
    """Print the pipeline file's JSON Schema (draft 2020-12), for completion and checks in editors.

    \b
    Examples:
      headwater schema > pipeline.schema.json
      # then, as the first line of a pipeline file:
      # yaml-language-server: $schema=pipeline.schema.json
    """
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
