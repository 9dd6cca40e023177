"""``headwater resume``: a sink that was paused goes on."""

from __future__ import annotations

import time
from pathlib import Path

import click

from cdc.ages import at_least
from console.cli.shared.options import json_option, pipeline_argument, print_json, sink_argument


@click.command(
    epilog="""\b
Examples:
  headwater resume pipeline.yaml search
  headwater resume pipeline.yaml search --json
"""
)
@pipeline_argument
@sink_argument
@json_option
def command(file: Path, sink: str, as_json: bool) -> None:
    """Let SINK go on after `headwater pause`.

    A `headwater run` that is alive takes it up within a second or two, from where it was. One that is started later
    does so as ever.

    Exit code 0: it is not paused (also if it never was); 1: an error.
    """
    from cdc.pipeline import load
    from operations.state.pausing import resume

    pipeline = load(file)
    ended = resume(pipeline, sink)
    seconds = None if ended is None else round(at_least(ended.since, time.time()), 1)
    if as_json:
        told = {"paused": False, "changed": ended is not None, "was_paused_seconds": seconds}
        print_json({"pipeline": pipeline.name, "sink": sink, **told})
    elif ended is None:
        click.echo(f"sink {sink}: was not paused")
    else:
        click.echo(f"sink {sink}: resumed after {seconds:,.0f} s; `headwater run` takes it up where it was")
