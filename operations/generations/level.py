"""Whether a generation has applied what another one has: what was told to be visible must not be missed later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cdc.log.ends import Offsets
from cdc.pipeline import Pipeline
from operations.deferred import Deferred
from spark.disk.applied import applied_offsets
from spark.disk.register import Register
from spark.disk.state import Generation
from spark.disk.status import FlowStatus


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
    before, after = register.generation(old), register.generation(new)
    other = _made_anew(before, after)
    if other and new < old:  # an older generation reads the former topics: it never comes to have what is in the new
        return f"all that {', '.join(sorted(other))} got since it was made anew"
    goal = {topic: parts for topic, parts in _applied_by(before, max).items() if topic not in other}
    until, deferred = clock.monotonic() + seconds, Deferred(pipeline)
    try:
        while True:
            lacks = _lacks(after, goal, deferred)
            if lacks is None or clock.monotonic() > until:
                return lacks
            clock.sleep(pause)
    finally:
        deferred.close()


def failed_flow(generation: Generation) -> str | None:
    """A flow of a generation that has failed, and why, in a line: until that is mended it gets no further."""
    for name in generation.flows():
        status = FlowStatus.read(generation.flow_folder(name))
        if status is not None and status.state == "failed":
            return f"its flow {name} has failed: {(status.last_error or 'for no known reason').splitlines()[0]}"
    return None


def _made_anew(old: Generation, new: Generation) -> set[str]:
    """Topics that were made anew between the two: offsets of the one log say nothing of the other. What the former
    log had is in the new one as well, because the table's rows are read again; so whoever has read only the new one
    lacks nothing of the former."""
    known, now = old.known(), new.known()
    if known is None or now is None:
        return set()
    return {topic for topic, one in now.topic_ids.items() if known.topic_ids.get(topic, one) != one}


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
