"""What the judgement goes by, from the state folder alone: it takes milliseconds, and no server is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.ages import ago
from cdc.errors import HeadwaterError
from cdc.pipeline import IcebergSink, Pipeline
from operations.freshness.note import (
    STALE_SECONDS,
    FlowNote,
    SinkNote,
    SourceNote,
    oldest,
    read_sink_note,
    read_source_note,
)
from operations.state.accepted import only_saved
from operations.state.folder import chosen_sinks, register_of
from operations.state.history import HISTORY, STREAM
from operations.state.letters import letter_counts
from operations.state.losses import LossNote
from operations.state.pausing import is_left, pause_of, resumed_lately
from operations.status.evolving import evolving, line
from operations.status.history import history_of, judge_history
from operations.status.judgement import (
    JUDGEMENTS,
    FlowFacts,
    Judgement,
    SinkFacts,
    judge_flow,
    judge_sink,
    limit_of,
)
from operations.status.mending import carried_out
from operations.status.source_judgement import SourceFacts, judge_source
from spark.disk.lease import Holder
from spark.disk.refused import refused
from spark.disk.status import FlowStatus, state_of, taken_over

if TYPE_CHECKING:
    from spark.disk.register import Register
    from spark.disk.state import Generation

# A promotion moves names, and is over by then; of a cache with millions of keys it may take longer.
CUT_SECONDS = 10.0


@dataclass(frozen=True)
class FlowReport:
    """A flow, judged.

    Attributes:
        status: what its process wrote; None if nothing, or if another process has taken it over since.
        judged: how it is.
        as_of: everything that was committed before has been applied (epoch seconds); None when not known.
        age: seconds since then.
        behind: records that wait, when its process last looked; None when not known.
        still: seconds since it was last seen to get on, or to have nothing to do; None when nobody looks.
        gone: no process works on it.
    """

    status: FlowStatus | None
    judged: Judgement
    as_of: float | None
    age: float | None
    behind: int | None
    still: float | None = None
    gone: bool = False


@dataclass(frozen=True)
class SinkReport:
    """A sink, judged by the generation that readers see.

    Attributes:
        generation: its number.
        judged: how it is.
        as_of, age: of its oldest flow.
        limit: above which age it is behind.
        flows: its flows that are not finished.
        others: generation -> flow, of those that are kept up to date beside it.
        history: of its history, which is of no generation; None if it keeps none.
    """

    generation: int
    judged: Judgement
    as_of: float | None
    age: float | None
    limit: float
    flows: Mapping[str, FlowReport]
    others: Mapping[int, Mapping[str, FlowReport]]
    history: FlowReport | None = None


@dataclass(frozen=True)
class Report:
    """A pipeline, judged.

    Attributes:
        at: when (epoch seconds).
        source: how the way into the log is.
        note: what `run` has told of it last; None if nothing.
        limit: above which age of the log something is wrong.
        sinks: by name.
    """

    at: float
    source: Judgement
    note: SourceNote | None
    limit: float
    sinks: Mapping[str, SinkReport]


def judged(pipeline: Pipeline, only: Sequence[str] = (), live: Mapping[str, Any] | None = None) -> Report:
    """Judge a pipeline.

    Args:
        pipeline: the loaded file.
        only: these sinks; all if empty.
        live: what Kafka Connect and Postgres have just said (`operations.status.source`), in place of what `run` has
            noted of them.

    Raises:
        ConfigError: a name that the pipeline file does not have (terminal).
        StateError: what is in the state folder can't be read.
    """
    now, note = time.time(), read_source_note(pipeline)
    limit = limit_of(pipeline.source.heartbeat_seconds)
    facts = source_facts(note, now, limit, live)
    source = judge_source(facts)
    sinks = {name: _sink(pipeline, name, source, now, facts.watched) for name in chosen_sinks(pipeline, only)}
    return Report(now, source, note, limit, sinks)


def judged_apart(pipeline: Pipeline, only: Sequence[str] = ()) -> tuple[Judgement, dict[str, Judgement]]:
    """Judge the source, and each sink for itself: one whose state can't be read is failed, and hides no other. What is
    behind says how old it is.

    Args:
        pipeline: the loaded file.
        only: these sinks; all if empty.

    Raises:
        ConfigError: a name that the pipeline file does not have (terminal).
    """
    now, limit = time.time(), limit_of(pipeline.source.heartbeat_seconds)
    facts = SourceFacts(watched=False, limit=limit)

    def of_source() -> Judgement:
        nonlocal facts
        facts = source_facts(read_source_note(pipeline), now, limit)
        return judge_source(facts)

    def of_sink(name: str) -> Judgement:
        report = _sink(pipeline, name, source, now, facts.watched)
        if report.judged.judgement != "behind" or report.age is None:
            return report.judged
        # Nothing stands beside it there.
        return replace(report.judged, cause=f"{report.judged.cause}; what readers see is {report.age:,.0f} s old")

    source = _or_failed(of_source)
    return source, {name: _or_failed(partial(of_sink, name)) for name in chosen_sinks(pipeline, only)}


def _or_failed(judge: Callable[[], Judgement]) -> Judgement:
    try:
        return judge()
    except HeadwaterError as error:
        return Judgement("failed", error.what, error.fix or None)
    except Exception as error:  # a file of the state folder may hold anything after a restore
        why = f"its state can't be read: {type(error).__name__}: {error}"
        return Judgement("failed", why, "look at the rights and the files in engine.state_dir; `headwater status FILE`")


def source_facts(
    note: SourceNote | None, now: float, limit: float, live: Mapping[str, Any] | None = None
) -> SourceFacts:
    """From what `run` has noted, and what was just asked. Pure."""
    watched = note is not None and note.fresh(now)
    facts = SourceFacts(watched=watched, limit=limit)
    if note is not None and watched:
        facts = SourceFacts(
            watched=True,
            age=None if note.as_of is None else max(now - note.as_of, 0.0),
            limit=limit,
            still=now - max(note.moved_at, note.since),
            silent=note.at - max(note.answered_at, note.since),  # after that it is the process that is silent
            connect_silent=note.at - max(note.connect_answered_at, note.since),
            failed_ago=None if note.failed_at is None else now - note.failed_at,
            failed_why=note.failed_why,
            written=ago(note.written_at, now),
            **note.words(),
        )
    if live is None or live["connector"] == "unknown":
        return facts
    active = facts.slot_active if live["slot_active"] is None else live["slot_active"]
    return replace(
        facts, connector=live["connector"], tasks=live["tasks"], connector_error=live["error"], slot_active=active
    )


def sink_limit(pipeline: Pipeline, sink: str) -> float:
    """Above which age (seconds) what a sink's readers see is behind."""
    return limit_of(pipeline.source.heartbeat_seconds, _trigger(pipeline, sink))


