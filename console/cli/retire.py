"""``headwater retire``: remove a generation that nobody reads."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli.shared.options import (
    confirm,
    generation_option,
    json_option,
    pipeline_argument,
    print_json,
    sink_argument,
)


@click.command(
    epilog="""\b
Examples:
  headwater retire pipeline.yaml search
  headwater retire pipeline.yaml search --generation 1 --yes
"""
)
@pipeline_argument
@sink_argument
@generation_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(file: Path, sink: str, number: int | None, yes: bool, as_json: bool) -> None:
    """Remove a generation of SINK for good: its documents, its rows in the row store, its checkpoints.

    Without --generation the previous one; one that readers see is refused. A running `headwater run` lets go of it
    within a second or two.
    """
    from cdc.pipeline import load
    from operations.generations.promote import candidate
    from operations.generations.retire import retire

    pipeline = load(file)
    stages = ("previous", "retiring") if number is None else ("previous", "ready", "filling", "retiring", "living")
    entry = candidate(pipeline, sink, number, *stages)
    if not yes and entry.stage != "living":  # that one is refused, whatever the answer
        confirm(f"Remove generation {entry.number} of {sink} ({entry.stage})?")
    report = retire(pipeline, sink, entry.number, lambda line: click.echo(line, err=as_json))
    if as_json:
        print_json(report)
