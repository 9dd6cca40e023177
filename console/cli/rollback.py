"""``headwater rollback``: readers see the previous generation again."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli.options import generation_option, json_option, pipeline_argument, print_json, sink_argument


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
@json_option
def command(file: Path, sink: str, number: int | None, as_json: bool) -> None:
    """Make readers of SINK see the generation again that they saw before the last `promote`.

    It was kept up to date by `run`, so nothing is lost by going back. The one that is left stays as well.
    """
    from cdc.pipeline import load
    from operations.generations.promote import candidate, promote

    pipeline = load(file)
    entry = candidate(pipeline, sink, number, "previous")
    report = promote(pipeline, sink, entry.number, lambda line: click.echo(line, err=as_json))
    if as_json:
        print_json(report)
