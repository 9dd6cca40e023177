"""Which builds of each sink there are, from the state folder alone: no server is asked."""

from __future__ import annotations

from typing import Any

from cdc.pipeline import Pipeline
from operations.state.folder import registers_of
from operations.status.generations import build_of


def builds(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """Sink -> its generations: the part of ``generations --json`` that no server is needed for.

    Raises:
        StateError: a register can't be read (terminal).
    """
    return {
        sink: [build_of(pipeline, register, entry) for entry in register.entries()]
        for sink, register in registers_of(pipeline, ()).items()
    }
