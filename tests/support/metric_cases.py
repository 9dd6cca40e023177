"""What a sink at work says of itself, and names of metrics in it."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from cdc.pipeline import Pipeline, Webhook, load
from connectors.wal.budget import judge
from operations.freshness.note import (
    FlowNote,
    SinkNote,
    SourceNote,
    write_sink_note,
    write_source_note,
)
from operations.metrics.audit import Totals
from operations.metrics.audit import metrics as audit_metrics
from operations.push.health import Health, write_note
from operations.state.folder import register_of, state_dir
from operations.state.wal import Window, write_window
from spark.disk.status import BATCH_SECONDS, FlowStatus
from tests.support.lone_cache import FILE

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\bheadwater_[a-z_]+\b")
VIEW = {"view": "v", "expected": 1, "differences": 0, "undecided": 0, "repaired": 2, "missing": [], "extra": []}


def pipeline(folder: Path, name: str = "p", *, verified: bool = True) -> Pipeline:
    """One that is at work, and was verified."""
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(FILE.format(folder=folder / "state").replace("name: p", f"name: {name}"))
    made, now = load(path), time.time()
    flow = register_of(made, "cache").generation().flow_folder("main")
    flow.mkdir(parents=True)
    status = FlowStatus("cache/main", "running", os.getpid(), 1, 9, 7, 2, 1, 4, 0, 0, 250, None, ["t"], now, restarts=3)
    buckets = [0, 2, *[0] * (len(BATCH_SECONDS) - 2), 1]
    status = replace(status, phase_ms={"apply": 900, "other": 100}, batch_buckets=buckets, retries=6, sink_us=1_500_000)
    status.write(flow)
    write_sink_note(made, "cache", SinkNote(now, now - 90, {1: {"main": FlowNote(now - 2, 5, now)}}))
    source = SourceNote(
        now,
        now - 90,
        now - 1,
        now,
        now,
        connector="RUNNING",
        tasks=["RUNNING"],
        slot_there=True,
        slot_active=True,
        slot_retained_bytes=1_000,
        slot_safe_bytes=9_000,
        row_store={"h:1": {"used_bytes": 70, "limit_bytes": 100}, "h:2": {"used_bytes": 60, "limit_bytes": 0}},
    )
    write_source_note(made, source)
    write_window(made, Window(), judge(retained=900, budget=1_000, limit=None))
    if verified:
        totals = Totals(300.0)
        one = {"sink": "cache", "error": None, "views": [{**VIEW, "changed": []}]}
        totals.take({"at": now, "equal": True, "sample": None, "sinks": [one]})
        (state_dir(made) / name / "verify.prom").write_text(audit_metrics(name, totals))
    hook = {"view": "v", "url": "http://127.0.0.1:1", "secret": "whsec_" + "a" * 40, "sink": "cache"}
    made = made.model_copy(update={"push": {"hook": Webhook.model_validate(hook)}})
    write_note(made, "hook", Health("failing", 12, now - 60, 30, 2, now - 50, "it answers 500"))
    return made


def paused(folder: Path, since: float, name: str = "q") -> Pipeline:
    """One whose sink is paused."""
    made = pipeline(folder, name)
    note = {"since": since, "by": "ann@host", "why": None}
    (register_of(made, "cache").folder / "paused.json").write_text(json.dumps(note))
    return made


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, label values) -> value."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def named(text: str) -> set[str]:
    return {name for name, _ in samples(text) if not name.endswith("_created")}
