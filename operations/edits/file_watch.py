"""A `run` that is alive follows the file that is applied: sinks come and go, changed views get their next generation.

Flows that nothing has changed for go on. A file that is wrong, or that asks for what only a new process can do, changes
nothing: `status` says why, and the process goes on with the file that it has. docs/decisions/file-edits.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError, DiskFull, HeadwaterError
from cdc.journal import Line, all_about
from cdc.pipeline import Pipeline, Sink, loads
from cdc.polling import pause_after
from operations.child_process import Apart, Start, end_all
from operations.edits.build import build, left_behind, remove_left
from operations.edits.changes import Changes, changes_between, other_catalogue
from operations.generations.outdated import asked, gone_back_from, taken_back
from operations.run.machines import check_machines, with_master
from operations.run.session import warehouse_settings
from operations.state.accepted import (
    Text,
    accepted_path,
    cut_builds,
    note_running,
    read_accepted,
    read_runs,
    this_process,
)
from operations.state.catalogue import source_catalogue
from operations.state.folder import register_of
from spark.disk.files import stamp

if TYPE_CHECKING:
    from operations.losses.losses import Losses
    from operations.run.engine import Engine
    from operations.run.source_watch import SourceWatch

# Pauses between two attempts at a next generation: what keeps it from being built is mended by a person, or comes back.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 120.0
# Between two looks whether a generation can be filled: views are resolved for each. And when it is said that it waits.
WAIT_SECONDS, TELL_SECONDS = 1.0, 10.0


@dataclass
class _Building:
    """One sink whose next generation is built, or what was begun of one is removed."""

    sink: str
    work: Callable[..., Any] = build
    child: Apart[Any] | None = None
    attempt: int = 0
    due: float = 0.0  # on the monotonic clock
    waits_since: float | None = None
    told: bool = False
    error: str = ""

    def wait(self) -> list[str]:
        """It can't be filled yet; said once, if that takes long."""
        now = time.monotonic()
        self.due, self.waits_since = now + WAIT_SECONDS, now if self.waits_since is None else self.waits_since
        if self.told or now - self.waits_since < TELL_SECONDS:
            return []
        self.told = True
        what = f"sink {self.sink}: its next generation waits until rows of tables that it reads are read again"
        return [Line(f"{what} (`evolving` in status)", sink=self.sink)]


