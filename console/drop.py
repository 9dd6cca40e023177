"""``headwater drop``: remove what apply and run created."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.options import json_option, pipeline_argument, print_json

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline


@click.command(
    epilog="""\b
Examples:
  headwater drop pipeline.yaml                    (keeps the changelog topics)
  headwater drop pipeline.yaml --topics --yes
  headwater drop pipeline.yaml --dry-run --json
"""
)
@pipeline_argument
@click.option(
    "--topics", is_flag=True, help="Delete the changelog topics and the dead letters too: a full copy of the tables."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(file: Path, topics: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the pipeline's connector, slot, publication, triggers and helper tables. The source's rows stay untouched.

    Without --topics the changelog topics stay, and sinks may go on reading what they hold; a later apply refuses to
    snapshot into them, because rows deleted meanwhile would come back.
    """
    from cdc.pipeline import load
    from connectors.drop import drop, plan_drop_pipeline
    from console.actions import show_action

    pipeline = load(file)
    actions = plan_drop_pipeline(pipeline, topics=topics)
    state = sink_state(pipeline)
    if not as_json:
        for action in actions:
            show_action(action)
        for line in state:
            click.echo(f"- {'state':<16} {line}")
    if not dry_run and (actions or state):
        if not yes:
            click.confirm("Remove all of this?", abort=True, err=True)
        drop(pipeline, topics=topics)
        drop_sink_state(pipeline)
    if as_json:
        changes = [action.to_dict() for action in actions]
        print_json({"pipeline": pipeline.name, "changes": changes, "state": state, "done": not dry_run})
    elif not actions and not state:
        click.echo("nothing to remove")
    else:
        click.echo("nothing was removed (dry run)" if dry_run else "removed")


def sink_state(pipeline: Pipeline) -> list[str]:
    """What of the sinks and of the engine's state would be removed, one line each. HOOK: the lead fills it."""
    del pipeline
    return []


def drop_sink_state(pipeline: Pipeline) -> None:
    """Remove what ``sink_state`` lists; no error for what is not there. HOOK: the lead fills it."""
    del pipeline
