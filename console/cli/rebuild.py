"""``headwater rebuild``: a new generation of a sink from offset 0, beside the living one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from console.cli.shared.options import (
    is_terminal,
    json_option,
    master_option,
    pipeline_argument,
    print_json,
    sink_argument,
)

ENDING = "asked to end: the batches that are under way are finished first, which takes seconds"


@click.command(
    epilog="""\b
Examples:
  headwater rebuild pipeline.yaml search
  headwater rebuild pipeline.yaml search --auto              (rebuild, verify, promote if equal)
  headwater rebuild pipeline.yaml search --throttle 0.3      (leave most of the machine to the living one)
"""
)
@pipeline_argument
@sink_argument
@click.option("--auto", is_flag=True, help="Verify the new generation and promote it if it equals Postgres.")
@click.option(
    "--throttle",
    type=click.FloatRange(0.01, 1.0),
    default=1.0,
    show_default=True,
    metavar="SHARE",
    help="Share of the time that fills of joined views may be at work.",
)
@master_option
@json_option
def command(file: Path, sink: str, auto: bool, throttle: float, master: str | None, as_json: bool) -> None:
    """Fill a new generation of SINK from the log, from offset 0, beside the living one, as the file says now.

    Readers see nothing of it until `promote`. The source database is not asked for its rows. Kill it when you like: the
    same command goes on where it was (with --auto: one that is filled is compared). When it ends, `headwater run` keeps
    the new generation up to date as well.

    Exit code 0: ready (with --auto: promoted); 2: with --auto, it differs from Postgres and was not promoted; 1: error.
    """
    from cdc.pipeline import load
    from console.cli.shared.flow_bars import FlowBars
    from operations.rebuild.chosen import Chosen
    from operations.rebuild.rebuild import Rebuild, Show
    from operations.run.machines import with_master
    from operations.run.patience import Stop
    from operations.status.caught_up import Goal

    stop = Stop()

    def asked(_signal: int, _frame: FrameType | None) -> None:
        if not stop.asked:  # not by way of a stream: the signal may have come while that was being written to
            os.write(2, f"\n{ENDING}\n".encode())
        stop.ask()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)
    pipeline = with_master(load(file), master)

    @contextmanager
    def shown(goal: Goal) -> Iterator[Show]:
        with FlowBars(goal, terminal=is_terminal()) as bars:
            yield bars.show

    say = partial(click.echo, err=True)
    report = Rebuild(Chosen(pipeline, file, sink, say), throttle, stop, shown).run(auto=auto)
    if as_json:
        print_json(report)
    else:
        _print(report, file)
    sys.exit(2 if report["equal"] is False else 0)


def _print(report: dict[str, Any], file: Path) -> None:
    sink, number = report["sink"], report["generation"]
    # One that was only compared, and that killed attempts have filled: nobody has noted how long they took together.
    took = f" · {report['records']:,} records in {report['seconds']:.0f} s" if report["seconds"] else ""
    click.echo(f"sink {sink}: generation {number} is {report['stage']}{took}")
    if report["late"]:
        click.echo(
            "it was behind for as long as it was compared, so that nobody knows whether it is right: "
            f"`headwater verify {file} --sink {sink} --generation {number} --wait 300`, then "
            f"`headwater promote {file} {sink}`"
        )
    elif report["equal"] is False:
        click.echo(f"it differs from Postgres: `headwater verify {file} --sink {sink} --generation {number} --repair`")
    elif report["stage"] == "ready":
        click.echo(f"`headwater verify {file} --sink {sink} --generation {number}` proves it right")
        click.echo(f"`headwater promote {file} {sink}` shows it to readers")
