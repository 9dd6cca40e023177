"""Generations that can't be run as things are: each is one sink's own trouble, told in `status`, and tried again."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from cdc.errors import ConfigError, HeadwaterError, StateError
from cdc.journal import Line
from cdc.pipeline import Pipeline
from operations.state.folder import register_of

# Pauses between two attempts. Another process may let go of a generation at any moment (a rebuild that has ended);
# what is wrong with a view or a target is mended by a person.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

Which = tuple[str, int]

# What a damaged folder, or a file that nobody has thought of, brings.
_SURPRISES = (OSError, ValueError, LookupError, TypeError, AttributeError)
_log = logging.getLogger(__name__)


@contextmanager
def opening(title: str) -> Iterator[None]:
    """Tell an error that nobody has expected as one of what is being opened: it is no reason to end the other sinks.

    Raises:
        StateError: there was one (terminal).
    """
    try:
        yield
    except _SURPRISES as error:
        _log.debug("%s could not be opened", title, exc_info=True)
        raise StateError(
            f"{title} can't be opened: {type(error).__name__}: {error}",
            means="a file of it in the state folder may be damaged; nothing was written, the other sinks go on",
            fix="restore its folder from a copy; with `HEADWATER_LOG_LEVEL=debug` the log says where it was met",
        ) from error


@dataclass
class _Refusal:
    error: HeadwaterError
    reason: str
    busy: bool
    pause: float
    again_at: float


class Refusals:
    """Which generations are not run, why, and when each is tried again.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._of: dict[Which, _Refusal] = {}

    def add(self, sink: str, number: int, error: HeadwaterError) -> bool:
        """Note that a generation can't be run; returns whether that is news."""
        register = register_of(self.pipeline, sink)
        generation = register.generation(number)
        if register.stage(number) in (None, "retiring"):  # since whoever tries it has looked: nothing is to be mended
            self._of[sink, number] = _Refusal(error, str(error), False, FIRST_PAUSE, time.monotonic() + FIRST_PAUSE)
            return False
        busy = generation.lease.busy()
        reason = explained(self.pipeline, sink, number, error)
        before = self._of.get((sink, number))
        pause = FIRST_PAUSE if before is None or busy else min(2 * before.pause, LONGEST_PAUSE)
        self._of[sink, number] = _Refusal(error, reason, busy, pause, time.monotonic() + pause)
        if not busy:  # else it is run, only not here
            generation.refuse(reason)
        return not busy and (before is None or before.reason != reason)

    def due(self, sink: str, number: int) -> bool:
        """Whether a generation may be tried: it was never refused, or long enough ago."""
        known = self._of.get((sink, number))
        return known is None or time.monotonic() >= known.again_at

    def mended(self, sink: str, number: int) -> None:
        """A generation is run now."""
        self._of.pop((sink, number), None)

    def forget(self, sink: str, kept: Collection[int]) -> None:
        """Only these generations of a sink are still to be run."""
        self._of = {which: known for which, known in self._of.items() if which[0] != sink or which[1] in kept}

    def adopt(self, pipeline: Pipeline) -> None:
        """Go by another file: what did not fit the old one may fit now."""
        self.pipeline, self._of = pipeline, {}

    @property
    def stale(self) -> bool:
        """Whether a view does not fit the tables, which may have changed meanwhile."""
        return any(isinstance(known.error, ConfigError) for known in self._of.values())

    @property
    def waits(self) -> bool:
        """Whether one needs nobody to be taken up: what it needs is away, or who has it may let go at any moment."""
        return any(known.busy or known.error.transient for known in self._of.values())

    @property
    def lines(self) -> list[str]:
        """What is the matter, a text each."""
        return [Line(known.reason, sink=sink, generation=number) for (sink, number), known in self._of.items()]

    def failure(self) -> HeadwaterError:
        """The error of a command that has nothing left to run."""
        errors = [known.error for known in self._of.values()]
        return errors[0] if len(errors) == 1 else StateError("no sink can be run:\n" + "\n".join(self.lines))


def explained(pipeline: Pipeline, sink: str, number: int, error: HeadwaterError) -> str:
    """What to tell of a generation that can't be run: which, why, and the command that mends it."""
    title = f"sink {sink}, generation {number}, is not run: "
    return title + str(with_way_out(pipeline, sink, number, error))


def with_way_out(pipeline: Pipeline, sink: str, number: int, error: HeadwaterError) -> HeadwaterError:
    """The same error, with the command that helps a generation that goes on as it was defined."""
    stage = register_of(pipeline, sink).get(number).stage
    fix, means = error.fix, error.means
    file = pipeline.file or "FILE"
    if stage in ("previous", "ready"):
        retire = f"`headwater retire {file} {sink} --generation {number}`, which readers do not see"
        fix = retire if isinstance(error, ConfigError) or not fix else f"{fix}; or {retire}"
    elif isinstance(error, ConfigError) and register_of(pipeline, sink).generation(number).started:
        fix = f"correct {file} there, then `headwater rebuild {file} {sink} --auto` makes it anew"
    if isinstance(error, ConfigError):
        means = "nothing of it was changed, and it is not kept up to date; the other sinks go on"
    told = copy(error)
    told.means, told.fix = means, fix
    return told
