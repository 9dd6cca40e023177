"""Which builds of each sink there are, from the state folder alone: no server is asked."""

from __future__ import annotations

from typing import Any

from cdc.pipeline import Pipeline
from operations.state.folder import registers_of
from spark.disk.made_of import outdated
from spark.disk.register import Register, Registered


def builds(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """Sink -> its generations: the part of ``generations --json`` that no server is needed for.

    Raises:
        StateError: a register can't be read (terminal).
    """
    return {
        sink: [_build(pipeline, register, entry) for entry in register.entries()]
        for sink, register in registers_of(pipeline, ()).items()
    }


def _build(pipeline: Pipeline, register: Register, entry: Registered) -> dict[str, Any]:
    return {
        "generation": entry.number,
        "stage": entry.stage,
        "why": entry.why,
        "created_at": entry.created_at or None,
        "promoted_at": entry.promoted_at,
        "differs_from_file": outdated(pipeline, register.generation(entry.number)),
    }
