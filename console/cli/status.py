"""``headwater status``: where every sink stands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cdc.pipeline import load
from console.cli.options import json_option, pipeline_argument, print_json, sink_option
from operations.pausing import Pause
from operations.status.alive import ailments
from operations.status.evolving import line as evolving_line
from operations.status.sinks import status_report
from operations.status.source import line, warning


@click.command(
    epilog="""\b
Examples:
  headwater status pipeline.yaml
  headwater status pipeline.yaml --sink search --json | jq .sinks[0].lag_events
  headwater status pipeline.yaml --alive       (a container's health check)
"""
)
@pipeline_argument
@sink_option
@json_option
@click.option(
    "--alive", is_flag=True, help="Only: is a process at work on every sink? Asks no server; exit code 1 if not."
)
def command(file: Path, only: tuple[str, ...], as_json: bool, alive: bool) -> None:
    """Show each sink's offsets, lag and last error, whether or not it is running now; and how the source is.

    Offsets are read from the checkpoints, the log's ends from Kafka. lag_events counts offsets, of which compaction may
    have removed some; lag_seconds is the age of the oldest record that is not applied yet. A sink's lag is behind
    Kafka; the line "source" tells whether Kafka may be behind Postgres: the connector's state, and the WAL that its
    slot keeps.
    """
    pipeline = load(file)
    if alive:
        found = ailments(pipeline, only)
        click.echo("\n".join(found) or "alive")
        sys.exit(1 if found else 0)
    report = status_report(pipeline, only)
    exceeded = warning(pipeline, report["source"])
    if exceeded:
        click.echo(exceeded, err=True)
    if as_json:
        print_json(report)
    else:
        _print(report)


def lag_cells(report: Mapping[str, Any]) -> tuple[str, str]:
    """Lag and age of a sink or a generation as a table shows them."""
    events, seconds = report["lag_events"], report["lag_seconds"]
    return "?" if events is None else f"{events:,}", "?" if seconds is None else f"{seconds:.1f} s"


def rebuilding_words(lost: Mapping[str, Any]) -> str:
    """What a reader of the table wants to know of a sink that was lost: since when it is made again, and how far."""
    how_far = lost["progress"].split("\n")[0] if lost["progress"] else (lost["error"] or "").split("\n")[0]
    return f"lost {lost['seconds']:.0f} s ago, attempt {lost['attempt']}: {how_far}"


def _news(sink: Mapping[str, Any]) -> str:
    """The last column: why it stands still, or its last error."""
    if sink["paused"]:
        return Pause(*(sink["paused"][name] for name in ("since", "by", "why"))).words
    if sink["rebuilding"]:
        return rebuilding_words(sink["rebuilding"])
    return (sink["last_error"] or "").split("\n")[0]


def _print(report: dict[str, Any]) -> None:
    table = Table(title=f"pipeline {report['pipeline']}")
    for heading in ("sink", "state", "lag", "behind", "written", "deleted", "rejected", "last error"):
        table.add_column(heading)
    for sink in report["sinks"]:
        flows = sink["flows"]
        table.add_row(
            f"{sink['sink']} ({sink['type']})",
            sink["state"],
            *lag_cells(sink),
            *(f"{sum(flow[name] for flow in flows):,}" for name in ("written", "deleted", "rejected")),
            _news(sink),
        )
        for other in sink["generations"] if len(sink["generations"]) > 1 else ():
            table.add_row(
                f"  generation {other['generation']}: {other['stage']}",
                other["state"],
                *lag_cells(other),
                *("", "", ""),
                (other["last_error"] or "").split("\n")[0],
            )
    Console().print(table)
    for sink in report["sinks"]:
        deferred = sum(flow["deferred"] for flow in sink["flows"])
        if deferred:
            click.echo(f"{sink['sink']}: {deferred:,} documents that one change has touched are still to be written")
        if sink["warning"]:
            click.echo(f"warning: {sink['warning']}")
    for one in report["evolving"]:
        click.echo(evolving_line(one))
    refused = report["file"]["refused"]
    if refused:
        click.echo(f"warning: run goes on with an older file; the one that was applied: {refused['reason']}")
    for sink in report["file"]["building"]:
        click.echo(f"{sink}: run builds its next generation from the file that was applied")
    click.echo(line(report["source"]))
