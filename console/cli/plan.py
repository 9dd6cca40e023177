"""``headwater plan``: what apply would change."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from console.cli.options import json_option, pipeline_argument, print_json

DIFFERENCES = 2


@click.command(
    epilog="""\b
Examples:
  headwater plan pipeline.yaml
  headwater plan pipeline.yaml --json
  headwater plan pipeline.yaml || headwater apply pipeline.yaml
"""
)
@pipeline_argument
@json_option
def command(file: Path, as_json: bool) -> None:
    """Show what apply would change in Postgres, Kafka and Kafka Connect, and which sinks need a new generation.

    A sink whose view, mapping or target was changed in the file goes on as it was; `rebuild` makes it anew. If a
    `headwater run` is alive, it also shows what that will do with the file once it is applied. Changes nothing. Views
    that do not fit the tables are an error, as they are for `apply`.

    Exit code 0: nothing to do; 2: there are changes; 1: error. Secrets are never shown.
    """
    from cdc.pipeline import load
    from connectors.apply import plan_pipeline
    from console.cli.show_action import show_action
    from operations.edits.pending import pending, told
    from operations.gate import refuse_wrong_views
    from operations.generations.outdated import line, needed

    pipeline = load(file)
    actions = plan_pipeline(pipeline)
    refuse_wrong_views(pipeline, lambda line: click.echo(line, err=True))
    sinks = needed(pipeline)
    edits = pending(pipeline)
    asked = edits.lines() if edits is not None else []
    if as_json:
        changes = [action.to_dict() for action in actions]
        print_json({"pipeline": pipeline.name, "changes": changes, "sinks": sinks, "run": told(edits)})
    else:
        for action in actions:
            show_action(action)
        for one in sinks:
            click.echo(click.style("~ ", fg="yellow") + line(one, str(file)))
        for said in asked:
            click.echo(click.style("~ ", fg="yellow") + said)
        if actions or asked:
            click.echo(f"{len(actions) + len(asked)} changes; `headwater apply {file}` makes them")
        elif not sinks:
            click.echo("nothing to change")
    sys.exit(DIFFERENCES if actions or sinks or asked else 0)
