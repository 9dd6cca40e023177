"""The loop of a process that keeps a pipeline in sync: it steps the parts, and decides when it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from cdc.errors import StateError
from cdc.saying import Say
from operations.state.pausing import refuse_paused
from operations.status.caught_up import Goal
from operations.supervise.parts import Parts
from operations.supervise.wanted import Wanted
from spark.disk.status import FlowStatus

# How often progress is looked at and status files are written.
STEP_SECONDS = 0.5
NOT_CAUGHT_UP = "it can't catch up, and whoever waits for that would wait until it is resumed"


class Shown(Protocol):
    """Shows how far the flows are."""

    @property
    def goal(self) -> Goal:
        """What they are on their way to."""

    def show(self, statuses: Sequence[FlowStatus]) -> None:
        """Show the flows' state now."""


def supervise(parts: Parts, shown: Shown, wanted: Wanted, say: Say) -> None:
    """Until it is told to stop, there is nothing left to do, or the log can't be continued.

    Args:
        parts: what works on the pipeline.
        shown: shows how far the flows are.
        wanted: how it is to be run.
        say: told what happens, a line each.

    Raises:
        HeadwaterError: the log can't be continued.
        StateError: it was to catch up, and a sink is paused, or it has not caught up in time (terminal).
    """
    engine, source = parts.engine, parts.source
    told: str | None = None
    while not wanted.stop.wait(STEP_SECONDS):
        trouble = parts.step(say)
        shown.show(engine.runner.step(shown.show))
        trouble = trouble or engine.runner.trouble
        if trouble != told:
            say(f"waiting: {trouble.splitlines()[0]}" if trouble else "there is room on the disk again")
            told = trouble
        if source.error is not None:
            engine.stop(str(source.error))
            raise source.error
        if wanted.until_caught_up and engine.paused:
            refuse_paused(engine.pipeline, engine.only, NOT_CAUGHT_UP)
        healing = parts.busy
        waits = parts.waits and not wanted.until_caught_up
        if engine.runner.all_failed and not healing and not waits and not engine.paused:
            return
        if wanted.until_caught_up and not healing and shown.goal.caught_up():
            say("caught up")
            return
        if wanted.until is not None and time.monotonic() > wanted.until:
            raise StateError("not caught up when --timeout was over", fix="`headwater status FILE` says how far")
