"""Which builds of each sink there are, and which one readers see, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operations.state.verified import verified_generations
from operations.status.sinks import generation_status, keep_ends

if TYPE_CHECKING:
    from spark.disk.register import Register


def generations_report(pipeline: Any, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """The shape of ``--json``."""
    from cdc.log.ends import LogEnds
    from operations.state.folder import chosen_sinks, register_of
    from spark.disk.made_of import outdated

    log = LogEnds(pipeline.kafka.bootstrap, pipeline.kafka.options_plain())
    sinks = []
    try:
        keep_ends(pipeline, chosen_sinks(pipeline, only), log)
        for name in chosen_sinks(pipeline, only):
            register = register_of(pipeline, name)
            found, verified = [], verified_generations(pipeline, name)
            for entry in register.entries():
                generation = register.generation(entry.number)
                status = generation_status(generation, log)
                found.append(
                    {
                        "generation": entry.number,
                        "stage": entry.stage,
                        "why": entry.why,
                        "created_at": entry.created_at or None,
                        "promoted_at": entry.promoted_at,
                        "state": status["state"],
                        "lag_events": status["lag_events"],
                        "lag_seconds": status["lag_seconds"],
                        "differs_from_file": outdated(pipeline, generation),
                        "verified": verified(entry.number),
                    }
                )
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


def _promotion(register: Register) -> dict[str, Any] | None:
    """The promotion that was begun and has not ended: who began it is at work, or was killed."""
    begun = register.promotion()
    return None if begun is None else {"from": begun.origin, "to": begun.number, "moving": begun.moving}
