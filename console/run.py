"""``headwater run``: keep the sinks in sync until told to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from cdc.errors import StateError
from console.options import is_terminal, master_option, pipeline_argument, sink_option

# How often progress is looked at and status files are written.
STEP_SECONDS = 0.5
# How often a plain line is printed when nobody watches a terminal.
LINE_SECONDS = 10.0
FORGETFUL = (
    "an older Headwater has applied this pipeline: a table that is renamed or replaced is noticed, but not remembered;"
    " run `headwater apply FILE` once"
)


@click.command(
    epilog="""\b
Examples:
  headwater run pipeline.yaml
  headwater run pipeline.yaml --sink search
  headwater run pipeline.yaml --master spark://host:7077
  headwater run pipeline.yaml --until-caught-up     (fill, catch up, exit 0)
"""
)
@pipeline_argument
@sink_option
@click.option("--until-caught-up", is_flag=True, help="Stop once all that is in the log at the start has been applied.")
@click.option(
    "--timeout", type=float, default=None, metavar="SECONDS", help="With --until-caught-up: give up after this."
)
@master_option
def command(
    file: Path, only: tuple[str, ...], until_caught_up: bool, timeout: float | None, master: str | None
) -> None:
    """Keep the sinks of a pipeline in sync with its source.

    Each sink has its own offsets: one that is down waits and catches up, the others go on. Stop with Ctrl-C or SIGTERM;
    kill it and start it again as you like: it goes on where it was. Every generation of a sink that was not retired is
    kept up to date, also one that `rebuild` finishes while this runs. A sink that can't be run (its view does not fit
    the tables any more, its target is gone) is `failed` in `status` with the reason and the command that mends it; the
    others go on.

    Exit code 0: told to stop, or caught up with --until-caught-up; 1: no flow is left that could do anything, or an
    error that concerns all of them, or with --until-caught-up a sink that could not be filled.
    """
    stop = threading.Event()

    def asked(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)
    failed = _run(file, only, stop, master, until_caught_up=until_caught_up, timeout=timeout)
    sys.exit(1 if failed else 0)


def _run(
    file: Path,
    only: Sequence[str],
    stop: threading.Event,
    master: str | None,
    *,
    until_caught_up: bool,
    timeout: float | None,
) -> bool:
    # Spark's import takes a second; `headwater run --help` must not pay for it.
    from cdc.pipeline import load
    from console.catalogue import source_catalogue
    from console.engine import open_engine, warn_outdated
    from console.halting import Halting
    from console.machines import with_master
    from console.progress import Watch
    from console.sourcewatch import SourceWatch

    started = time.monotonic()
    pipeline = with_master(load(file), master)
    click.echo(f"pipeline {pipeline.name}: starting", err=True)
    with SourceWatch(pipeline) as source:
        engine = open_engine(pipeline, source_catalogue(pipeline), only)
        halting = Halting(engine)
        try:
            for line in [*warn_outdated(pipeline, engine.builds), *engine.refused.lines]:
                click.echo(f"warning: {line}", err=True)
            if source.forgetful:
                click.echo(f"warning: {FORGETFUL}", err=True)
            with Watch(pipeline, engine.runner.running, terminal=is_terminal(), line_seconds=LINE_SECONDS) as watch:
                while not stop.wait(STEP_SECONDS):
                    for line in [*engine.follow(), *halting.follow(source.changed)]:
                        click.echo(line, err=True)
                    watch.show(engine.runner.step())
                    if source.error is not None:
                        engine.stop(str(source.error))
                        raise source.error
                    if engine.runner.all_failed:
                        break
                    if until_caught_up and watch.caught_up():
                        click.echo("caught up", err=True)
                        break
                    if timeout is not None and time.monotonic() - started > timeout:
                        raise StateError(
                            f"not caught up after {timeout:.0f} s", fix="`headwater status FILE` says how far"
                        )
            errors = dict(engine.runner.errors)
            nothing_left, missing = engine.runner.all_failed, bool(errors or engine.refused.lines)
        finally:
            halting.close()
            engine.close()
    for flow, reason in errors.items():
        click.echo(f"error: {flow} failed: {reason}", err=True)
    # Told to stop, it has done what it was to do; what one sink lacks is for `status` and its alarm to say.
    return nothing_left or (until_caught_up and missing)
