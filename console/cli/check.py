"""``headwater check``: is the system ready?"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json
from console.cli.shared.patience import patient
from console.commands import with_file

if TYPE_CHECKING:
    from connectors.preflight import Answer, Finding

COLOURS = {"ok": "green", "note": "green", "warning": "yellow", "error": "red", "unknown": "red", "skipped": "white"}
BAD = ("error", "unknown")


@click.command(
    epilog="""\b
Examples:
  headwater check pipeline.yaml
  headwater check pipeline.yaml --json
"""
)
@pipeline_argument
@json_option
@patient
def command(file: Path, as_json: bool) -> None:
    """Ask Postgres, Kafka and Kafka Connect whether the pipeline can run, and say what to do where it can't.

    The views are held against the tables: names, keys, joins, types and Spark SQL, all that `run` would refuse. New
    expressions start Spark for that, which takes some ten seconds; what it has accepted is remembered. Sinks' servers
    and the row store are asked whether they answer (one that does not is a warning: `run` waits for it), search servers
    whether they would make the indices (a template is simulated, none is made), catalogues and buckets of warehouses
    whether they are there and let us in; addresses of webhooks are connected to.

    Changes nothing. Exit code 1 when something must be mended first (an error, or a check that could not run); warnings
    and notes exit with 0.
    """
    from cdc.pipeline import load

    pipeline = load(file)  # before the rest is imported: what is wrong with it is said at once
    from connectors.preflight import preflight
    from connectors.preflight.gathered import tally
    from operations.check.sinks import checked_sinks
    from operations.check.views import checked_views
    from operations.check.warehouses import checked_warehouses
    from operations.check.webhooks import checked_webhooks
    from operations.generations.kept_views import with_kept_views

    answers, told = [], []
    progress = lambda line: None if as_json else click.echo(line, err=True)  # noqa: E731
    views, sinks = checked_views(pipeline, progress), checked_sinks(pipeline)
    ours = (views, sinks, checked_warehouses(pipeline), checked_webhooks(pipeline))
    for answer in chain(preflight(with_kept_views(pipeline)), *ours):
        answers.append(answer)
        if not as_json:
            told += show(answer, file)
    bad = sum(answer.state in BAD for answer in answers)
    if as_json:
        print_json({"pipeline": pipeline.name, "ready": not bad, "checks": [to_dict(answer) for answer in answers]})
    else:
        ready = "; ".join(filter(None, ["ready", tally(told)]))
        click.echo(f"{bad} of {len(answers)} checks must be mended" if bad else ready)
    sys.exit(1 if bad else 0)


def show(answer: Answer, file: Path) -> list[Finding]:
    """Print one check and its findings, what many tables have in common as one; returns them as they are printed."""
    from connectors.preflight.gathered import gathered

    label = click.style(f"{answer.state:<8}", fg=COLOURS[answer.state])
    why = (answer.error and f" (could not run: {answer.error})") or (answer.skipped and f" ({answer.skipped})")
    click.echo(f"{label} {answer.check.name:<12} {answer.check.title}{why}")
    findings = gathered(answer.findings)
    for finding in findings:
        click.echo(f"{'':>9}{click.style(finding.level.value, fg=COLOURS[finding.level.value])}: {finding.message}")
        if finding.fix:
            click.echo(f"{'':>9}  what to do: {with_file(finding.fix, file)}")
    return findings


def to_dict(answer: Answer) -> dict[str, object]:
    """One check as ``--json`` prints it."""
    return {
        "check": answer.check.name,
        "title": answer.check.title,
        "state": answer.state,
        "error": answer.error,
        "skipped": answer.skipped,
        "findings": [
            {"level": f.level.value, "about": f.about, "message": f.message, "fix": f.fix} for f in answer.findings
        ],
    }
