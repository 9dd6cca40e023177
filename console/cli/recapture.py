"""``headwater recapture``: go on with a database that is another one by now."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from console.cli.shared.options import confirm, json_option, pipeline_argument, print_json


@click.command(
    epilog="""\b
Examples:
  headwater recapture pipeline.yaml              (tells what it costs, and asks)
  headwater recapture pipeline.yaml --yes        (after pg_upgrade, a blue/green switch, an older backup)
  headwater recapture pipeline.yaml --force      (also if events, or versions of rows, are lost by it)
"""
)
@pipeline_argument
@click.option(
    "--force", is_flag=True, help="Even if events, or former versions of rows (`as_of`), are lost by it for good."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def command(file: Path, force: bool, yes: bool, as_json: bool) -> None:
    """Capture the database anew, and build every sink again beside what readers see.

    For a database in another history: another system identifier (pg_upgrade, a blue/green switch), an older copy, a
    timeline that can't be followed. `run` must not be alive. Readers keep what they have until each sink's new
    generation was compared with Postgres; the one that it replaces is removed then. Killed, the same command goes on,
    unless the database is another one again: then it begins anew. It asks as long as the old capture is there.

    Topics are deleted and filled from the tables. What only they hold is lost by that, events of an outbox and former
    versions of rows that a view shows as they were (`as_of`): it is told, and refused without --force.

    Exit code 0: every sink equals Postgres, start `headwater run`; 2: one differs, its readers still see what they saw,
    and the commands that mend it are told; 1: error.
    """
    from cdc.pipeline import load
    from operations.recapture import begun, costs, recapture

    pipeline = load(file)
    say = partial(click.echo, err=True)
    at = begun(pipeline)
    if at is None or not at.dropped:  # also one that was refused, or cut, before the old capture was gone
        for line in costs(pipeline):
            say(f"- {line}")
        if not yes:
            confirm("Capture it anew?")
    else:
        say("going on with what was begun")
    report = recapture(pipeline, file, say, force=force)
    if as_json:
        print_json(report)
    else:
        for sink in report["sinks"]:
            good = "equals Postgres" if sink["equal"] else f"differs from Postgres: {_way_out(file, sink)}"
            click.echo(f"sink {sink['sink']}: readers see generation {sink['generation']}; what was built {good}")
        if report["equal"]:
            click.echo(f"captured anew in {report['seconds']:.0f} s: `headwater run {file}` goes on")
    sys.exit(0 if report["equal"] else 2)


def _way_out(file: Path, sink: dict[str, Any]) -> str:
    """What shows a generation that differs: compared again it would differ again, unless it was only late."""
    if sink["differs"] is None:
        return "run the same command again"
    number = sink["differs"]
    of = f"--sink {sink['sink']} --generation {number}"
    return (
        f"`headwater run {file}` keeps generation {number} up to date; then `headwater letters {file} list {of}`"
        f" or `headwater verify {file} {of} --repair`, and `headwater promote {file} {sink['sink']}`;"
        " if it was only late, the same command compares it again"
    )
