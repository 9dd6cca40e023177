"""How good or bad a state is, for colour and for order. Pure.

The words are those of ``status``; here is judged only what colour a page must choose for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Level = Literal["bad", "warn", "busy", "idle", "good"]
# The worst first.
ORDER: tuple[Level, ...] = ("bad", "warn", "busy", "idle", "good")
_LEVELS: Mapping[str, Level] = {
    "failed": "bad",
    "stalled": "bad",
    "dead": "bad",
    "retrying": "bad",
    "rebuilding": "warn",
    "behind": "warn",
    "stopped": "warn",
    "never run": "idle",
    "paused": "idle",
    "starting": "busy",
    "filling": "busy",
    "evolving": "busy",
    "running": "good",
    "well": "good",
    "finished": "good",
}
# What readers see is older than a healthy pipeline lets it become: something before the sink may stand still.
OLD_SECONDS = 60.0


def level_of(state: str | None) -> Level:
    """Of a state; one that is not known yet is worth a look."""
    return "idle" if state is None else _LEVELS.get(state, "warn")


def sink_level(sink: Mapping[str, Any], fresh: Mapping[str, Any]) -> tuple[Level, str | None]:
    """Of a sink, and why it is worse than its state says.

    Args:
        sink: of ``status --json``.
        fresh: how old what its readers see is.
    """
    level = level_of(sink["state"])
    if level == "good" and fresh.get("age") is not None and fresh["age"] > OLD_SECONDS:
        return "warn", fresh.get("reason") or "what was committed does not reach it: look at the source"
    if level == "good" and sink["lag_events"] is None:
        return "warn", "the log's ends are not known: Kafka does not answer"
    return level, sink["warning"]


def source_level(source: Mapping[str, Any]) -> Level:
    """Of connector and slot."""
    failed = source["connector"] in ("FAILED", "absent") or "FAILED" in source["tasks"] or source["tables"]
    if failed or source["slot_active"] is False or source["slot_active"] is None or source["error"]:
        return "bad"
    return "good" if source["connector"] == "RUNNING" else "warn"


def worst(levels: list[Level]) -> Level:
    """The worst of some; ``idle`` of none."""
    return min(levels, key=ORDER.index, default="idle")
