"""``headwater run``: keep the sinks in sync until told to stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.cli.shared.options import is_terminal, master_option, sink_option

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline
    from operations.freshness.keeper import Keeper
    from operations.run.patience import Stop
    from operations.state.accepted import Text
    from operations.supervise.wanted import Wanted
    from spark.running import Running

# How often a plain line is printed when nobody watches a terminal.
LINE_SECONDS = 10.0
# A start takes some ten seconds; one that is silent for longer than this seems to hang.
LONG_SECONDS = 5.0


@click.command(
    epilog="""\b
Examples:
  headwater run pipeline.yaml
  headwater run pipeline.yaml --sink search
  headwater run pipeline.yaml --master spark://host:7077
  headwater run shop.yaml wiki.yaml                 (in one process, with one Spark)
  headwater run pipeline.yaml --serve 8470          (with the HTTP API of `headwater serve`)
  headwater run pipeline.yaml --until-caught-up     (fill, catch up, exit 0)
  headwater run pipeline.yaml --take-over           (with a state folder that was put back from an older copy)
"""
)
@click.argument("files", type=click.Path(path_type=Path), metavar="FILE…", nargs=-1, required=True)
@sink_option
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Stop once each flow has applied what was in the log when it was taken up.",
)
@click.option(
    "--timeout", type=float, default=None, metavar="SECONDS", help="With --until-caught-up: give up after this."
)
@click.option(
    "--serve",
    "port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="Also answer over HTTP, here only.",
)
@click.option(
    "--take-over", "taking_over", is_flag=True, help="Also sinks that another state folder's process has run since."
)
@master_option
def command(
    files: tuple[Path, ...],
    only: tuple[str, ...],
    until_caught_up: bool,
    timeout: float | None,
    port: int | None,
    taking_over: bool,
    master: str | None,
) -> None:
    """Keep the sinks of one or more pipelines in sync with their sources.

    Each sink has its own offsets: one that is down waits and catches up, the others go on. Stop with Ctrl-C or SIGTERM;
    kill it and start it again as you like: it goes on where it was. Every generation of a sink that was not retired is
    kept up to date, also one that `rebuild` finishes while this runs. A sink that can't be run (its view does not fit
    the tables any more, its target is gone) is `failed` in `status` with the reason and the command that mends it; the
    others go on. What is away when it begins is waited for. A sink that is paused (`headwater pause`) is left alone,
    and so is one that `run` with another state folder (on another machine, say) has written to since: `--take-over`
    goes on from where this folder is.

    A changed file is taken up when it was applied (`headwater apply`), not when it was saved: sinks come and go, and
    the next generation of a changed view is built, compared with Postgres and shown. What has not changed goes on.

    Several files share one Spark, which saves the memory of one for each and is meant for small pipelines on one
    machine: what `engine` says of it must be equal in all of them. A pipeline that ends with an error does not end the
    others.

    Exit code 0: told to stop, or caught up with --until-caught-up; 1: no flow is left that could do anything, or an
    error that concerns all of them, or with --until-caught-up a sink that could not be filled.
    """
    from console.log_lines import log_lines
    from operations.run.patience import Asked, Stop
    from operations.supervise.wanted import Wanted

    if len(files) > 1 and only:
        raise click.UsageError("--sink goes with one file")
    stop = Stop()
    stop.eager = len(files) == 1  # of several none may be broken off in the middle: only the main thread would be
    signal.signal(signal.SIGTERM, stop.ask)
    signal.signal(signal.SIGINT, stop.ask)
    wanted = Wanted(only, stop, master, until_caught_up, None if timeout is None else time.monotonic() + timeout)
    try:
        with log_lines(), _serving(files, port):
            for file in files if taking_over else ():
                _take_over(file, only)
            failed = _run(files[0], wanted) if len(files) == 1 else _run_all(files, wanted)
    except Asked:  # before anything ran: there is nothing to end
        _say("told to stop while it was starting: nothing had begun")
        failed = False
    sys.exit(1 if failed else 0)


@contextmanager
def _serving(files: Sequence[Path], port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from console.http.server import serving

    with serving(files, "127.0.0.1", port, _say):
        yield


def _run_all(files: Sequence[Path], wanted: Wanted) -> bool:
    from cdc.pipeline import load
    from operations.run.machines import with_master
    from operations.run.session import SharedSessions
    from operations.run.together import together

    pipelines = [with_master(load(file), wanted.master) for file in files]
    with SharedSessions(pipelines) as sessions:
        each = replace(wanted, sessions=sessions)
        return together({one.name: partial(_run, file, each) for one, file in zip(pipelines, files, strict=True)}, _say)


def _run(file: Path, wanted: Wanted) -> bool:
    # Spark's import takes a second; `headwater run --help` must not pay for it.
    from console.cli.shared.flow_bars import FlowBars
    from console.log_lines import speaks_json
    from operations.run.engine import open_engine
    from operations.run.patience import Waiting, patiently
    from operations.run.source_watch import SourceWatch
    from operations.schema.evolving import catch_up
    from operations.state.catalogue import source_catalogue
    from operations.state.pausing import refuse_paused
    from operations.status.caught_up import Goal
    from operations.supervise.loop import NOT_CAUGHT_UP, supervise
    from operations.supervise.parts import Parts
    from operations.supervise.wanted import first_look

    only, stop = wanted.only, wanted.stop
    pipeline, taken = _loaded(file, wanted)
    bars = wanted.alone and is_terminal() and not speaks_json()
    if wanted.until_caught_up:
        refuse_paused(pipeline, only, NOT_CAUGHT_UP)
    _say(f"pipeline {pipeline.name}: starting")
    with _judged(pipeline, only) as keeper, SourceWatch(pipeline, first_look(pipeline, wanted, _say)) as source:
        with Waiting(pipeline, only) as waiting, _saying_why(pipeline):
            begun = waiting.begun
            wait = partial(patiently, stop=stop, say=_say, tell=waiting.tell, until=wanted.until, begun=begun)
            wait(lambda: catch_up(pipeline, only, _say))
            engine = wait(lambda: open_engine(pipeline, source_catalogue(pipeline), only, wanted.sessions))
        keeper.follow(lambda: (engine.pipeline, engine.only))
        stop.eager = False
        with closing(Parts.opened(engine, source, file, taken, wanted)) as parts:
            for line in parts.warnings():
                _say(line)
            with (
                parts.beside(_say),
                Goal(pipeline, engine.runner.running) as goal,
                FlowBars(goal, terminal=bars, line_seconds=LINE_SECONDS) as shown,
            ):
                supervise(parts, shown, wanted, _say)
            _tell_stop(stop, f"pipeline {pipeline.name}: told to stop; what is under way is ended")
            # Paused, halted or waited for, no flow runs either: who is told to stop then has done what it was to do.
            failed, nothing_left = parts.failed, engine.runner.all_failed and not stop.is_set()
            missing = bool(failed or engine.refused.lines)
    _tell_stop(stop, f"pipeline {pipeline.name}: stopped; the next `headwater run` goes on where it was")
    _tell_failed(failed)
    # Told to stop, it has done what it was to do; what one sink lacks is for `status` and its alarm to say.
    return nothing_left or (wanted.until_caught_up and missing)


def _loaded(file: Path, wanted: Wanted) -> tuple[Pipeline, Text]:
    """The pipeline and its file's text, read once."""
    from cdc.pipeline import loads
    from cdc.pipeline.loading import read_pipeline
    from console.log_lines import belongs_to
    from operations.run.machines import with_master
    from operations.state.accepted import text_of

    data = read_pipeline(file)
    pipeline = with_master(loads(data, str(file)), wanted.master)
    if wanted.alone:
        belongs_to(pipeline.name)
    return pipeline, text_of(file, data)


