"""Works off steps one at a time, each in a process of its own; what fails is tried again, more and more seldom."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.apart import Apart
from operations.kept_shapes import write_progress
from operations.schema.steps import Step

Start = Callable[..., Apart[Any]]
# Pauses between two attempts at a step: a server that is away is asked again soon, one that refuses now and then.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
PROGRESS_SECONDS = 2.0


class Work:
    """One step at a time.

    Args:
        start: begins one in a process of its own.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._child: Apart[Any] | None = None
        self._step: Step | None = None
        self._later: dict[Step, tuple[float, float]] = {}  # what has failed: when it is due (monotonic), the next pause
        self._told, self._progress = 0.0, ""

    @property
    def free(self) -> bool:
        """Nothing is being done."""
        return self._child is None

    @property
    def failed(self) -> Collection[Step]:
        """Steps whose last attempt has failed."""
        return self._later.keys()

    def building(self, sink: str) -> bool:
        """Whether a sink's generation is being built."""
        return self._step is not None and self._step.kind == "build" and self._step.sink == sink

    def due(self, steps: Sequence[Step]) -> Iterator[Step]:
        """Those that may be tried now; what is not asked for any more is forgotten."""
        self._later = {step: later for step, later in self._later.items() if step in steps}
        now = time.monotonic()
        return (step for step in steps if now >= self._later.get(step, (0.0, 0.0))[0])

    def soon(self) -> None:
        """Try what has failed at once: what kept it from being done may be mended."""
        self._later.clear()

    def begin(self, step: Step, work: Callable[..., Any], *arguments: Any) -> None:
        """Begin a step."""
        self._step, self._child = step, self._start(work, *arguments)

    def break_off(self, pipeline: Pipeline) -> None:
        """End what is being done; it goes on, or begins anew, the next time. Idempotent."""
        if self._child is not None:
            self._child.end()
        self._child, self._step, self._progress = None, None, ""
        write_progress(pipeline, "", "")

    def look(self, pipeline: Pipeline) -> tuple[tuple[Step, str] | None, list[str]]:
        """What has ended, with its error or none; and what was said meanwhile, a line each."""
        child, step = self._child, self._step
        if child is None or step is None:
            return None, []
        lines = child.lines()
        if lines:
            self._progress = lines[-1]
        if time.monotonic() - self._told > PROGRESS_SECONDS:
            self._told = time.monotonic()
            write_progress(pipeline, step.title, self._progress)
        said = [f"{step.title}: {line}" for line in lines]
        if not child.ended():
            return None, said
        error = _error(child)
        self.break_off(pipeline)
        if not error:
            self._later.pop(step, None)
            return (step, ""), [*said, step.end]
        pause = self._later.get(step, (0.0, FIRST_PAUSE))[1]
        self._later[step] = time.monotonic() + pause, min(pause * 2, LONGEST_PAUSE)
        return (step, error), [*said, f"warning: {step.title}: {error}; again in {pause:.0f} s"]


def _error(child: Apart[Any]) -> str:
    try:
        return "what was built differs from Postgres; it is compared again" if child.result() is False else ""
    except HeadwaterError as failure:
        return str(failure)
