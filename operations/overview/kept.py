"""What lies in the state folder for who watches: dead letters counted, the last verification, the newest batches."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cdc.pipeline import Pipeline
from cdc.records.position import lsn_text
from operations.state.folder import register_of
from operations.state.letters import letter_counts
from operations.state.verified import last_verified
from spark.disk.batches import KeptBatch, read_batches

# Of each flow; what is older is of no use to who looks why it is slow now.
BATCHES = 20


def kept_report(pipeline: Pipeline) -> dict[str, Any]:
    """What is kept of each sink; asks no server.

    Args:
        pipeline: the loaded file.

    Returns:
        ``letters``: sink -> ``standing``, ``at`` (epoch seconds), ``more`` (there are more than were counted), or None
        where nobody has counted; ``verified``: sink -> the last result, as ``GET /v1/differences`` has it;
        ``batches``: sink -> the newest of each flow of what readers see, the newest first.

    Raises:
        StateError: a register can't be read (terminal).
    """
    counts = letter_counts(pipeline)
    return {
        "letters": {sink: None if one is None else asdict(one) for sink, one in counts.items()},
        "verified": {one["sink"]: one for one in last_verified(pipeline)["sinks"]},
        "batches": {sink: batches(pipeline, sink) for sink in pipeline.sinks},
    }


def batches(pipeline: Pipeline, sink: str) -> list[dict[str, Any]]:
    """The newest batches of a sink's flows: what readers see was written by them."""
    generation = register_of(pipeline, sink).generation()
    found = [
        {"flow": flow, **_told(one)}
        for flow in generation.flows()
        for one in read_batches(generation.flow_folder(flow))[:BATCHES]
    ]
    return sorted(found, key=lambda one: -one["at"])


def _told(one: KeptBatch) -> dict[str, Any]:
    """A batch with positions as Postgres writes them."""
    told = {name: value for name, value in asdict(one).items() if name not in ("after", "position")}
    slowest = max(one.parts, key=lambda name: one.parts[name], default=None)
    return {**told, "from_lsn": lsn_text(one.after), "to_lsn": lsn_text(one.position), "slowest": slowest}