def _tell_stop(stop: Stop, words: str) -> None:
    if stop.is_set():
        _say(words)


def _tell_failed(failed: Sequence[Running]) -> None:
    from cdc.journal import Line

    for run in failed:
        _say(Line(f"error: {run.flow.title} failed: {run.last_error or ''}", **run.flow.about))


def _take_over(file: Path, only: Sequence[str]) -> None:
    from cdc.pipeline import load
    from operations.generations.elsewhere import take_over

    take_over(load(file), only)


@contextmanager
def _saying_why(pipeline: Pipeline) -> Iterator[None]:
    """While it lasts, what a start waits for is told."""
    from cdc.journal import telling
    from console.cli.shared.patience import saying_why

    with saying_why(telling(_say, pipeline=pipeline.name), LONG_SECONDS):
        yield


@contextmanager
def _judged(pipeline: Pipeline, only: Sequence[str]) -> Iterator[Keeper]:
    """While it lasts, the age of everything is noted, and whoever is to be told is told."""
    from cdc.journal import telling
    from operations.freshness.keeper import Keeper
    from operations.status.alert import Alerting

    # It tells in a thread of its own, which does not know whose it is.
    with Keeper(pipeline, only) as keeper, Alerting(keeper, telling(_say, pipeline=pipeline.name)):
        yield keeper


def _say(line: str) -> None:
    from console.log_lines import say

    say(line)
