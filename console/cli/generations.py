"""``headwater generations``: which builds of each sink there are, and which one readers see."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json, sink_option
from console.cli.shared.patience import patient
from console.cli.shared.tables import plain_table, show
from console.cli.status import lag_cells
from operations.status.generations import generations_report


@click.command(
    epilog="""\b
Examples:
  headwater generations pipeline.yaml
  headwater generations pipeline.yaml --sink search --json
"""
)
@pipeline_argument
@sink_option
@json_option
@patient
def command(file: Path, only: tuple[str, ...], as_json: bool) -> None:
    """List every sink's generations: stage, why it was made, how far behind it is.

    living: readers see it. ready: complete, may be promoted; not proven, if no comparison (`rebuild`, `verify
    --generation N`) has found it equal to Postgres. previous: was living, kept for `rollback`. filling: its rebuild
    has not ended. retiring: about to be removed.
    """
    from cdc.pipeline import load

    report = generations_report(load(file), only)
    if as_json:
        print_json(report)
    else:
        _print(report, file)


def _print(report: dict[str, Any], file: Path) -> None:
    headings = ("sink", "generation", "stage", "state", "lag", "made", "promoted", "why")
    table = plain_table(*headings)
    table.title, table.title_justify = f"pipeline {report['pipeline']}", "left"
    for sink in report["sinks"]:
        for one in sink["generations"]:
            table.add_row(
                sink["sink"],
                str(one["generation"]),
                _stage(one),
                one["state"],
                lag_cells(one)[0],
                _when(one["created_at"]),
                _when(one["promoted_at"]),
                one["why"],
            )
    show(table)
    for sink in report["sinks"]:
        if sink["promotion"] is not None:
            click.echo(_begun(sink["sink"], sink["promotion"], file))


def _stage(one: Mapping[str, Any]) -> str:
    """A rebuild that was cut while it compared leaves what is complete, and what nobody has held against Postgres."""
    proven = one["verified"] is not None and one["verified"]["equal"] and one["verified"]["sample"] is None
    return str(one["stage"]) if proven or one["stage"] != "ready" else "ready, not proven"


def _begun(sink: str, promotion: Mapping[str, Any], file: Path) -> str:
    origin, to = promotion["from"], promotion["to"]
    seen = f"readers may see either of {origin} and {to}" if promotion["moving"] else f"readers still see {origin}"
    does = "ends it" if promotion["moving"] else "takes it back"
    by_hand = f"`headwater promote {file} {sink} --generation {'N` of either' if promotion['moving'] else f'{to}`'}"
    return (
        f"sink {sink}: sending readers from generation {origin} to {to} has begun and not ended: {seen}. If whoever "
        f"began it was killed: `headwater run {file}` {does} (one that is alive after two minutes), or {by_hand}"
    )


def _when(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
