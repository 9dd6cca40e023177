"""Whether a generation has applied what another one has: what was told to be visible must not be missed later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cdc.log.ends import Offsets
from cdc.pipeline import Pipeline
from operations.deferred import Deferred
from spark.applied import applied_offsets
from spark.register import Register
from spark.state import Generation
from spark.status import FlowStatus


def level(
    pipeline: Pipeline, register: Register, old: int, new: int, seconds: float, pause: float = 0.1, clock: Any = time
) -> str | None:
    """Wait until one generation has applied at least what another one has; in words what it lacks still, or None.

    Args:
        pipeline: for its row stores.
        register: of the sink.
        old: the generation that readers see.
        new: the one that they are to see.
        seconds: to wait at the most.
        pause: between two looks.
        clock: replaced in tests.
    """
    goal = _applied_by(register.generation(old), max)
    until, deferred = clock.monotonic() + seconds, Deferred(pipeline)
    try:
        while True:
            lacks = _lacks(register.generation(new), goal, deferred)
            if lacks is None or clock.monotonic() > until:
                return lacks
            clock.sleep(pause)
    finally:
        deferred.close()


def _lacks(generation: Generation, goal: Offsets, deferred: Deferred) -> str | None:
    have = _applied_by(generation, min)
    left = sum(
        max(at - have[topic].get(part, 0), 0)
        for topic, parts in goal.items()
        if topic in have
        for part, at in parts.items()
    )
    if left:
        return f"{left:,} records"
    return next((why for flow in generation.flows() if (why := deferred.why(generation, flow))), None)


def _applied_by(generation: Generation, most: Callable[[int, int], int]) -> dict[str, dict[int, int]]:
    """What the flows of a generation have applied of each topic: all of them (``min``), or any (``max``)."""
    found: dict[str, dict[int, int]] = {}
    for name in generation.flows():
        status = FlowStatus.read(generation.flow_folder(name))
        if status is None or status.state == "finished":
            continue
        applied = applied_offsets(generation.flow_folder(name))
        for topic in status.topics:
            told = applied.get(topic, {})
            known = found.setdefault(topic, dict(told))
            for part in {*known, *told}:
                known[part] = most(known.get(part, 0), told.get(part, 0))
    return found
