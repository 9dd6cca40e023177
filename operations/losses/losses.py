"""A promoted cache that forgets is made again, by a rebuild in a process of its own that ``run`` owns.

A cache may forget: FLUSHALL, a restart without its data, an evicted pointer. What it does not hold is then missing
until each row changes, so a sink with ``on_loss: rebuild`` is filled from offset 0 beside itself and promoted; the
generations that were lost are removed, and what stands in their place is compared with Postgres: after the promotion,
because readers have nothing meanwhile. ``status`` says ``rebuilding`` until then. docs/decisions/caches-that-forget.md.

One with ``on_loss: refuse`` is watched as well: the flows of what was lost fail, with the command that makes it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cdc.ages import at_least
from cdc.errors import Fenced, HeadwaterError
from cdc.journal import Line, all_about
from cdc.pipeline import Pipeline, RedisSink
from cdc.polling import pause_after
from cdc.wording import worded
from operations.child_process import Apart, Start, end_all
from operations.losses import steps
from operations.losses.loss_watch import LossWatch
from operations.state.folder import chosen_sinks, register_of, state_dir
from operations.state.losses import LossNote

if TYPE_CHECKING:
    from operations.run.engine import Engine

# Pauses between two attempts: a server that is flushed once a minute must not be filled every second.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0
# How often the note for `status` is written anew while nothing else happens.
NOTE_SECONDS = 2.0

# What `status` tells of steps that say nothing for seconds; a rebuild begins, and then says how far it is.
_SAYS = {"promote": "readers are sent to what is complete", "retire": "readers see it; what was lost is removed"}

Next = Literal["remove", "promote", "again"]


def next_step(*, living_is_there: bool, ready: bool) -> Next:
    """What to do when a child has ended, however it did. Pure.

    Args:
        living_is_there: readers see a generation that is not lost.
        ready: a generation waits to be promoted, and is not lost.

    Returns:
        ``remove`` the lost ones; ``promote`` what is complete; ``again`` from the beginning, after a pause.
    """
    if living_is_there:
        return "remove"
    return "promote" if ready else "again"


@dataclass
class _Healing:
    """One sink that is being made again."""

    sink: str
    since: float = field(default_factory=time.time)
    attempt: int = 0
    due: float = 0.0  # on the monotonic clock
    child: Apart[Any] | None = None
    doing: str = ""
    progress: str = ""
    error: str | None = None
    noted: float = 0.0


class Losses:
    """Notices that caches have forgotten, and has promoted ones made again, or the flows of what was lost fail, as the
    file says. For the thread that steps the engine.

    Args:
        pipeline: the loaded file.
        file: its path.
        only: the sinks that this process runs; none for all.
        master: where Spark runs, if not where the file says.
        start: begins a step in a process of its own.
        let_go: ends what somebody else in this process builds of a sink. Two builders would be in each other's way, and
            that of the file's next generation shows it only when it has compared it: readers have nothing meanwhile.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        file: Path,
        only: Sequence[str] = (),
        master: str | None = None,
        start: Start = Apart,
        let_go: Callable[[str], None] = lambda _sink: None,
    ) -> None:
        self.pipeline, self.file, self.master, self.start = pipeline, file, master, start
        self.let_go = let_go
        self.sinks = _rebuilt(pipeline, only)
        self.healing: dict[str, _Healing] = {}
        for name in self.sinks:
            self._note_of(name).clear()  # of a process that has ended
        self.watch = LossWatch(pipeline, _caches(pipeline, only))

    def adopt(self, pipeline: Pipeline, only: Sequence[str]) -> None:
        """Go by another file; sinks that are not in it are not made again."""
        self.pipeline, self.sinks = pipeline, _rebuilt(pipeline, only)
        over = [one for name, one in self.healing.items() if name not in self.sinks]
        end_all(one.child for one in over if one.child is not None)
        for one in over:
            self._over(one)
        self.watch.adopt(pipeline, _caches(pipeline, only))

    @property
    def busy(self) -> bool:
        """Whether a sink is being made again, or may have to be: then there is work although all flows have failed."""
        return self.watch.pending or bool(self.healing)

    def step(self, engine: Engine) -> list[str]:
        """Look and act once; returns what happened, a line each. Waits for nothing."""
        said: list[str] = []
        self.watch.follow(_held(engine), engine.runner.running)
        for sink in self.sinks:
            one = self.healing.get(sink)
            if sink in engine.paused:
                said += all_about(self._left_alone(one), sink=sink)
                continue
            if one is None:
                if self._is_lost(sink):
                    self.healing[sink] = one = _Healing(sink)
                    self._stop_lost(engine, sink)
                    text = f"sink {sink}: its server has forgotten what readers saw; it is made again from offset 0"
                    said.append(Line(text, sink=sink))
                else:
                    continue
            said += all_about(self._step(engine, one), sink=sink)
        for sink in self.watch.sinks:
            if sink not in self.sinks:
                said += self._refuse(engine, sink)
        return said

    def _refuse(self, engine: Engine, sink: str) -> list[str]:
        """Have the flows of what a cache has lost fail, once; one that is opened anew finds it as lost as before."""
        said: list[str] = []
        for number in self.watch.lost(sink):
            folder = register_of(self.pipeline, sink).generation(number).folder
            what = f"sink {sink}: its server has lost what generation {number} had written"
            reason = worded(
                what,
                means="it was emptied, was started without its newest data, or has evicted the key that tells: "
                "documents that do not change again would be missing, or old, for ever",
                fix=f"`headwater rebuild FILE {sink} --auto` makes them again; with on_loss: rebuild `run` does",
            )
            flows = [run for run in engine.runner.running if run.flow.folder.parent == folder]
            if any(run.last_error != reason and not run.taken for run in flows):
                engine.runner.fail(folder, reason)
                text = f"warning: {what}; on_loss is refuse, so its flows have failed"
                said.append(Line(text, sink=sink, generation=number))
        return said

    def _left_alone(self, one: _Healing | None) -> list[str]:
        """The sink is paused: what is under way ends by itself; it begins anew after `resume`, if still lost."""
        if one is None or (one.child is not None and not one.child.ended()):
            return []
        if one.child is not None:
            one.child.end()
        self._over(one)
        return [f"sink {one.sink}: it is not made again while it is paused"]

    def _is_lost(self, sink: str) -> bool:
        return self.watch.is_lost(sink, register_of(self.pipeline, sink).living())

    def _stop_lost(self, engine: Engine, sink: str) -> None:
        for number in self.watch.lost(sink):
            # It outlives this process: what it says is read when nobody makes anything.
            what = f"sink {sink}: generation {number} was lost with its server's data, and a new one is not made yet"
            reason = worded(what, fix="`headwater run FILE` makes it; while that runs, wait")
            engine.runner.fail(register_of(self.pipeline, sink).generation(number).folder, reason)

    def _step(self, engine: Engine, one: _Healing) -> list[str]:
        said: list[str] = []
        if one.child is not None and one.doing == "verify" and self._is_lost(one.sink):
            one.child.end()
            self._over(one)  # the next step begins anew
            return [f"sink {one.sink}: its server has forgotten again while it was compared"]
        if one.child is not None:
            ended, lines = one.child.ended(), one.child.lines()
            one.progress = lines[-1] if lines else one.progress
            said += [f"{one.sink}, being made again: {line}" for line in lines]
            if ended:
                said += self._ended(one, one.child)
        elif one.attempt and not self._is_lost(one.sink):  # who builds what the file says has made it again
            said += self._shown(one, register_of(self.pipeline, one.sink).living())
        elif time.monotonic() >= one.due:
            one.attempt += 1
            self._stop_lost(engine, one.sink)
            self.let_go(one.sink)
            self._begin(one, steps.rebuild, one.sink, self.master, steps.LOST)
        waits = one.sink in self.healing and one.doing != "verify"
        if waits and time.monotonic() - one.noted > NOTE_SECONDS:
            one.noted = time.monotonic()
            self._note_of(one.sink).write(one.since, one.attempt, one.doing, one.progress, one.error)
        return said

    def _begin(self, one: _Healing, step: Callable[..., Any], *arguments: Any) -> None:
        one.doing, one.progress = step.__name__, _SAYS.get(step.__name__, "")
        one.child = self.start(step, self.pipeline, self.file, *arguments)

    def _ended(self, one: _Healing, child: Apart[Any]) -> list[str]:
        equal, error, verb = None, None, one.doing
        try:
            equal = child.result()
        except HeadwaterError as failure:
            error = str(failure)
        child.end()
        one.child, one.doing = None, ""
        if verb == "verify":
            return self._compared(one, equal, error)
        register = register_of(self.pipeline, one.sink)
        self.watch.look()  # what was lost before the child began may be lost no more, and the other way round
        lost = self.watch.lost(one.sink)
        living, ready = register.living(), register.newest("ready")
        waits = ready is not None and not self.watch.gone(one.sink, ready.number)
        there = living not in lost and not self.watch.gone(one.sink, living)
        match next_step(living_is_there=there, ready=waits):
            case "remove":
                return self._shown(one, living, refused=verb == "retire" and error is not None)
            case "promote" if verb != "promote":
                assert ready is not None
                self._begin(one, steps.promote, one.sink, ready.number)
                return []
            case _:
                if ready is not None and not waits and not (verb == "retire" and error):
                    self._begin(one, steps.retire, one.sink, ready.number)  # it was lost too, and is in the way
                    return []
                pause = pause_after(one.attempt, FIRST_PAUSE, LONGEST_PAUSE)
                one.progress = ""  # of what has come to nothing: it would be told as if it went on
                one.due, one.error = time.monotonic() + pause, error or "readers still have nothing"
                return [f"sink {one.sink}: {verb} failed, again in {pause:.0f} s: {one.error}"]

    def _shown(self, one: _Healing, living: int, *, refused: bool = False) -> list[str]:
        """Readers see a generation that is not lost: remove those that are, unless that was refused, and compare it."""
        register = register_of(self.pipeline, one.sink)
        gone = [number for number in self.watch.lost(one.sink) if number in register.kept()]
        if gone and not refused:
            self._begin(one, steps.retire, one.sink, gone[0])
            return [f"sink {one.sink}: readers see generation {living} since {self._for(one)} after the loss"]
        self._note_of(one.sink).clear()
        self._begin(one, steps.verify, one.sink, living)
        return [f"sink {one.sink}: made again in {self._for(one)}, generation {living}; comparing it now"]

    def _compared(self, one: _Healing, equal: bool | None, error: str | None) -> list[str]:
        """The end: what stands in the place of the lost ones was held against Postgres, or could not be."""
        self._over(one)
        if equal:
            return [f"sink {one.sink}: what was made again equals Postgres"]
        warning = f"warning: sink {one.sink}: what was made again"
        verify = f"`headwater verify {self.file} --sink {one.sink}`"
        if equal is False:
            return [f"{warning} differs from Postgres: {verify} --repair"]
        return [f"{warning} could not be compared ({error}): {verify} does it later"]

    @staticmethod
    def _for(one: _Healing) -> str:
        return f"{at_least(one.since, time.time()):.0f} s"

    def _over(self, one: _Healing) -> None:
        del self.healing[one.sink]
        self._note_of(one.sink).clear()

    def _note_of(self, sink: str) -> LossNote:
        return LossNote(state_dir(self.pipeline) / self.pipeline.name / sink)

    def close(self) -> None:
        """End what it has begun: a rebuild goes on at the next start. Idempotent."""
        self.watch.close()
        end_all(one.child for one in self.healing.values() if one.child is not None)
        for one in self.healing.values():
            one.child = None
            self._note_of(one.sink).clear()


def _caches(pipeline: Pipeline, only: Sequence[str]) -> list[str]:
    """Sinks whose servers may forget."""
    return [name for name in chosen_sinks(pipeline, only) if isinstance(pipeline.sinks[name], RedisSink)]


def _rebuilt(pipeline: Pipeline, only: Sequence[str]) -> list[str]:
    """Those that are made again then."""
    caches = ((name, pipeline.sinks[name]) for name in chosen_sinks(pipeline, only))
    return [name for name, cache in caches if isinstance(cache, RedisSink) and cache.on_loss == "rebuild"]


def _held(engine: Engine) -> Iterator[tuple[str, int]]:
    """Sinks and generations that this process holds the lease of."""
    for build in engine.builds:
        with suppress(Fenced):
            build.generation.lease.check()
            yield build.sink, build.generation.number
