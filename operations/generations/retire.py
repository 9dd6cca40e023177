"""Removing a generation that nobody reads."""

from __future__ import annotations

from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from cdc.errors import HeadwaterError, StateError
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.generations.carrying import carry_left
from operations.generations.targets import drop_generation, drop_left_queries
from operations.rowstore import refuse_no_store
from operations.state.folder import register_of
from operations.state.pausing import LET_GO_SECONDS, refuse_paused
from operations.state.verified import forget_verified
from spark.disk.lease import STOP_IT
from spark.disk.made_of import as_defined


def retire(pipeline: Pipeline, sink: str, number: int, say: Say) -> dict[str, Any]:
    """Remove a generation: what it wrote, its row store and its state. Killed half-way, do it again.

    Raises:
        StateError: the sink is paused; readers see it, or may see it after a promotion that was cut; or its process
            does not let go.
        ConfigError: it joins tables, and the file has no ``row_store`` (nothing was removed).
        SinkUnavailable, SinkRefused: the target's server does not answer or refuses.
    """
    refuse_paused(pipeline, [sink], "nothing was removed")
    carry_left(pipeline, sink)  # of what a promotion that was cut has left there nobody else has a copy
    register = register_of(pipeline, sink)
    generation = register.generation(number)
    refuse_no_store(as_defined(pipeline, generation), generation)
    register.begin_retiring(number)
    held = retry_if_exception_type(StateError)
    Retrying(stop=stop_after_delay(LET_GO_SECONDS), wait=wait_fixed(0.5), retry=held, reraise=True)(
        generation.lock, STOP_IT
    )
    try:
        drop_generation(as_defined(pipeline, generation), sink, generation)
        queries = drop_left_queries(pipeline, sink, generation)
    except HeadwaterError:
        generation.unlock()
        raise
    generation.discard()
    forget_verified(pipeline, sink, number)
    register.remove(number)
    also = f", and the standing queries that it had at {', '.join(queries)}" if queries else ""
    say(f"sink {sink}: generation {number} removed{also}")
    return {"pipeline": pipeline.name, "sink": sink, "retired": number}
