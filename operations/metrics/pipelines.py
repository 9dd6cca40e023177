"""How pipelines are, as metrics of Prometheus: from the state folder alone, so that a scrape waits for no server.

Docs: docs/metrics.md; a test fails when one is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from connectors.rest import Status
from connectors.wal.budget import RANK
from operations.freshness.note import SourceNote
from operations.metrics.families import counter, gauge, histogram
from operations.metrics.matchers import standing_metrics
from operations.metrics.webhooks import push_metrics
from operations.state.folder import state_dir
from operations.state.history import HISTORY
from operations.state.pausing import Pause, paused_sinks, resume_before
from operations.state.wal import read_weighed
from operations.status.facts import FlowReport, Report, judged
from operations.status.judgement import JUDGEMENTS
from spark.disk.batches import PHASES
from spark.disk.status import BATCH_SECONDS, FlowStatus

Labels = dict[str, str]
Values = list[tuple[Mapping[str, str], float]]
AUDIT = "verify.prom"
_log = logging.getLogger(__name__)


def metrics(pipelines: Iterable[Pipeline]) -> str:
    """What a scrape is answered.

    Args:
        pipelines: loaded files. Of one whose state folder can't be read it is said that it can't.
    """
    register = CollectorRegistry()
    register.register(_Pipelines(pipelines))
    return generate_latest(register).decode()


class _Pipelines(Collector):
    """All of a server's pipelines: one family a metric, whatever it is of."""

    def __init__(self, pipelines: Iterable[Pipeline]) -> None:
        self.pipelines = list(pipelines)

    def collect(self) -> Iterator[Metric]:
        """Every metric, as docs/metrics.md lists them."""
        reports: dict[str, Report] = {}
        for pipeline in self.pipelines:
            try:
                reports[pipeline.name] = judged(pipeline)
            except Exception as error:  # a file of the state folder may hold anything after a restore
                _log.debug("pipeline %s can't be judged: %s: %s", pipeline.name, type(error).__name__, error)
        known: Values = [({"pipeline": one.name}, int(one.name in reports)) for one in self.pipelines]
        yield gauge("headwater_state_readable", "1 if the pipeline's state folder can be read.", known)
        readable = [one for one in self.pipelines if one.name in reports]
        yield from _source(reports)
        yield from _wal(readable)
        yield from _sinks(reports)
        yield from _pauses(readable, reports)
        yield from _flows(reports)
        yield from push_metrics(readable)
        yield from standing_metrics(readable)
        yield from _audits(readable)


def _source(reports: Mapping[str, Report]) -> Iterator[Metric]:
    judgements: Values = [
        ({"pipeline": name, "judgement": one}, int(report.source.judgement == one))
        for name, report in reports.items()
        for one in JUDGEMENTS
    ]
    yield gauge("headwater_source_judgement", "1 for what is judged of the source, 0 for the others.", judgements)
    limits: Values = [({"pipeline": name}, report.limit) for name, report in reports.items()]
    yield gauge("headwater_source_age_limit_seconds", "Above which age of the log something is wrong.", limits)
    noted = {name: report.note for name, report in reports.items() if report.note is not None}
    # What was so once may be otherwise by now: only of a moment, and of an age, everything is said by itself.
    fresh = {name: note for name, note in noted.items() if note.fresh(reports[name].at)}
    for name, said, key, notes in (
        ("as_of_timestamp_seconds", "What was committed before this moment is in the log.", "as_of", noted),
        ("noted_timestamp_seconds", "When `run` last looked.", "at", noted),
        ("slot_active", "1 if somebody reads from the slot.", "slot_active", fresh),
        ("slot_retained_bytes", "WAL that the slot makes Postgres keep.", "slot_retained_bytes", fresh),
        ("slot_safe_bytes", "WAL that may be written before the slot is lost.", "slot_safe_bytes", fresh),
    ):
        yield gauge(f"headwater_source_{name}", said, _noted(notes, key))
    ages: Values = [
        ({"pipeline": name}, max(reports[name].at - note.as_of, 0.0))
        for name, note in noted.items()
        if note.as_of is not None
    ]
    yield gauge("headwater_source_age_seconds", "How old the log is, measured from the commits.", ages)
    running: Values = [
        ({"pipeline": name}, int(Status(note.connector, tuple(note.tasks), "").running))
        for name, note in fresh.items()
        if note.connector != "unknown"
    ]
    yield gauge("headwater_source_connector_running", "1 if the connector and its task are RUNNING.", running)
    for name, said, key in (
        ("used", "Memory that a node of the row store has taken, all that it holds.", "used_bytes"),
        ("limit", "Memory that it may take; no sample where it has no limit.", "limit_bytes"),
    ):
        nodes: Values = [
            ({"pipeline": pipeline, "node": node}, one[key])
            for pipeline, note in fresh.items()
            for node, one in note.row_store.items()
            if one[key]
        ]
        yield gauge(f"headwater_row_store_{name}_bytes", said, nodes)


def _wal(pipelines: Iterable[Pipeline]) -> Iterator[Metric]:
    """The judgement of `status`, as `run` has had it last: without `max_slot_wal_keep_size`, too, and by the policy."""
    found = [({"pipeline": one.name}, weighed) for one in pipelines if (weighed := read_weighed(one)) is not None]
    levels: Values = [({**of, "level": level}, int(one.level == level)) for of, one in found for level in RANK]
    yield gauge("headwater_source_wal_level", "1 for how near its limit the slot's WAL is, 0 for the others.", levels)
    full: Values = [(of, one.full_bytes) for of, one in found]
    yield gauge("headwater_source_wal_full_bytes", "WAL that the slot may keep.", full)