def _trigger(pipeline: Pipeline, sink: str) -> float:
    settings = pipeline.sinks[sink]
    own = settings.trigger_seconds if isinstance(settings, IcebergSink) else 0.0
    return max(own, pipeline.engine.trigger_ms / 1000)


def _sink(pipeline: Pipeline, name: str, source: Judgement, now: float, watched: bool) -> SinkReport:
    register, note = register_of(pipeline, name), read_sink_note(pipeline, name)
    living = register.living()
    facts = replace(_sink_facts(pipeline, name, register.generation(living)), cut=_cut(register))
    if note is not None and note.fresh(now):
        facts = replace(facts, away=note.away, astray=note.astray)
    resumed = watched and resumed_lately(pipeline, name)
    if resumed and facts.state in _GONE:
        facts = replace(facts, state="starting")
    flows = {
        number: _resting(name, facts, flow_reports(pipeline, register.generation(number), note, source, now), resumed)
        for number in sorted({living, *register.kept()})
    }
    under_way = partial(carried_out, pipeline, register)
    own = {flow: replace(one, judged=under_way(one.judged)) for flow, one in flows.pop(living).items()}
    # Of several that are as bad the first is told of: the one that most waits for.
    most = sorted(own.values(), key=lambda one: -(one.behind or 0))
    judgement = under_way(judge_sink(facts, [one.judged for one in most]))
    history = _history(pipeline, name, facts, note, now, resumed)
    if history is not None and history.judged.bad:  # the sink's own word first, where both are as bad
        judgement = min(judgement, history.judged, key=lambda one: JUDGEMENTS.index(one.judgement))
    as_of = oldest(one.as_of for one in own.values())
    age = None if as_of is None else max(now - as_of, 0.0)
    limit = sink_limit(pipeline, name)
    return SinkReport(living, _named(judgement, name), as_of, age, limit, own, flows, history)


def _history(
    pipeline: Pipeline, sink: str, facts: SinkFacts, note: SinkNote | None, now: float, resumed: bool
) -> FlowReport | None:
    kept = history_of(pipeline, sink)
    if kept is None:
        return None
    seen = _seen(kept.flow_folder(STREAM), kept.lease.holder(), note, note.history if note else None, now)
    found = _flow_facts(pipeline, sink, HISTORY, seen)
    warning, memory = seen.status.warning if seen.status else None, pipeline.kafka.compaction_lag_hours * 3600
    told = judge_history(found, refused(kept.folder), warning, memory)
    return _resting(sink, facts, {HISTORY: _flow_report(seen, found, told)}, resumed)[HISTORY]


# Of a flow or a generation that no process works on.
_GONE = ("dead", "stopped", "never run")


