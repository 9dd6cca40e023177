"""How the history of a sink is, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline
from cdc.wording import split
from operations.state.history import history_folder, history_lease, keeps_history
from operations.status.judgement import FlowFacts, Judgement, judge_flow
from spark.disk.lease import Lease
from spark.disk.refused import refused as why_refused


@dataclass(frozen=True)
class HistoryFolder:
    """A history's folder, as far as a status is read there; like a generation's, with one flow.

    Attributes:
        folder: the history's.
        lease: on it.
    """

    folder: Path
    lease: Lease

    def flow_folder(self, flow: str) -> Path:
        """Where its flow keeps its checkpoint and status."""
        return self.folder / flow


def history_of(pipeline: Pipeline, sink: str) -> HistoryFolder | None:
    """A sink's history; None if it keeps none."""
    if not keeps_history(pipeline, sink):
        return None
    folder = history_folder(pipeline, sink)
    return HistoryFolder(folder, history_lease(folder, sink))


def judge_history(facts: FlowFacts, refused: str | None, warning: str | None, kept_seconds: float) -> Judgement:
    """How a history is, for whoever judges its sink: bad, or no news. Pure.

    Readers of the sink see the same without it; but what it has not read is gone from the log for good once that is
    compacted. So its age alone is nothing: half of the time that the log gives it is, of which its process warns.

    Args:
        facts: of its flow.
        refused: why nobody writes it; None if somebody does.
        warning: what its process warns of.
        kept_seconds: how long the log keeps every event.
    """
    told = judge_flow(replace(facts, age=0.0), Judgement("well"))
    if refused is not None:
        what, fix = split(refused)
        told = Judgement("failed", what, fix or None)
    elif facts.state == "never run":  # the file that is run may not have it yet; what can't be begun is refused
        return Judgement("well")
    elif warning and not told.bad:
        told = Judgement("behind", warning, "`headwater status FILE` shows how far it is; look at the sink's server")
    if not told.bad:
        return Judgement("well")
    lost = f"after {kept_seconds / 3600:g} h the log may have lost what it has not read"
    return Judgement(told.judgement, f"history: {told.cause}; {lost}", told.remedy)


def history_status(pipeline: Pipeline, flow: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is told of a history.

    Args:
        pipeline: the loaded file.
        flow: its flow's status.
        folder: its own: why nobody writes it, whatever its flow said last, and what upkeep has done.
    """
    from spark.warehouse.upkeep.upkeep import read_note

    refused = why_refused(folder)
    if refused is not None:
        flow = {**flow, "state": "failed", "last_error": refused}
    names = ("state", "pid", "batch_id", "lag_events", "lag_seconds", "last_error", "warning", "unread_since")
    kept = pipeline.kafka.compaction_lag_hours * 3600
    told = {**{name: flow[name] for name in names}, "restarts": flow["restarts"], "kept_seconds": kept}
    return {**told, "upkeep": read_note(folder)}
