"""``headwater pause``: leave a sink alone for a maintenance window."""

from __future__ import annotations

import time
from pathlib import Path

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json, sink_argument


@click.command(
    epilog="""\b
Examples:
  headwater pause pipeline.yaml search --why "new disks"
  headwater pause pipeline.yaml search --json
"""
)
@pipeline_argument
@sink_argument
@click.option("--why", default=None, metavar="TEXT", help="Shown by `status` until it is resumed.")
@json_option
def command(file: Path, sink: str, why: str | None, as_json: bool) -> None:
    """Write nothing more to SINK until `headwater resume`; the other sinks go on.

    A `headwater run` that is alive stops the sink's flows within a second or two, and this command returns when it has
    let go: from then on the sink's server may be stopped, or moved with all that it holds. A `run` that is started
    meanwhile leaves the sink alone too. `status` says `paused`. Nothing is lost: the log keeps every change, deletes
    for kafka.tombstone_retention_hours. An older copy (a snapshot from before the pause) is another thing: what was
    applied after it was made is not applied again, and the sink needs `rebuild --auto`. Until it is resumed `rebuild`,
    `promote`, `rollback`, `retire`, `verify --repair`, `letters replay`, `erase` and `run --until-caught-up` refuse the
    sink by name; of those that are under way none begins another view, or page of keys.

    Exit code 0: nothing is written to it from now on (also if it was paused before); 1: an error, or a process that has
    not let go within a minute.
    """
    from cdc.pipeline import load
    from operations.state.pausing import pause, resume_before

    pipeline = load(file)
    found, new = pause(pipeline, sink, why, lambda line: click.echo(line, err=True))
    until = resume_before(pipeline, found)
    if as_json:
        told = {"paused": True, "changed": new, "since": found.since, "by": found.by, "why": found.why}
        print_json({"pipeline": pipeline.name, "sink": sink, **told, "resume_before": until})
        return
    before = "" if new else "already "
    click.echo(f"sink {sink}: {before}paused {found.words}; nothing is written to it")
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
    click.echo(
        f"`headwater resume {file} {sink}` lets it go on; after {at} the log may have forgotten deletes, and the sink"
        " would have to be rebuilt (kafka.tombstone_retention_hours)"
    )
