"""``headwater plan``: what apply would change."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from console.options import json_option, pipeline_argument, print_json

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
    """Show what apply would create or change in Postgres, Kafka and Kafka Connect. Changes nothing.

    Exit code 0: nothing to do; 2: there are changes; 1: error. Secrets are never shown.
    """
    from cdc.pipeline import load
    from connectors.apply import plan_pipeline
    from console.actions import show_action

    pipeline = load(file)
    actions = plan_pipeline(pipeline)
    if as_json:
        print_json({"pipeline": pipeline.name, "changes": [action.to_dict() for action in actions]})
    else:
        for action in actions:
            show_action(action)
        count = f"{len(actions)} changes; `headwater apply {file}` makes them" if actions else "nothing to change"
        click.echo(count)
    sys.exit(DIFFERENCES if actions else 0)
