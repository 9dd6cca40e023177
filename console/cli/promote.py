"""``headwater promote``: readers see another generation from now on."""

from __future__ import annotations

from pathlib import Path

import click

from console.cli.shared.options import generation_option, json_option, pipeline_argument, print_json, sink_argument
from console.cli.shared.patience import patient


@click.command(
    epilog="""\b
Examples:
  headwater promote pipeline.yaml search
  headwater promote pipeline.yaml search --generation 3 --json
"""
)
@pipeline_argument
@sink_argument
@generation_option
@click.option("--force", is_flag=True, help="Even if it is far behind the log, or lacks what readers see.")
@json_option
@patient
def command(file: Path, sink: str, number: int | None, force: bool, as_json: bool) -> None:
    """Make readers of SINK see a generation that `rebuild` has made: the newest one that is ready, or --generation.

    Elasticsearch: the alias moves in one call. Redis: the pointer moves, then the plain keys are renamed. Iceberg: the
    tables change names in one transaction of the catalogue. The generation that readers saw before stays and is kept up
    to date; `rollback` goes back to it, `retire` removes it. Interrupted, run it again.
    """
    from cdc.pipeline import load
    from operations.generations.lag import refuse_far_behind
    from operations.generations.promote import candidate, promote
    from operations.state.letters import refuse_more_letters

    pipeline = load(file)
    entry = candidate(pipeline, sink, number, "ready", "previous", "living")
    if not force:
        refuse_far_behind(pipeline, sink, entry.number)
        refuse_more_letters(pipeline, sink, entry.number)
    report = promote(pipeline, sink, entry.number, lambda line: click.echo(line, err=as_json), behind_too=force)
    if as_json:
        print_json(report)
