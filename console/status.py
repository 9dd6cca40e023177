"""``headwater status``: where every sink stands."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psutil
from rich.console import Console
from rich.table import Table

from cdc.errors import KafkaError
from cdc.pipeline import Pipeline, load
from console.alive import ailments
from console.lossnote import LossNote
from console.options import json_option, pipeline_argument, print_json, sink_option
from console.sourcestate import SourceState, line, warning

if TYPE_CHECKING:
    from spark.lease import Holder
    from spark.state import Generation
    from spark.status import FlowStatus

# A runner writes its status about twice a second; older than this, it is not alive or hangs.
STALE_SECONDS = 15.0
# States of flows, the worst first: a sink is as its worst flow.
STATES = ("rebuilding", "failed", "retrying", "dead", "stopped", "starting", "filling", "running", "finished")
# In these a process is at work.
_ALIVE = ("starting", "filling", "running", "retrying")


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


def status_report(pipeline: Pipeline, only: Sequence[str] = ()) -> dict[str, Any]:
    """The status as plain data; the shape of ``--json``."""
    from console.places import chosen_sinks
    from spark.lag import LogEnds

    source = SourceState(pipeline)
    log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
    try:
        sinks = [_sink(pipeline, name, log) for name in chosen_sinks(pipeline, only)]
    finally:
        log.close()
    return {"pipeline": pipeline.name, "at": time.time(), "source": source.report(), "sinks": sinks}


def _sink(pipeline: Pipeline, name: str, log: Any) -> dict[str, Any]:
    """A sink is as its living generation; the others are listed below it."""
    from console.places import registry

    register = registry(pipeline, name)
    entries = register.entries()
    reports = [generation_status(register.generation(entry.number), log) for entry in entries]
    living = next(report for report, entry in zip(reports, entries, strict=True) if entry.stage == "living")
    lost = LossNote(register.folder).read()
    if lost is not None:
        living |= {"state": "rebuilding"}
        living["last_error"] = lost["error"] or living["last_error"]
    return {
        "sink": name,
        "type": pipeline.sinks[name].type,
        **living,
        "rebuilding": lost,
        "generations": [
            {"generation": entry.number, "stage": entry.stage, **_without_flows(report)}
            for report, entry in zip(reports, entries, strict=True)
        ],
    }


def _without_flows(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "flows"}


def generation_status(generation: Generation, log: Any) -> dict[str, Any]:
    """State, lag and flows of one generation."""
    flows = [_flow(generation, flow, log) for flow in generation.flows()]
    # Before a new generation's first flow there is only the process that has taken it.
    states = {flow["state"] for flow in flows} or {state_of(None, generation.lease.holder())}
    worst = next((state for state in STATES if state in states), "never run")
    lags = [flow["lag_events"] for flow in flows]
    ages = [flow["lag_seconds"] for flow in flows]
    refused = generation.refused()  # no process runs it, whatever its flows said last
    return {
        "generation": generation.number,
        "state": "failed" if refused else worst,
        "lag_events": None if not lags or None in lags else sum(lags),
        "lag_seconds": None if not ages or None in ages else max(ages),
        "last_error": refused or next((flow["last_error"] for flow in flows if flow["last_error"]), None),
        "warning": next((flow["warning"] for flow in flows if flow["warning"]), None),
        "flows": flows,
    }


def _flow(generation: Generation, name: str, log: Any) -> dict[str, Any]:
    from spark.state import committed_offsets
    from spark.status import FlowStatus

    folder, holder = generation.flow_folder(name), generation.lease.holder()
    status = FlowStatus.read(folder)
    state = state_of(status, holder)
    # What an earlier process said last is no news of the one that starts, or works, now.
    told = status if status is not None and not _taken_over(status, holder) else None
    batch, offsets = committed_offsets(folder / "checkpoint")
    lag_events, lag_seconds = _lag(log, sorted(offsets) or (status.topics if status else []), offsets)
    return {
        "flow": name,
        "state": state,
        "pid": holder.pid if holder is not None and told is None and state == "starting" else status and status.pid,
        "batch_id": batch,
        "offsets": {topic: {str(part): at for part, at in parts.items()} for topic, parts in offsets.items()},
        "lag_events": lag_events,
        "lag_seconds": lag_seconds,
        **{
            name: getattr(told, name) if told else 0 for name in ("written", "deleted", "stale", "rejected", "deferred")
        },
        **{name: getattr(told, name) if told else None for name in ("batch_ms", "source_ts_ms", "position")},
        "last_error": told.last_error if told else None,
        "warning": told.warning if told else None,
        "unread_since": (status.unread_since or None) if status else None,
        "restarts": status.restarts if status else 0,
        "restarted": list(status.restarted) if status else [],
    }


def state_of(status: FlowStatus | None, holder: Holder | None = None) -> str:
    """A flow's state: what its process wrote last, unless that process is gone, or another one has its generation.

    Args:
        status: what is in the flow's folder; None if nothing.
        holder: who holds the generation's lease; None if nobody ever did.
    """
    if _taken_over(status, holder):
        return "starting"
    if status is None:
        return "never run"
    if status.state in _ALIVE and (not psutil.pid_exists(status.pid) or time.time() - status.at > STALE_SECONDS):
        return "dead"
    return str(status.state)


def _taken_over(status: FlowStatus | None, holder: Holder | None) -> bool:
    """Whether a living process holds the generation that has not said anything of this flow yet."""
    from spark.lease import EXPIRES_SECONDS

    if holder is None or holder.pid == 0 or time.time() - holder.renewed > EXPIRES_SECONDS:
        return False
    return psutil.pid_exists(holder.pid) and (status is None or status.pid != holder.pid)


def _lag(log: Any, topics: Sequence[str], offsets: Mapping[str, Mapping[int, int]]) -> tuple[int | None, float | None]:
    if not topics:
        return None, None
    try:
        lag = log.lag(log.ends(topics), offsets)
    except KafkaError:
        return None, None
    return lag.events, round(lag.seconds, 3)


def lag_cells(report: Mapping[str, Any]) -> tuple[str, str]:
    """Lag and age of a sink or a generation as a table shows them."""
    events, seconds = report["lag_events"], report["lag_seconds"]
    return "?" if events is None else f"{events:,}", "?" if seconds is None else f"{seconds:.1f} s"


def rebuilding_words(lost: Mapping[str, Any]) -> str:
    """What a reader of the table wants to know of a sink that was lost: since when it is made again, and how far."""
    how_far = lost["progress"].split("\n")[0] if lost["progress"] else (lost["error"] or "").split("\n")[0]
    return f"lost {lost['seconds']:.0f} s ago, attempt {lost['attempt']}: {how_far}"


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
            (sink["last_error"] or "").split("\n")[0]
            if not sink["rebuilding"]
            else rebuilding_words(sink["rebuilding"]),
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
    click.echo(line(report["source"]))
