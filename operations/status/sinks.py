"""Where every sink stands: states, lag and errors of its generations, as data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cdc.errors import KafkaError
from cdc.log.ends import LogEnds
from cdc.pipeline import Pipeline
from operations.freshness.note import oldest
from operations.push.health import push_report
from operations.standing.note import standing_report
from operations.state.accepted import file_status
from operations.state.folder import chosen_sinks, register_of
from operations.state.history import STREAM
from operations.state.losses import LossNote
from operations.state.pausing import Pause, pause_of, resume_before
from operations.status.evolving import evolving
from operations.status.facts import FlowReport, Report, SinkReport, judged
from operations.status.history import HistoryFolder, history_of, history_status
from operations.status.judgement import Judgement
from operations.status.source import SourceState
from spark.disk.status import FlowStatus, state_of, taken_over

if TYPE_CHECKING:
    from spark.disk.state import Generation

# States of flows, the worst first: a sink is as its worst flow.
STATES = ("paused", "rebuilding", "failed", "retrying", "dead", "stopped", "starting", "filling", "running", "finished")


def status_report(pipeline: Pipeline, only: Sequence[str] = ()) -> dict[str, Any]:
    """The status as plain data; the shape of ``--json``."""
    asked = SourceState(pipeline)
    log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
    try:
        keep_ends(pipeline, chosen_sinks(pipeline, only), log)
        sinks = [_sink(pipeline, name, log) for name in chosen_sinks(pipeline, only)]
    finally:
        log.close()
    source = asked.report()
    report = judged(pipeline, only, live=source)
    if log.silence:  # beside what Postgres and Kafka Connect say: whoever starts the one that is named starts all
        source["error"] = "; ".join(reason for reason in (source["error"], log.silence) if reason)
    return {
        "pipeline": pipeline.name,
        "at": time.time(),
        "file": file_status(pipeline),
        "source": {**source, **source_judged(report)},
        "evolving": evolving(pipeline),
        "push": push_report(pipeline),
        "standing": standing_report(pipeline),
        "sinks": [with_judgement(sink, report.sinks[sink["sink"]]) for sink in sinks],
    }


def keep_ends(pipeline: Pipeline, sinks: Iterable[str], log: Any) -> None:
    """Ask for the ends of what all flows of some sinks read, in one go: flow by flow it is hundreds of questions."""
    topics: set[str] = set()
    for name in sinks:
        register = register_of(pipeline, name)
        generations = [register.generation(entry.number) for entry in register.entries()]
        folders = [one.flow_folder(flow) for one in generations for flow in one.flows()]
        if (history := history_of(pipeline, name)) is not None:
            folders.append(history.flow_folder(STREAM))
        for folder in folders:
            status = FlowStatus.read(folder)
            topics.update(status.topics if status else ())
    log.keep(topics)


def source_judged(report: Report) -> dict[str, Any]:
    """What is judged of the source, as a part of its status."""
    as_of = report.note.as_of if report.note else None
    return {**asdict(report.source), "as_of": as_of, "age_seconds": _age(report.at, as_of)}


def with_judgement(sink: Mapping[str, Any], report: SinkReport) -> dict[str, Any]:
    """A sink's status with how it is, and how old what its readers see is; of its flows and generations too."""
    generations = [
        {**one, "as_of": moment, "age_seconds": _age(time.time(), moment)}
        for one in sink["generations"]
        for moment in [_oldest(report, one["generation"])]
    ]
    return {
        **sink,
        **asdict(report.judged),
        **_aged(report.as_of, report.age),
        "flows": [_flow_judged(flow, report.flows.get(flow["flow"])) for flow in sink["flows"]],
        "generations": generations,
    }


def _flow_judged(flow: Mapping[str, Any], report: FlowReport | None) -> dict[str, Any]:
    """One that has finished, and keeps its table no more, is well."""
    if report is None:
        return {**flow, **asdict(Judgement("well")), **_aged(None, None)}
    return {**flow, **asdict(report.judged), **_aged(report.as_of, report.age)}


def _oldest(report: SinkReport, generation: int) -> float | None:
    if generation == report.generation:
        return report.as_of
    return oldest(flow.as_of for flow in report.others.get(generation, {}).values())


def _aged(as_of: float | None, age: float | None) -> dict[str, Any]:
    return {"as_of": as_of, "age_seconds": None if age is None else round(age, 3)}


def _age(now: float, as_of: float | None) -> float | None:
    return None if as_of is None else round(max(now - as_of, 0.0), 3)