class FileWatch:
    """Looks whether another file was applied, and takes it up. For the thread that steps the engine.

    Args:
        engine: what runs.
        source: what watches its source.
        losses: what makes caches again.
        taken: the pipeline file as this process has read it.
        only: the sinks that this process runs; none for all.
        master: where Spark runs, if not where the file says.
        start: begins a build in a process of its own.
        let_go: ends what somebody else in this process builds of a sink: two builders would be in each other's way, and
            the other's is of tables and a file as they were.
        may_build: whether a sink's next generation can be filled: not before what it needs was read.
    """

    def __init__(
        self,
        engine: Engine,
        source: SourceWatch,
        losses: Losses,
        taken: Text,
        only: Sequence[str] = (),
        master: str | None = None,
        start: Start = Apart,
        let_go: Callable[[str], None] = lambda _sink: None,
        may_build: Callable[[str], bool] = lambda _sink: True,
    ) -> None:
        self.engine, self.source, self.losses = engine, source, losses
        self.master, self.start, self.let_go, self.may_build = master, start, let_go, may_build
        self.only = self._asked = tuple(only)
        self.taken = taken
        self.plain = loads(self.taken.text, self.taken.file)  # without --master: as others see it
        self._known = _warehouses(self.plain)  # as Spark's session was told of them, also of those that have gone since
        cut = cut_builds(read_runs(engine.pipeline), self.taken, self.only or self.plain.sinks)
        self.building = {name: _Building(name) for name in cut}  # killed in the middle: it goes on
        self.refused: dict[str, Any] | None = None
        with suppress(HeadwaterError):  # what can't be read is told by who runs it
            # Also of a file that another one has followed while nobody ran.
            rebuilt = changes_between(self.plain, self.plain, self.only).rebuilt
            self._remove(self._left(self.plain, {*rebuilt, *self.building}))
        self._seen = None if self._applied_since() else stamp(accepted_path(self.engine.pipeline))
        self._owed = False  # what is noted is not what is so: it could not be written
        self._note()

    def step(self) -> list[str]:
        """Look and act once; returns what happened, a line each. Waits for nothing but the source's catalogue."""
        said: list[str] = []
        if self._owed:
            self._note()
        now = stamp(accepted_path(self.engine.pipeline))
        if now != self._seen:
            said += self._look()
            self._seen = now
        for one in list(self.building.values()):
            said += all_about(self._build(one), sink=one.sink)
        return said

    # -- another file -------------------------------------------------------------------------------------------------

    def _applied_since(self) -> bool:
        """Whether a file was applied after this process had read its own: servers and Spark were waited for."""
        try:
            found = read_accepted(self.engine.pipeline)
        except HeadwaterError:
            return True  # the first look says so
        return found is not None and found.at > self.taken.at

    def _look(self) -> list[str]:
        found: Text | None = None
        try:
            found = read_accepted(self.engine.pipeline)
            if found is None:
                return []
            if found.digest == self.taken.digest:
                self.refused = None
                said = self._ask_for()
                self._note()
                return said
            return self._take_up(found)
        except HeadwaterError as error:
            return self._refuse(found, error)

    def _ask_for(self) -> list[str]:
        """Next generations of a file that it began with before it was applied: `apply` has promised them."""
        rebuilt = changes_between(self.plain, self.plain, self.only).rebuilt
        new = {sink: because for sink, because in rebuilt.items() if sink not in self.building}
        self.building |= {sink: _Building(sink) for sink in new}
        return _begun(new)

    def _take_up(self, found: Text) -> list[str]:
        plain = loads(found.text, found.file)
        changes = changes_between(self.plain, plain, self.only)
        left = self._left(plain, changes.rebuilt)
        if restart := [*changes.restart, *self._other_catalogues(plain, changes.added)]:
            raise ConfigError(
                f"{', '.join(restart)} changed",
                means="this process was made with the old words",
                fix="start `headwater run` again",
            )
        pipeline = with_master(plain, self.master)
        catalogue = source_catalogue(pipeline)
        self._learn(pipeline, changes.added)
        only = tuple(name for name in self.only if name in pipeline.sinks)
        self.taken, self.plain, self.only, self.refused = found, plain, only, None
        said = [f"the file that was applied is taken up ({found.digest})"]
        said += self.engine.adopt(pipeline, catalogue, only, changes.reopened)
        self.losses.adopt(pipeline, only)
        self.source.pipeline = pipeline
        said += [*self._rebuild(changes), *self._remove(left)]
        self._note()
        return said

    def _other_catalogues(self, plain: Pipeline, added: Sequence[str]) -> list[str]:
        """Keys of warehouses that come back, and were reached otherwise before they had gone."""
        again = [name for name in added if name in self._known]
        return [f"sinks.{one}.{key}" for one in again for key in other_catalogue(self._known[one], plain.sinks[one])]

    def _learn(self, pipeline: Pipeline, added: Sequence[str]) -> None:
        """Let the session know the catalogues of new warehouses: it reads these settings when a catalogue is first
        named, and a query takes them along as it starts."""
        for name, value in warehouse_settings(pipeline, added).items():
            self.engine.spark.conf.set(name, value)
        if added:
            check_machines(pipeline, added, self.engine.spark)
        self._known |= _warehouses(pipeline)  # not of a file that is refused: nobody has opened what it names

    def _refuse(self, found: Text | None, error: HeadwaterError) -> list[str]:
        digest, at = (found.digest, found.at) if found else (None, time.time())
        self.refused = {"digest": digest, "at": at, "reason": str(error)}
        self._note()
        return [f"warning: the file that was applied is not taken up; what runs goes on as it was: {error}"]

    def _note(self) -> None:
        """Say what this process goes by; where there is no room for that, at one of the next steps: what runs needs no
        note, and whoever acts has things to tell that nobody would say again."""
        now = this_process(self.taken, refused=self.refused, building=self._built(), only=self.only)
        self._owed = True
        with suppress(OSError, DiskFull):
            note_running(self.engine.pipeline, now, self._asked)
            self._owed = False

    # -- next generations ---------------------------------------------------------------------------------------------

    def _rebuild(self, changes: Changes) -> list[str]:
        """Begin what the file asks for, and end what an older one has asked for: it would fill the wrong documents."""
        end_all(one.child for one in self.building.values() if one.child is not None)
        self.building = {name: _Building(name) for name in changes.rebuilt}
        return _begun(changes.rebuilt)

    def _built(self) -> tuple[str, ...]:
        return tuple(name for name, one in self.building.items() if one.work is build)

    def _left(self, plain: Pipeline, rebuilt: Collection[str]) -> dict[str, list[int]]:
        """What an older file has asked for, of sinks of which this one asks for nothing: their generations' numbers."""
        found: dict[str, list[int]] = {}
        for sink in [name for name in plain.sinks if name not in rebuilt and (not self.only or name in self.only)]:
            with suppress(HeadwaterError):  # what can't be read of one sink is told by who runs it
                found[sink] = left_behind(plain, sink, idle=sink in self._built())
        return {sink: numbers for sink, numbers in found.items() if numbers}

    def _remove(self, left: Mapping[str, Sequence[int]]) -> list[str]:
        """Begin to remove them; their builders have ended."""
        self.building |= {sink: _Building(sink, remove_left) for sink in left}
        return [
            Line(f"sink {sink}: generation {number} was begun for an older file, and is removed", sink=sink)
            for sink, numbers in left.items()
            for number in numbers
        ]

    def _build(self, one: _Building) -> list[str]:
        if one.child is None:
            healing = one.sink in self.losses.healing  # a builder is at work: a sink has one at a time
            due = time.monotonic() >= one.due and one.sink not in self.engine.paused and not healing
            if due and one.work is build and (left := self._taken_back(one.sink)) is not None:
                del self.building[one.sink]
                self._note()
                return [f"warning: sink {one.sink}: {taken_back(one.sink, left, self.taken.file)}"]
            if due and one.work is build and not self.may_build(one.sink):
                return one.wait()
            if due:
                one.attempt += 1
                self.let_go(one.sink)
                one.child = self.start(one.work, self.taken, one.sink, self.master)
            return []
        ended, title = one.child.ended(), f"{one.sink}, its next generation: " if one.work is build else ""
        said = [title + line for line in one.child.lines()]
        return said + self._ended(one, one.child) if ended else said

    def _taken_back(self, sink: str) -> int | None:
        """The generation that a person went back from, since this was begun: a builder that was killed behind its
        promotion, or whose end nobody has noted, would show another one like it."""
        with suppress(HeadwaterError):  # what can't be read is told by who runs it
            return gone_back_from(self.plain, register_of(self.engine.pipeline, sink))
        return None

    def give_way(self, sink: str) -> None:
        """End what is built of a sink, whoever does it: its cache was lost and is made again. Ours goes on then."""
        self.let_go(sink)
        one = self.building.get(sink)
        if one is not None and one.child is not None:
            one.child.end()
            one.child, one.due = None, 0.0

    def _ended(self, one: _Building, child: Apart[Any]) -> list[str]:
        try:
            equal = bool(child.result())
        except HeadwaterError as error:
            child.end()
            pause = pause_after(one.attempt, FIRST_PAUSE, LONGEST_PAUSE)
            one.child, one.due = None, time.monotonic() + pause
            news = str(error) != one.error
            one.error = str(error)
            what = "its next generation is not built"
            what = what if one.work is build else "what was begun for an older file is not removed"
            return [f"warning: sink {one.sink}: {what}, again in {pause:.0f} s: {error}"] * news
        child.end()
        del self.building[one.sink]
        self._note()
        if one.work is not build:
            return self._led_back(one.sink)
        if equal:
            before = (
                "the generation of before stays for `headwater rollback`, until `headwater retire`, or the next build"
            )
            return [f"sink {one.sink}: readers see what the file says now ({before})"]
        ready = register_of(self.engine.pipeline, one.sink).newest("ready")
        number = "N" if ready is None else ready.number
        verify = f"`headwater verify {self.taken.file} --sink {one.sink} --generation {number} --repair`"
        return [f"warning: sink {one.sink}: its next generation differs from Postgres and is not shown: {verify}"]

    def _led_back(self, sink: str) -> list[str]:
        """Build what the file says if readers were sent to the older file's generation all the same: its promotion had
        begun, and was ended by `run`."""
        because: Sequence[str] = ()
        with suppress(HeadwaterError):  # what can't be read is told by who runs it
            because = asked(self.plain, register_of(self.engine.pipeline, sink))
        if not because:
            return []
        self.building[sink] = _Building(sink)
        self._note()
        return _begun({sink: because})

    def close(self) -> None:
        """End what it has begun: it goes on at the next start. Idempotent."""
        end_all(one.child for one in self.building.values() if one.child is not None)
        for one in self.building.values():
            one.child = None


def _warehouses(pipeline: Pipeline) -> dict[str, Sink]:
    return {name: sink for name, sink in pipeline.sinks.items() if sink.form == "columns"}


def _begun(rebuilt: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        Line(f"sink {sink}: its next generation is built, because {', '.join(because[:3])}", sink=sink)
        for sink, because in rebuilt.items()
    ]
