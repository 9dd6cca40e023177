"""The source's tables change while sinks run: noticed, decided, and done by the process that runs them.

Flows whose target can hold what comes start again with the new columns; where Postgres wrote rows anew that no log
has, the table is read again; where a target can't hold it, the generation goes on as it was, and another one is built
beside it, which readers see once it equals Postgres. docs/schema-changes.md, docs/decisions/schema-evolution.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.shapes import Shape
from connectors.postgres import connect
from connectors.shapes import read_shapes
from operations.apart import Apart
from operations.generations.retire import retire
from operations.kept_shapes import (
    Evolution,
    Todo,
    read_allowed,
    read_evolution,
    read_frozen,
    remember_shapes,
    write_evolution,
    write_progress,
)
from operations.rebuild import build_next
from operations.run.machines import with_master
from operations.schema.act import Acted, act
from operations.schema.decide import combined
from operations.schema.steps import Step, read_again, show
from operations.schema.watch import Look, ShapeWatch
from operations.state_folder import chosen_sinks, register_of
from spark.register import add_table

if TYPE_CHECKING:
    from operations.run.engine import Engine

Start = Callable[..., Apart[Any]]
# Pauses between two attempts at a step: a server that is away is asked again soon, one that refuses now and then.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
# A flow that met records of an unknown shape is tried again this soon at the earliest: a look takes moments.
DOUBT_SECONDS = 0.5
PROGRESS_SECONDS = 2.0


def catch_up(pipeline: Pipeline, only: Sequence[str], say: Callable[[str], None]) -> None:
    """Decide what has happened to the tables while nobody ran; before any flow is opened.

    A source that does not answer is looked at later: flows go on with the tables as they were known.

    Args:
        pipeline: the loaded file.
        only: sinks; none for all.
        say: told what was decided, a line each.

    Raises:
        StateError: what is kept of it can't be read (terminal).
    """
    try:
        with connect(pipeline.source) as connection:
            look = Look(*read_shapes(connection, pipeline.source.tables, absent=[]))
    except HeadwaterError:
        return
    catalogue = remember_shapes(pipeline, look.shapes).told_to(look.catalogue)
    known = {sink: read_evolution(pipeline, sink) for sink in chosen_sinks(pipeline, only)}
    acted = _acted(pipeline, known, look.shapes, catalogue, read_allowed(pipeline))
    for line in dict.fromkeys(line for _, one in acted for line in one.said):
        say(line)


def _acted(
    pipeline: Pipeline,
    known: Mapping[str, Evolution],
    shapes: Mapping[str, Shape],
    catalogue: Catalogue,
    allowed: Mapping[str, Shape],
    broken: Collection[str] = (),
) -> list[tuple[str, Acted]]:
    """Bring each sink's state to the tables as they are, on disk as well; with what follows from it, by sink."""
    found = []
    for sink, before in known.items():
        acted = act(pipeline, sink, catalogue, shapes, replace(before, allowed=allowed), broken)
        if acted.evolution != before:
            write_evolution(pipeline, sink, acted.evolution)
        found.append((sink, acted))
    return found