def _sink(pipeline: Pipeline, name: str, log: Any) -> dict[str, Any]:
    """A sink is as its living generation; the others are listed below it."""
    register = register_of(pipeline, name)
    entries = register.entries()
    reports = [generation_status(register.generation(entry.number), log) for entry in entries]
    living = next(report for report, entry in zip(reports, entries, strict=True) if entry.stage == "living")
    lost = LossNote(register.folder).read()
    if lost is not None:
        living |= {"state": "rebuilding"}
        living["last_error"] = lost["error"] or living["last_error"]
    left_alone = pause_of(pipeline, name)
    if left_alone is not None:
        living |= {"state": "paused", "last_error": None, "warning": _late(pipeline, name, left_alone)}
    history = history_of(pipeline, name)
    return {
        "sink": name,
        "type": pipeline.sinks[name].type,
        **living,
        "history": None if history is None else history_status(pipeline, _flow(history, STREAM, log), history.folder),
        "rebuilding": lost,
        "paused": None
        if left_alone is None
        else {**asdict(left_alone), "resume_before": resume_before(pipeline, left_alone)},
        "generations": [
            {"generation": entry.number, "stage": entry.stage, **_without_flows(report)}
            for report, entry in zip(reports, entries, strict=True)
        ],
    }


def _late(pipeline: Pipeline, name: str, pause: Pause) -> str | None:
    """From half of the log's memory on, as of flows that do not catch up."""
    if not pause.since:
        return f"sink {name} is paused {pause.words}: the log may have forgotten deletes that it needs"
    until = resume_before(pipeline, pause)
    if time.time() < (pause.since + until) / 2:
        return None
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
    return f"sink {name} is paused {pause.words}: after {at} the log may have forgotten deletes that it needs"


def _without_flows(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "flows"}


def generation_status(generation: Generation, log: Any) -> dict[str, Any]:
    """State, lag and flows of one generation."""
    from spark.warehouse.upkeep.upkeep import read_note

    flows = [_flow(generation, flow, log) for flow in generation.flows()]
    # Before a new generation's first flow there is only the process that has taken it.
    states = {flow["state"] for flow in flows} or {state_of(None, generation.lease.holder())}
    worst = next((state for state in STATES if state in states), "never run")
    at_work = [flow for flow in flows if flow["state"] != "finished"]  # a table that was let go falls behind no more
    lags = [flow["lag_events"] for flow in at_work]
    ways = [_way(flow) for flow in at_work]
    ages = [flow["lag_seconds"] for flow in at_work]
    refused = generation.refused()  # no process runs it, whatever its flows said last
    return {
        "generation": generation.number,
        "state": "failed" if refused else worst,
        "lag_events": None if not lags or None in lags else sum(lags),
        "lag_seconds": None if not ages or None in ages else max(ages),
        "last_error": refused or next((flow["last_error"] for flow in flows if flow["last_error"]), None),
        "warning": next((flow["warning"] for flow in flows if flow["warning"]), None),
        "progress": _together(ways),
        "flows": flows,
        "upkeep": read_note(generation.folder),
    }


def _way(flow: Mapping[str, Any]) -> dict[str, int] | None:
    """How far a flow is in its own topics; before its fill has ended, in that."""
    if flow["fill"] is not None or flow["lag_events"] is None:
        filled: dict[str, int] | None = flow["fill"]
        return filled
    done = read_offsets(flow)
    return {"done": done, "total": done + flow["lag_events"]}


def _together(ways: Sequence[Mapping[str, int] | None]) -> dict[str, int] | None:
    """How far all of them are; None if that is not known of each."""
    known = [way for way in ways if way is not None]
    if not known or len(known) < len(ways):
        return None
    return {name: sum(way[name] for way in known) for name in ("done", "total")}


def read_offsets(flow: Mapping[str, Any]) -> int:
    """Offsets up to which a flow has read, over all partitions."""
    return sum(at for parts in flow["offsets"].values() for at in parts.values())


def _flow(generation: Generation | HistoryFolder, name: str, log: Any) -> dict[str, Any]:
    from spark.disk.checkpoint import committed_offsets
    from spark.disk.filling import fill_progress, passes_before

    folder, holder = generation.flow_folder(name), generation.lease.holder()
    status = FlowStatus.read(folder)
    state = state_of(status, holder)
    # What an earlier process said last is no news of the one that starts, or works, now.
    told = status if status is not None and not taken_over(status, holder) else None
    batch, offsets = committed_offsets(folder / "checkpoint")
    filled = fill_progress(folder)
    lag_events, lag_seconds, lag_error = _lag(log, sorted(offsets) or (status.topics if status else []), offsets)
    return {
        "flow": name,
        "state": state,
        "pid": holder.pid if holder is not None and told is None and state == "starting" else status and status.pid,
        "batch_id": batch + passes_before(folder),
        "offsets": {topic: {str(part): at for part, at in parts.items()} for topic, parts in offsets.items()},
        "lag_events": lag_events,
        "lag_seconds": lag_seconds,
        "lag_error": lag_error,
        "fill": None if filled is None else {"done": filled[0], "total": filled[1]},
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


def _lag(
    log: Any, topics: Sequence[str], offsets: Mapping[str, Mapping[int, int]]
) -> tuple[int | None, float | None, str | None]:
    """Records, seconds, and why Kafka does not tell: it is away, or a topic is not there or may not be read."""
    if not topics:
        return None, None, None
    try:
        lag = log.lag(log.ends(topics), offsets)
    except KafkaError as error:
        return None, None, error.what
    return lag.events, None if lag.seconds is None else round(lag.seconds, 3), None
