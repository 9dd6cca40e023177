"""Works off steps, each in a process of its own; what fails is tried again, more and more seldom.

What is done for tables and what is built are two lanes: a warehouse is built for an hour, and a table whose rows are
to be read again must not wait for that. In each lane there is one step at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.polling import pause_after
from operations.child_process import Apart, Start, end_all
from operations.schema.steps import Step
from operations.state.evolution import write_progress

# Pauses between two attempts at a step: a server that is away is asked again soon, one that refuses now and then.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
PROGRESS_SECONDS = 2.0


@dataclass
class Doing:
    """A step that is under way, and what its process has said last."""

    step: Step
    child: Apart[Any]
    progress: str = ""


class Work:
    """One step at a time for tables, and one that builds.

    Args:
        start: begins one in a process of its own.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._doing: dict[bool, Doing] = {}  # whether it builds
        self._later: dict[Step, tuple[float, int]] = {}  # what has failed: when it is due (monotonic), how often it has
        self._told = 0.0

    def free(self, step: Step) -> bool:
        """Whether nothing is being done in a step's lane."""
        return step.builds not in self._doing

    @property
    def failed(self) -> Collection[Step]:
        """Steps whose last attempt has failed."""
        return self._later.keys()

    def due(self, steps: Sequence[Step]) -> Iterator[Step]:
        """Those that may be tried now, whose lane is free; what is not asked for any more is forgotten."""
        self._later = {step: later for step, later in self._later.items() if step in steps}
        now = time.monotonic()
        return (step for step in steps if self.free(step) and now >= self._later.get(step, (0.0, 0))[0])

    def soon(self) -> None:
        """Try what has failed at once: what kept it from being done may be mended."""
        self._later.clear()

    def begin(self, step: Step, work: Callable[..., Any], *arguments: Any) -> None:
        """Begin a step."""
        self._doing[step.builds] = Doing(step, self._start(work, *arguments))

    def break_off(self, pipeline: Pipeline, concerned: Callable[[Step], bool] = lambda _: True) -> None:
        """End what is being done; it goes on, or begins anew, the next time. Idempotent.

        Args:
            pipeline: the loaded file.
            concerned: chooses which; all if left out.
        """
        lanes = [lane for lane, doing in self._doing.items() if concerned(doing.step)]
        end_all(self._doing.pop(lane).child for lane in lanes)
        self._write(pipeline)

    def look(self, pipeline: Pipeline) -> tuple[list[tuple[Step, str]], list[str]]:
        """What has ended, each with its error or none; and what was said meanwhile, a line each."""
        ended: list[tuple[Step, str]] = []
        said: list[str] = []
        for lane, doing in list(self._doing.items()):
            title = f"{doing.step.title}: "  # some lines begin with it
            lines = [line.removeprefix(title) for line in doing.child.lines()]
            doing.progress = lines[-1] if lines else doing.progress
            said += [title + line for line in lines]
            if doing.child.ended():
                ended.append((doing.step, self._ended(pipeline, doing, said)))
                self._doing.pop(lane).child.end()
        if ended or (self._doing and time.monotonic() - self._told > PROGRESS_SECONDS):
            self._told = time.monotonic()
            self._write(pipeline)
        return ended, said

    def _ended(self, pipeline: Pipeline, doing: Doing, said: list[str]) -> str:
        file = pipeline.file or "FILE"  # what checks a server knows no file
        step, error = doing.step, _error(doing.child).replace(" FILE ", f" {file} ").replace(" FILE`", f" {file}`")
        if not error:
            self._later.pop(step, None)
            said.append(step.end)
            return ""
        attempt = self._later.get(step, (0.0, 0))[1] + 1
        pause = pause_after(attempt, FIRST_PAUSE, LONGEST_PAUSE)
        self._later[step] = time.monotonic() + pause, attempt
        said.append(f"warning: {step.title}: {error}; again in {pause:.0f} s")
        return error

    def _write(self, pipeline: Pipeline) -> None:
        write_progress(pipeline, [(one.step.sink, one.step.tables, one.progress) for one in self._doing.values()])


def _error(child: Apart[Any]) -> str:
    try:
        late = child.result() is False
        return "what was built was not seen to catch up with Postgres; it is compared again" if late else ""
    except HeadwaterError as failure:
        return str(failure)