def _noted(notes: Mapping[str, SourceNote], key: str) -> Values:
    found = ((name, getattr(note, key)) for name, note in notes.items())
    return [({"pipeline": name}, float(value)) for name, value in found if value is not None]


def _sinks(reports: Mapping[str, Report]) -> Iterator[Metric]:
    sinks = [
        ({"pipeline": name, "sink": sink, "generation": str(one.generation)}, one)
        for name, report in reports.items()
        for sink, one in report.sinks.items()
    ]
    judgements: Values = [
        ({**of, "judgement": name}, int(one.judged.judgement == name)) for of, one in sinks for name in JUDGEMENTS
    ]
    yield gauge("headwater_sink_judgement", "1 for what is judged of the sink, 0 for the others.", judgements)
    ages: Values = [(of, one.age) for of, one in sinks if one.age is not None]
    said = "How old what readers see is, measured from the commits."
    yield gauge("headwater_sink_age_seconds", said, ages)
    limits: Values = [(of, one.limit) for of, one in sinks]
    yield gauge("headwater_sink_age_limit_seconds", "Above which age the sink is behind.", limits)


def _pauses(pipelines: Iterable[Pipeline], reports: Mapping[str, Report]) -> Iterator[Metric]:
    """A pause is asked for, and may be forgotten: the log forgets deletes meanwhile."""
    found: list[tuple[Labels, Pause, float]] = []
    for one in pipelines:
        with suppress(HeadwaterError, OSError):  # of the others is told
            for sink, pause in paused_sinks(one, ()).items():
                generation = reports[one.name].sinks[sink].generation
                of = {"pipeline": one.name, "sink": sink, "generation": str(generation)}
                found.append((of, pause, resume_before(one, pause)))
    since: Values = [(of, pause.since) for of, pause, _ in found]
    yield gauge("headwater_sink_paused_timestamp_seconds", "Since when the sink is paused.", since)
    before: Values = [(of, until) for of, _, until in found]
    said = "Until when the log remembers the deletes that a paused sink misses."
    yield gauge("headwater_sink_resume_before_timestamp_seconds", said, before)


_COUNTED = (
    ("records", "Records read."),
    ("written", "Documents or rows written."),
    ("deleted", "Documents or rows deleted."),
    ("stale", "Writes that were refused because the sink has newer ones."),
    ("rejected", "Dead letters: what the sink will never take."),
    ("restarts", "How often the query ended and was started again."),
    ("retries", "How often a task has asked its sink, or the row store, again after waiting."),
)


def _flows(reports: Mapping[str, Report]) -> Iterator[Metric]:
    flows = list(_each(reports))
    ages: Values = [(of, flow.age) for of, flow in flows if flow.age is not None]
    yield gauge("headwater_flow_age_seconds", "How old what the flow has applied is.", ages)
    # As of the source: what waited when somebody last looked may be more by now.
    behind: Values = [(of, flow.behind) for of, flow in flows if flow.behind is not None and flow.still is not None]
    yield gauge("headwater_flow_lag_records", "Records of the log that wait for the flow.", behind)
    told = [(of, flow.status) for of, flow in flows if flow.status is not None]
    for name, said in _COUNTED:
        yield counter(f"headwater_flow_{name}", said, [(of, getattr(one, name)) for of, one in told])
    deferred: Values = [(of, flow.status.deferred) for of, flow in flows if flow.status is not None and not flow.gone]
    yield gauge("headwater_flow_deferred_documents", "Documents of a fan-out that are still to be written.", deferred)
    batches: Values = [(of, one.batch_ms / 1000) for of, one in told]
    yield gauge("headwater_flow_batch_seconds", "How long the newest batch took.", batches)
    yield from _times(told)


def _times(told: Sequence[tuple[Labels, FlowStatus]]) -> Iterator[Metric]:
    """What batches have taken, and on what."""
    phases: Values = [
        ({**of, "phase": name}, one.phase_ms.get(name, 0) / 1000)
        for of, one in told
        for name in (PHASES if one.phase_ms else ())
    ]
    yield counter("headwater_flow_phase_seconds", "What batches have spent their time on.", phases)
    sink: Values = [(of, one.sink_us / 1e6) for of, one in told]
    yield counter("headwater_flow_sink_seconds", "What tasks have spent in the sink's writes, added up.", sink)
    bounds = [*map(str, BATCH_SECONDS), "+Inf"]
    spread = [
        (of, list(zip(bounds, accumulate(one.batch_buckets), strict=True)), sum(one.phase_ms.values()) / 1000)
        for of, one in told
        if len(one.batch_buckets) == len(bounds)  # another version's
    ]
    yield histogram("headwater_flow_batch_duration_seconds", "How long batches took.", spread)


def _each(reports: Mapping[str, Report]) -> Iterator[tuple[Labels, FlowReport]]:
    for name, report in reports.items():
        for sink, one in report.sinks.items():
            for number, flows in {one.generation: one.flows, **one.others}.items():
                for flow, found in flows.items():
                    yield {"pipeline": name, "sink": sink, "generation": str(number), "flow": flow}, found
            if one.history is not None:  # it is of no generation: no view's flow is taken for it
                yield {"pipeline": name, "sink": sink, "generation": "", "flow": HISTORY}, one.history


def _audits(pipelines: Iterable[Pipeline]) -> Iterator[Metric]:
    """What `verify --every` has written for the node exporter, as it is: nobody needs that for it."""
    found: dict[str, Any] = {}
    for pipeline in pipelines:
        try:
            text = (state_dir(pipeline) / pipeline.name / AUDIT).read_text()
            for family in text_string_to_metric_families(text):
                known = found.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        except (OSError, ValueError, HeadwaterError):
            continue
    yield from found.values()
