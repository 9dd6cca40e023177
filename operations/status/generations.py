"""Which builds of each sink there are, and which one readers see, as data."""

from __future__ import annotations

from typing import Any

from cdc.log.ends import LogEnds
from cdc.pipeline import Pipeline
from operations.state.folder import chosen_sinks, register_of
from operations.state.verified import verified_generations
from operations.status.sinks import generation_status, keep_ends
from spark.disk.made_of import outdated
from spark.disk.register import Register, Registered


def generations_report(pipeline: Pipeline, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """The shape of ``--json``."""
    log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
    sinks = []
    try:
        keep_ends(pipeline, chosen_sinks(pipeline, only), log)
        for name in chosen_sinks(pipeline, only):
            register = register_of(pipeline, name)
            found, verified = [], verified_generations(pipeline, name)
            for entry in register.entries():
                status = generation_status(register.generation(entry.number), log)
                asked = {name: status[name] for name in ("state", "lag_events", "lag_seconds")}
                found.append({**build_of(pipeline, register, entry), **asked, "verified": verified(entry.number)})
            sinks.append(
                {
                    "sink": name,
                    "type": pipeline.sinks[name].type,
                    "promotion": _promotion(register),
                    "generations": found,
                }
            )
    finally:
        log.close()
    return {"pipeline": pipeline.name, "sinks": sinks}


def build_of(pipeline: Pipeline, register: Register, entry: Registered) -> dict[str, Any]:
    """What the state folder alone knows of a generation."""
    return {
        "generation": entry.number,
        "stage": entry.stage,
        "why": entry.why,
        "created_at": entry.created_at or None,
        "promoted_at": entry.promoted_at,
        "differs_from_file": outdated(pipeline, register.generation(entry.number)),
    }


def _promotion(register: Register) -> dict[str, Any] | None:
    """The promotion that was begun and has not ended: who began it is at work, or was killed."""
    begun = register.promotion()
    return None if begun is None else {"from": begun.origin, "to": begun.number, "moving": begun.moving}