class Evolving:
    """For the thread that steps the engine; waits for nothing.

    Args:
        pipeline: the loaded file.
        file: its path.
        only: the sinks that this process runs; none for all.
        master: where Spark runs, if not where the file says.
        start: begins a step in a process of its own.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        file: Path,
        only: Sequence[str] = (),
        master: str | None = None,
        start: Start = Apart,
    ) -> None:
        self.pipeline, self.file, self.only, self.master, self.start = pipeline, file, only, master, start
        self.evolutions = {sink: read_evolution(pipeline, sink) for sink in chosen_sinks(pipeline, only)}
        self._allowed = read_allowed(pipeline)
        self._watch = ShapeWatch(pipeline)
        self._child: Apart[Any] | None = None
        self._doing: Step | None = None
        self._due, self._pause = 0.0, FIRST_PAUSE
        self._asked = 0.0
        self._broken: set[str] = set()
        self._told, self._progress = 0.0, ""

    @property
    def busy(self) -> bool:
        """Whether something is under way that sinks wait for."""
        return any(not todo.waits for _, _, todo in self._todo())

    def _todo(self) -> Iterator[tuple[str, str, Todo]]:
        """Everything that is under way: sink, table, what."""
        for sink, evolution in self.evolutions.items():
            for table, todo in evolution.todo.items():
                yield sink, table, todo

    def step(self, engine: Engine, broken: Collection[str] = (), healing: Collection[str] = ()) -> list[str]:
        """Look and act once; returns what happened, a line each.

        Args:
            engine: whose flows are meant.
            broken: tables whose changes are missing in their topics: mended by hand first.
            healing: sinks that are being made again for another reason.
        """
        said: list[str] = []
        self._adopt(engine.pipeline)
        if self._broken - set(broken):  # mended: what was left alone until then is looked at, and tried, now
            self._watch.ask()
            self._due, self._pause = 0.0, FIRST_PAUSE
        self._broken = set(broken)
        if engine.runner.doubting and time.monotonic() - self._asked > DOUBT_SECONDS:
            self._asked = time.monotonic()
            self._watch.ask()
        look = self._watch.newest()
        allowed = read_allowed(self.pipeline)
        if allowed != self._allowed:
            self._allowed = allowed
            self._watch.ask()
        if look is not None:
            said += self._follow(engine, look, broken)
        self._hold(engine)
        return said + self._work(engine, healing)

    def _adopt(self, pipeline: Pipeline) -> None:
        """Go by the file that the engine goes by."""
        if pipeline is self.pipeline:
            return
        known, self.pipeline = self.evolutions, pipeline
        named = [name for name in self.only if name in pipeline.sinks]
        self.evolutions = {
            sink: known.get(sink) or read_evolution(pipeline, sink) for sink in chosen_sinks(pipeline, named)
        }
        self._watch.follow(pipeline)

    def _follow(self, engine: Engine, look: Look, broken: Collection[str]) -> list[str]:
        """Bring flows to the tables as they are now."""
        catalogue = remember_shapes(self.pipeline, look.shapes).told_to(look.catalogue)
        retake, said, begun = set[tuple[str, int]](), list[str](), False
        for sink, acted in _acted(self.pipeline, self.evolutions, look.shapes, catalogue, self._allowed, broken):
            known = self.evolutions[sink].todo
            begun |= any(known.get(table) != todo for table, todo in acted.evolution.todo.items())
            self.evolutions[sink] = acted.evolution
            retake |= acted.retake
            said += acted.said
        if begun:
            self._interrupt(retake)
        doubting = engine.runner.doubting
        # A look that has found nothing new leaves nothing to wait for: what does not fit is no column of the table.
        engine.catalogue = replace(catalogue, lsn=0) if doubting and not retake else catalogue
        for build in list(engine.builds):
            if (build.sink, build.number) in retake or build.generation.folder in doubting:
                engine.take_again(build)
        return list(dict.fromkeys(said))

    def _interrupt(self, retake: Collection[tuple[str, int]]) -> None:
        """What is being built, or read, of tables as they were until now begins anew."""
        if self._child is not None:
            self._child.end()
            self._child, self._doing = None, None
        building = {sink for sink, _, todo in self._todo() if todo.rebuild}
        for sink in building & {sink for sink, _ in retake}:
            begun = register_of(self.pipeline, sink).newest("filling")
            if begun is not None:
                retire(self.pipeline, sink, begun.number, lambda line: None)

    def _hold(self, engine: Engine) -> None:
        """Stop what can't follow, and what waits for a word."""
        for build in engine.builds:
            todo = self.evolutions[build.sink].todo if build.sink in self.evolutions else {}
            reasons = {self.pipeline.topic(t): why for t, why in read_frozen(build.generation).refused.items()}
            reasons |= {self.pipeline.topic(t): self._waits(t, one) for t, one in todo.items() if one.waits}
            if reasons:
                engine.runner.halt(reasons, build.generation.folder)

    def _waits(self, table: str, todo: Todo) -> str:
        return (
            f"table {table}: {', '.join(todo.what)}; policy.schema is {self.pipeline.policy.schema_}\n"
            f"  what to do: look at `headwater plan {self.file}`, then `headwater apply {self.file}` goes on"
        )

    # -- what takes long ---------------------------------------------------------------------------------------------

    def _work(self, engine: Engine, healing: Collection[str]) -> list[str]:
        if self._child is not None:
            return self._look_at(engine, self._child)
        if time.monotonic() < self._due:
            return []
        todo = [(sink, table, one) for sink, table, one in self._todo() if not one.waits]
        asked: dict[str, list[str]] = {table: [] for _, table, one in todo if one.read is not None or one.capture}
        for _, table, one in todo:
            if one.read is not None:
                asked[table].append(one.read)
        reading = {table: combined(reads) for table, reads in asked.items()}
        sinks = sorted({sink for sink, _, one in todo if one.rebuild} - set(healing))
        pipeline = with_master(self.pipeline, self.master)
        if reading:
            sweep = sorted({table for _, table, one in todo if one.sweep})
            self._begin(Step("read", tables=tuple(sorted(reading))), read_again, pipeline, reading, sweep)
            return [f"reading again: {', '.join(sorted(reading))}"]
        if shown := next(((sink, table) for sink, table, one in todo if one.show), None):
            return self._show(engine, pipeline, *shown)
        if sinks:
            self._begin(Step("build", sinks[0]), build_next, pipeline, self.file, sinks[0])
            return [f"sink {sinks[0]}: a new generation is built beside the living one"]
        return []

    def _begin(self, step: Step, work: Callable[..., Any], *arguments: Any) -> None:
        self._doing, self._child = step, self.start(work, *arguments)

    def _take_up(self, engine: Engine, sink: str, table: str) -> bool:
        """Let the generations of a sink of whole tables keep a new one too; whether it is such a sink."""
        if self.pipeline.sinks[sink].tables != "all":
            return False
        for build in [build for build in engine.builds if build.sink == sink]:
            if add_table(build.generation, table):
                engine.take_again(build)
        return True

    def _show(self, engine: Engine, pipeline: Pipeline, sink: str, table: str) -> list[str]:
        """Let readers see a table that was taken up."""
        living = register_of(pipeline, sink).living()
        views = [view.name for b in engine.builds if (b.sink, b.number) == (sink, living) for view in b.views_of(table)]
        if not views:  # its generation does not run here just now
            self._due = time.monotonic() + FIRST_PAUSE
            return []
        self._begin(Step("show", sink, (table,)), show, pipeline, sink, living, views[0])
        return []

    def _look_at(self, engine: Engine, child: Apart[Any]) -> list[str]:
        assert self._doing is not None
        lines = child.lines()
        if lines:
            self._progress = lines[-1]
        if time.monotonic() - self._told > PROGRESS_SECONDS:
            self._told = time.monotonic()
            write_progress(self.pipeline, self._doing.title, self._progress)
        said = [f"{self._doing.title}: {line}" for line in lines]
        return said + (self._ended(engine, child, self._doing) if child.ended() else [])

    def _ended(self, engine: Engine, child: Apart[Any], step: Step) -> list[str]:
        error = ""
        try:
            if child.result() is False:
                error = "what was built differs from Postgres; it is compared again"
        except HeadwaterError as failure:
            error = str(failure)
        child.end()
        self._child, self._doing, self._progress = None, None, ""
        write_progress(self.pipeline, "", "")
        for sink, table, todo in list(self._todo()):
            if step.concerns(sink, table):
                left = replace(todo, error=error) if error else step.done(todo)
                if todo.new and not error:
                    left = replace(left, new=False, show=self._take_up(engine, sink, table))
                self.evolutions[sink] = self.evolutions[sink].having(table, left)
                write_evolution(self.pipeline, sink, self.evolutions[sink])
        if error:
            self._due, self._pause = time.monotonic() + self._pause, min(self._pause * 2, LONGEST_PAUSE)
            return [f"warning: {step.title}: {error}; again in a moment"]
        self._pause = FIRST_PAUSE
        return [step.end]

    def close(self) -> None:
        """End what was begun; it goes on at the next start. Idempotent."""
        self._watch.close()
        if self._child is not None:
            self._child.end()
            self._child = None
        write_progress(self.pipeline, "", "")


__all__ = ["Evolving", "catch_up"]
