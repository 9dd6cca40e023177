"""``headwater rollback``: readers see the previous generation again."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli.shared.options import generation_option, json_option, pipeline_argument, print_json, sink_argument
from console.cli.shared.patience import patient


@click.command(
    epilog="""\b
Examples:
  headwater rollback pipeline.yaml search
  headwater rollback pipeline.yaml search --generation 1 --json
"""
)
@pipeline_argument
@sink_argument
@generation_option
@click.option("--force", is_flag=True, help="Even if it lacks what readers see now, or rows that they see.")
@json_option
@patient
def command(file: Path, sink: str, number: int | None, force: bool, as_json: bool) -> None:
    """Make readers of SINK see the generation again that they saw before the last `promote`.

    It was kept up to date by `run`, so nothing is lost by going back: one that is behind what readers see now is waited
    for, half a minute at the most, and then refused unless with --force; so is one of which more dead letters stand
    than of the one that readers see. The one that is left stays as well. What the file asks for is not changed by it:
    put the file back, as it is said then. `run` builds nothing of what is left again unasked.
    """
    from cdc.pipeline import load
    from operations.generations.promote import candidate, promote
    from operations.state.letters import refuse_more_letters

    pipeline = load(file)
    entry = candidate(pipeline, sink, number, "previous")
    if not force:
        refuse_more_letters(pipeline, sink, entry.number)
    report = promote(pipeline, sink, entry.number, lambda line: click.echo(line, err=as_json), behind_too=force)
    if as_json:
        print_json(report)