def _resting(sink: str, facts: SinkFacts, flows: dict[str, FlowReport], resumed: bool) -> dict[str, FlowReport]:
    """Flows of a sink that is paused are so too, whatever their process said as it let them go, and so with one that no
    file has that was applied; those of one that was just resumed are to be started by the `run` that is at work:
    another one would be refused. Pure."""
    if facts.paused is not None or facts.unapplied:
        rests = _named(judge_sink(facts, ()), sink)
        return {flow: replace(one, judged=rests) for flow, one in flows.items()}
    if resumed:  # one that is at work stood still as long as it was paused: nobody may say that it hangs
        return {
            flow: replace(one, judged=_TAKEN_UP) if one.gone or one.judged.judgement == "stalled" else one
            for flow, one in flows.items()
        }
    return flows


_TAKEN_UP = Judgement("starting", "it was resumed, and `headwater run` takes it up")


def _cut(register: Register) -> str | None:
    begun = register.promotion(CUT_SECONDS)
    if begun is None or not begun.moving:
        return None
    way = f"from generation {begun.origin} to {begun.number}"
    return f"sending readers {way} has begun and not ended: they may see either"


def _named(judgement: Judgement, sink: str) -> Judgement:
    remedy = judgement.remedy and judgement.remedy.replace(" SINK`", f" {sink}`").replace(" SINK ", f" {sink} ")
    return Judgement(judgement.judgement, judgement.cause, remedy)


def _sink_facts(pipeline: Pipeline, name: str, generation: Generation) -> SinkFacts:
    lost, mine = LossNote(generation.folder.parent).read(), evolving(pipeline, [name])
    pause, count = pause_of(pipeline, name), letter_counts(pipeline, [name])[name]
    state = state_of(None, generation.lease.holder())
    return SinkFacts(
        state=state,
        paused=None if pause is None else pause.words,
        erasing=pause is not None and pause.erasing,
        left=pause is not None and is_left(pipeline, pause),
        lost=None if lost is None else lost["progress"].split("\n")[0] or "it begins",
        unmade=None if lost is None else lost["error"],
        unapplied=state == "never run" and only_saved(pipeline, "sinks", name),  # a process that has it has its file
        refused=generation.refused(),
        evolving="; ".join(line(one).removeprefix("evolving: ") for one in mine) or None,
        waits=any(one["waits"] for one in mine),
        letters=0 if count is None else count.least,
    )


def flow_reports(
    pipeline: Pipeline, generation: Generation, note: SinkNote | None, source: Judgement, now: float
) -> dict[str, FlowReport]:
    """The flows of a generation, judged; without those that are finished.

    Args:
        pipeline: the loaded file.
        generation: whose folder they are read from.
        note: what is known of how far its sink is; None for nothing.
        source: how the source is: a flow is not blamed for what it waits for there.
        now: epoch seconds.

    Returns:
        by the flow's name.
    """
    holder, told = generation.lease.holder(), {} if note is None else note.generations.get(generation.number, {})
    found = {}
    for name in generation.flows():
        seen = _seen(generation.flow_folder(name), holder, note, told.get(name), now)
        if seen.state != "finished":
            facts = _flow_facts(pipeline, generation.sink, name, seen)
            found[name] = _flow_report(seen, facts, judge_flow(facts, source))
    return found


@dataclass(frozen=True)
class _Seen:
    """What is known of a flow.

    Attributes:
        state: what it does.
        status: what its process wrote; None if nothing.
        told: how far it was when somebody looked last; None if nobody has.
        watched: for how long (seconds) somebody has been looking; None when nobody does now.
        now: epoch seconds.
    """

    state: str
    status: FlowStatus | None
    told: FlowNote | None
    watched: float | None
    now: float


def _seen(folder: Path, holder: Holder | None, note: SinkNote | None, told: FlowNote | None, now: float) -> _Seen:
    status = FlowStatus.read(folder)
    state = state_of(status, holder)
    told = told and told.by(now + STALE_SECONDS)  # another machine's clock may be ahead by a little
    watched = now - note.since if note is not None and note.fresh(now) else None
    return _Seen(state, None if taken_over(status, holder) else status, told, watched, now)


def _flow_report(seen: _Seen, facts: FlowFacts, judgement: Judgement) -> FlowReport:
    as_of = seen.told.as_of if seen.told else None
    how_far = (as_of, facts.age, facts.behind, facts.still)
    return FlowReport(seen.status, judgement, *how_far, gone=seen.state in _GONE)


def _flow_facts(pipeline: Pipeline, sink: str, name: str, seen: _Seen) -> FlowFacts:
    status, told, now = seen.status, seen.told, seen.now
    return FlowFacts(
        flow=name,
        state=seen.state,
        error=status.last_error if status else None,
        age=None if told is None or told.as_of is None else max(now - told.as_of, 0.0),
        limit=sink_limit(pipeline, sink),
        behind=told.behind if told else None,
        still=now - told.moved_at if told and seen.watched is not None else None,
        watched=seen.watched,
        deferred=status.deferred if status else 0,
        hold=told.reason if told else None,
        batch_seconds=status.batch_ms / 1000 if status else 0.0,
        trigger_seconds=_trigger(pipeline, sink),
        uncommitted=told.uncommitted if told else None,
    )
