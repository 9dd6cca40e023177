"""``headwater status``: where every sink stands."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc.ages import at_least
from cdc.pipeline import Pipeline, load
from cdc.wording import TO_DO, split
from console.cli.shared.options import json_option, pipeline_argument, print_json, sink_option
from console.cli.shared.patience import saying_why
from console.cli.shared.tables import plain_table, show, width
from console.commands import with_file
from operations.state.pausing import Pause
from operations.status.alive import ailments
from operations.status.evolving import line as evolving_line
from operations.status.sinks import status_report
from operations.status.source import line, warning

# Characters of a line that holds all columns of the table, with counts of millions.
WIDE = 96
# Between two looks of --watch.
WATCH_SECONDS = 2.0
_STYLES = {
    "well": "green",
    "failed": "red",
    "stopped": "red",
    "stalled": "red",
    "retrying": "yellow",
    "behind": "yellow",
}


@click.command(
    epilog="""\b
Examples:
  headwater status pipeline.yaml
  headwater status pipeline.yaml --watch
  headwater status pipeline.yaml --sink search --json | jq .sinks[0].judgement
  headwater status pipeline.yaml --alive       (a container's health check)
"""
)
@pipeline_argument
@sink_option
@json_option
@click.option(
    "--alive", is_flag=True, help="Only: is a process at work on every sink? Asks no server; exit code 1 if not."
)
@click.option("--watch", is_flag=True, help="Look again every 2 s until Ctrl-C; with --json a document a line.")
def command(file: Path, only: tuple[str, ...], as_json: bool, alive: bool, watch: bool) -> None:
    """Show how each sink is, how old what its readers see is, and why; whether or not it is running now.

    The judgement is one of well, behind, filling, evolving, incomplete, paused, unapplied, starting, retrying, stalled,
    failed and stopped (docs/operations.md). The age is measured from the commits in Postgres: it grows when the
    connector is dead, though no record waits for anybody. "lag" counts the offsets behind Kafka, of which compaction
    may have removed some, and "behind" is the age of the oldest record that is not applied yet. The line "source" tells
    how the way into Kafka is: the connector's state, and the WAL that its slot keeps.
    """
    pipeline = load(file)
    if alive:
        found = ailments(pipeline, only)
        click.echo("\n".join(found) or "alive")
        sys.exit(1 if found else 0)
    if watch:
        _watch(pipeline, file, only, as_json=as_json)
        return
    with saying_why():
        report = status_report(pipeline, only)
    exceeded = warning(pipeline, report["source"])
    if exceeded:
        click.echo(exceeded, err=True)
    if as_json:
        print_json(report)
    else:
        show(_table(report))
        click.echo(with_file("\n".join(_below(report)), file))


def _watch(pipeline: Pipeline, file: Path, only: tuple[str, ...], *, as_json: bool) -> None:
    """Until Ctrl-C; what can't be had at one look is had at the next."""
    console = Console()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        if as_json:
            while True:
                click.echo(orjson.dumps(status_report(pipeline, only), option=orjson.OPT_SORT_KEYS, default=str))
                sys.stdout.flush()
                time.sleep(WATCH_SECONDS)
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                report = status_report(pipeline, only)
                below = (Text(with_file(one, file)) for one in _below(report))
                live.update(Group(_table(report), *below), refresh=True)
                time.sleep(WATCH_SECONDS)


def lag_cells(report: Mapping[str, Any]) -> tuple[str, str]:
    """Lag and age of a sink or a generation as a table shows them."""
    events, seconds = report["lag_events"], report["lag_seconds"]
    return "?" if events is None else f"{events:,}", "?" if seconds is None else f"{seconds:.1f} s"


def rebuilding_words(lost: Mapping[str, Any]) -> str:
    """What a reader of the table wants to know of a sink that was lost: since when it is made again, why that has
    failed last, and how far it is."""
    told = [(lost[name] or "").split("\n")[0] for name in ("error", "progress")]
    how = "; now ".join(one for one in told if one) or "it begins"
    return f"lost {lost['seconds']:.0f} s ago, attempt {lost['attempt']}: {how}"


def _news(sink: Mapping[str, Any]) -> str:
    """Why it stands still, or its last error."""
    if sink["paused"]:
        return Pause(*(sink["paused"][name] for name in ("since", "by", "why"))).words
    if sink["rebuilding"]:
        return rebuilding_words(sink["rebuilding"])
    return (sink["last_error"] or "").split("\n")[0]


def _judgement(sink: Mapping[str, Any]) -> Text:
    return Text(sink["judgement"], style=_STYLES.get(sink["judgement"], ""))


def _age(one: Mapping[str, Any]) -> str:
    return "?" if one["age_seconds"] is None else f"{one['age_seconds']:,.1f} s"


def _table(report: dict[str, Any]) -> Table:
    # Where all have no room, those that tell least of how a sink is are left to --json.
    counted = ("written", "deleted", "rejected") if width() >= WIDE else ("rejected",)
    table = plain_table("sink", "is", "age", "state", "lag", "behind", *counted)
    table.title, table.title_justify, table.padding = f"pipeline {report['pipeline']}", "left", (0, 1, 0, 0)
    for column in table.columns[1:]:
        column.no_wrap = True  # names are broken sooner than figures
    table.columns[0].min_width = 12
    for sink in report["sinks"]:
        flows = sink["flows"]
        table.add_row(
            sink["sink"],
            _judgement(sink),
            _age(sink),
            sink["state"],
            *lag_cells(sink),
            *(f"{sum(flow[name] for flow in flows):,}" for name in counted),
        )
        for other in sink["generations"] if len(sink["generations"]) > 1 else ():
            table.add_row(
                f"  {other['generation']}: {other['stage']}",
                "",
                _age(other),
                other["state"],
                *lag_cells(other),
                *("" for _ in counted),
            )
    return table


def _history(sink: str, history: Mapping[str, Any]) -> Iterator[str]:
    """A sink's history in words: how it is, and what the log promises it."""
    lag, seconds = lag_cells(history)
    kept = history["kept_seconds"] / 3600
    # Its own words alone say what to do: it may stand still while the sink is well.
    what, fix = split(history["last_error"])
    error = (f": {what}" if what else "") + (f"; {TO_DO.strip()} {fix}" if fix else "")
    yield f"{sink}, history: {history['state']}, lag {lag}, behind {seconds}; the log keeps {kept:g} h{error}"
    if history["warning"]:
        yield f"warning: {history['warning']}"


def push_line(hook: Mapping[str, Any]) -> str:
    """A webhook, a topic, or what keeps the queries of a view, in words."""
    name = f"queries of {hook['name'].partition('.')[2]}" if hook["to"] == "search" else f"{hook['to']} {hook['name']}"
    lag = "?" if hook["lag_entries"] is None else f"{hook['lag_entries']:,}"
    last = hook["delivered_at"]
    taken = "nothing taken yet" if last is None else f"last taken {at_least(last, time.time()):,.0f} s ago"
    since = hook["failing_since"]
    why = f"; for {at_least(since, time.time()):,.0f} s: {hook['why'] or 'it was failing'}" if since else ""
    letters = f", {hook['letters']:,} refused" if hook["letters"] else ""
    return f"{name} ({hook['view']}): {hook['state']}, {lag} behind, {taken}{letters}{why}"


def _unjudged(matchers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of which views' standing queries nobody is told anything, and why."""
    for one in matchers:
        if one["working"] is False:
            since = "yet" if one["at"] is None else f"for {at_least(one['at'], time.time()):,.0f} s"
            why = one["error"] or f"no `headwater run` has done it {since}"
            yield f"standing queries of {one['view']} are not judged: {why}"


def _below(report: dict[str, Any]) -> Iterator[str]:
    """What stands below the table, a text a line."""
    for sink in report["sinks"]:
        news = _news(sink)
        if news and news not in (sink["cause"] or ""):  # one that stands still for its error has it as its cause
            yield f"{sink['sink']}: {news}"
        for other in sink["generations"] if len(sink["generations"]) > 1 else ():
            if other["last_error"] and other["last_error"] != sink["last_error"]:
                yield f"{sink['sink']}, generation {other['generation']}: {other['last_error'].splitlines()[0]}"
        if sink["cause"]:
            todo = f"; what to do: {sink['remedy']}" if sink["remedy"] else ""
            yield f"{sink['sink']} is {sink['judgement']}: {sink['cause']}{todo}"
        deferred = sum(flow["deferred"] for flow in sink["flows"])
        if deferred:
            yield f"{sink['sink']}: {deferred:,} documents that one change has touched are still to be written"
        if sink["warning"]:
            yield f"warning: {sink['warning']}"
        if sink.get("history"):
            yield from _history(sink["sink"], sink["history"])
    yield from map(push_line, report["push"])
    yield from _unjudged(report["standing"])
    yield from (evolving_line(one) for one in report["evolving"])
    refused = report["file"]["refused"]
    if refused:
        yield f"warning: run goes on with an older file; the one that was applied: {refused['reason']}"
    for name in report["file"]["building"]:
        yield f"{name}: run builds its next generation from the file that was applied"
    yield line(report["source"])
    source = report["source"]
    if source["cause"] and source["cause"] != source["error"]:
        yield f"  {source['judgement']}: {source['cause']}"
