"""``headwater verify``: are the sinks right? Row by row, against Postgres itself."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.shared.cut import shorter
from console.cli.shared.options import json_option, master_option, pipeline_argument, print_json, sink_option

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline

KINDS = ("missing", "extra", "changed", "moving", "unseen", "doubted")


@click.command(
    epilog="""\b
Examples:
  headwater verify pipeline.yaml
  headwater verify pipeline.yaml --sink cache --json
  headwater verify pipeline.yaml --view order         (this view, in each sink that has it)
  headwater verify pipeline.yaml --wait 60            (let sinks that are behind catch up first)
  headwater verify pipeline.yaml --repair             (write the documents that differ, and only those)
  headwater verify pipeline.yaml --values             (what differs, and not only in which columns)
  headwater verify pipeline.yaml --sample 1000 --every 300
"""
)
@pipeline_argument
@sink_option
@click.option("--view", "views", multiple=True, metavar="NAME", help="Only this view (may be repeated).")
@json_option
@click.option(
    "--wait",
    default=10.0,
    metavar="SECONDS",
    show_default=True,
    help="If rows differ, how long a sink may stand still.",
)
@click.option("--repair", is_flag=True, help="Write what differs anew, and look at it again.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="Compare only N random rows and N random documents of each view.",
)
@click.option("--seed", type=int, default=None, metavar="NUMBER", help="Of the sample: the same one again.")
@click.option(
    "--every", type=click.FloatRange(min=1), default=None, metavar="SECONDS", help="Go on verifying until stopped."
)
@click.option(
    "--generation", type=click.IntRange(1), default=None, metavar="N", help="Not the one that readers see, but this."
)
@click.option("--values", is_flag=True, help="Also tell what the columns that differ hold: values of your rows.")
@master_option
def command(
    file: Path,
    only: tuple[str, ...],
    views: tuple[str, ...],
    as_json: bool,
    wait: float,
    repair: bool,
    sample: int | None,
    seed: int | None,
    every: float | None,
    generation: int | None,
    values: bool,
    master: str | None,
) -> None:
    """Compare every row that a sink holds with what Postgres says it should hold.

    The truth is read from the tables by plain SQL, not from the log; of views made of events (folds, windows, matches)
    it is computed once more from all events of the log. A row that differs is looked at again when the sink has applied
    all that was committed before; only what still differs then counts. A sink that gets nearer is
    waited for, one that stands still for --wait seconds is not.
    Exit code 2 when anything differs; with --repair, when anything differs in the end. A sink that can't be compared (a
    view that does not fit its table any more, a server that does not answer) does not keep the others from it; exit
    code 1 if nothing differs but there is one. A sink that is paused is left out unless --sink names it. Views of
    tables that were taken out of the file stand still: they are named, and not compared; exit code 1 if there are no
    others. What --view leaves out is not compared, nor repaired, and the result is not kept as that of a sink.

    With --every it verifies again and again until SIGTERM, prints a line each time and keeps the result in the file
    <state_dir>/<pipeline>/verify.prom for a Prometheus node exporter.
    """
    from cdc.pipeline import load
    from operations.run.machines import alone
    from operations.verify.verifier import Asked

    if every is not None and views:
        raise click.UsageError("--every is of all views of a sink: its metrics do not tell a part from the whole")
    asked = Asked(only, wait, repair, sample, int(time.time()) if seed is None else seed, generation, values, views)
    pipeline = alone(load(file), master)
    if every is not None:
        from operations.run.patience import Stop
        from operations.verify.audit import audit

        stop = Stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop.ask)
        audit(pipeline, asked, every, stop, partial(click.echo, err=True))
        return
    from operations.verify.report import verified

    report = verified(pipeline, asked, progress=lambda line: click.echo(line, err=True))
    if as_json:
        print_json(report)
    else:
        _print(report, pipeline, wait)
    differ = any(view["differences"] for sink in report["sinks"] for view in sink["views"])
    sys.exit(0 if report["equal"] else 2 if differ else 1)


def _print(report: Mapping[str, Any], pipeline: Pipeline, wait: float) -> None:
    for sink in report["sinks"]:
        if sink["error"]:
            click.echo(f"{sink['sink']:<12} could not be verified: {sink['error']}")
        for view in sink["views"]:
            click.echo(
                f"{sink['sink']:<12} {view['view']:<16} {view['expected']:>10,} rows  {_verdict(view)}"
                f"  {view['seconds']:.1f} s"
            )
            for kind in KINDS:
                if view[kind]:
                    click.echo(f"    {kind}: {', '.join(map(shorter, view[kind]))}")
            for key, told in view["columns"].items():
                click.echo(f"    {shorter(key)}: {', '.join(map(_told, told)) or 'right by now'}")
            if view["lossy"]:
                named = ", ".join(f"{one['column']} is {one['type']}" for one in view["lossy"])
                click.echo(f"    {named}: docs/types.md says what Debezium does not deliver of such a type")
            for one in view["not_repaired"]:
                click.echo(f"    not repaired: {shorter(one['key'])}: {shorter(one['why'], 500)}")
            if view["caught_up"] is False:
                click.echo(f"    {_behind(pipeline, sink, wait)}")
    if report["sample"]:
        click.echo(f"a sample of {report['sample']['rows']:,} a view, --seed {report['sample']['seed']}")
    if report["views"]:
        click.echo(f"no other view was compared than {', '.join(report['views'])}")
    click.echo(_verdict_of_all(report))


def _verdict_of_all(report: Mapping[str, Any]) -> str:
    from operations.verify.report import standing_still

    failed = ", ".join(sink["sink"] for sink in report["sinks"] if sink["error"])
    paused = ", ".join(sink["sink"] for sink in report["sinks"] if sink["paused"] and not sink["views"])
    still, compared = standing_still(report), any(sink["views"] for sink in report["sinks"])
    left_out = (f"; paused: {paused}" if paused else "") + (f"; standing still: {still}" if still else "")
    untold = ("undecided", "invisible", "doubtful")
    open_ones = sum(view[name] for sink in report["sinks"] for view in sink["views"] for name in untold)
    whole = "the others equal Postgres" if left_out or failed else "all sinks equal Postgres"
    right = "what was compared equals Postgres" if report["views"] else whole
    but = f", but for {open_ones:,} keys that could not be told" if open_ones else ""
    if report["equal"]:
        return right + but + left_out
    if any(view["differences"] for sink in report["sinks"] for view in sink["views"]):
        return "sinks differ from Postgres"
    unverified = f"; not verified: {failed}" if failed else ""
    return (right if compared else "nothing was compared") + unverified + left_out


def _behind(pipeline: Pipeline, sink: Mapping[str, Any], wait: float) -> str:
    """Why a sink was not seen to catch up, as far as its flows tell: what differs may only be late."""
    from operations.state.folder import register_of

    if sink["paused"]:
        return f"the sink is paused: what differs may only be late; `headwater resume FILE {sink['sink']}`"
    generation = register_of(pipeline, sink["sink"]).generation(sink["generation"])
    states = generation.states()
    idle = sorted(flow for flow, state in states.items() if state not in ("running", "filling", "starting"))
    if states and not idle:
        return (
            f"the sink did not get nearer for {wait:g} s, though `headwater run` is at work on it: what differs may "
            "only be late; say --wait with more seconds"
        )
    names = ", ".join(f"{flow} is {states[flow]}" for flow in idle) or "it has never run"
    return f"the sink was not seen to catch up: {names}; `headwater status FILE` says why"


def _told(column: Any) -> str:
    """A column that differs, as text."""
    if isinstance(column, str):
        return column
    sides = [
        f"{words} {json.dumps(column[side], ensure_ascii=False)}"
        for side, words in (("sink", "is"), ("expected", "should be"))
        if side in column
    ]
    return f"{column['field']} {', '.join(sides)}".strip()


def _verdict(view: Mapping[str, Any]) -> str:
    words = ["equal" if view["equal"] else f"{view['differences']:,} differ"]
    if view["undecided"]:
        words.append(f"{view['undecided']:,} never stood still")
    if view["invisible"]:
        words.append(f"{view['invisible']:,} not visible in Postgres yet")
    if view["doubtful"]:
        words.append(f"{view['doubtful']:,} may be right: expired, or of events that may have been given up")
    if view["within"]:
        words.append(f"{view['within']:,} values within their bounds")
    if view["repaired"]:
        words.append(f"{view['repaired']:,} repaired")
    return ", ".join(words)
