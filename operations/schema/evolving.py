"""The source's tables change while sinks run: noticed, decided, and done by the process that runs them.

Flows whose target can hold what comes start again with the new columns; where Postgres wrote rows anew that no log
has, the table is read again; where a target can't hold it, the generation goes on as it was, and another one is built
beside it, which readers see once it equals Postgres. docs/schema-changes.md, docs/decisions/schema-evolution.md.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, HeadwaterError
from cdc.outbox import by_topic
from cdc.pipeline import Pipeline
from cdc.resolve.views import resolve_views, view_tables
from cdc.saying import Say
from cdc.shapes import Shape
from cdc.wording import worded
from connectors.postgres import connect
from connectors.tables.shapes import read_shapes
from operations.child_process import Apart, Start
from operations.rebuild.next_one import build_next
from operations.run.machines import with_master
from operations.schema.act import Acted, act, owed_to
from operations.schema.decide import ALL_ROWS, combined
from operations.schema.joining import take_up
from operations.schema.steps import Step, capture, read_again, show, steps_of
from operations.schema.stopped import is_former, still_to_do, with_standing
from operations.schema.watch import Look, ShapeWatch
from operations.schema.work import Work
from operations.state.evolution import Evolution, Todo, read_allowed, read_evolution, write_evolution
from operations.state.folder import chosen_sinks, register_of
from operations.state.frozen import read_frozen
from operations.state.shapes import read_owed, remember_shapes

if TYPE_CHECKING:
    from operations.run.engine import Engine

# A flow that met records of an unknown shape is tried again this soon at the earliest: a look takes moments.
DOUBT_SECONDS = 0.5
# One that doubts again so soon after it was opened with all that is known has met a column that nobody will know.
DOUBT_AGAIN = 30.0


def catch_up(pipeline: Pipeline, only: Sequence[str], say: Say) -> None:
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
        acted = act(pipeline, sink, catalogue, shapes, replace(before, allowed=allowed), broken, known)
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

    Attributes:
        former: folders of generations that nobody reads any more, of which something is stopped.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        file: Path,
        only: Sequence[str] = (),
        master: str | None = None,
        start: Start = Apart,
    ) -> None:
        self.pipeline, self.file, self.only, self.master = pipeline, file, only, master
        self.evolutions = {sink: read_evolution(pipeline, sink) for sink in chosen_sinks(pipeline, only)}
        self._allowed = read_allowed(pipeline)
        self._adopted = time.monotonic()  # the file that it goes by; and that with which it has looked at the tables
        self._looked: Pipeline | None = None
        self._watch = ShapeWatch(pipeline)
        self._look: Look | None = None
        self._asked = 0.0
        self._broken: set[str] = set()
        self._mended: set[str] = set()  # those that were broken while this ran, and are no more
        self._absent: frozenset[str] = frozenset()  # those with something to do that were not there, last time
        self._doubts: dict[Path, float] = {}  # generations that doubt, and since when
        self._doubted: dict[Path, float] = {}  # those that were opened anew because of it, and when
        self._held: dict[Path, list[str]] = {}  # generations of which something is stopped, and the words for it
        self._widened: set[str] = set()  # sinks that are to keep more tables than their flows know of
        self.former: set[Path] = set()  # those of them that nobody reads any more
        self._work = Work(start)

    @property
    def waits(self) -> bool:
        """Whether something is stopped until `headwater apply`."""
        return any(todo.waits for _, _, todo in self._todo())

    @property
    def busy(self) -> bool:
        """Whether something is under way that sinks wait for."""
        return any(not todo.waits for _, _, todo in self._todo())

    def _todo(self) -> Iterator[tuple[str, str, Todo]]:
        """Everything that is under way: sink, table, what."""
        for sink, evolution in self.evolutions.items():
            for table, todo in evolution.todo.items():
                yield sink, table, todo

    def step(self, engine: Engine, broken: Collection[str] = (), busy: Collection[str] = ()) -> list[str]:
        """Look and act once; returns what happened, a line each.

        Args:
            engine: whose flows are meant.
            broken: tables whose changes are missing in their topics: mended by hand first.
            busy: sinks whose generation something else makes, or that are paused: none is built of them here.
        """
        said: list[str] = []
        self._adopt(engine.pipeline)
        if self._broken - set(broken):  # mended: what was left alone until then is looked at, and tried, now
            self._watch.ask()
            self._work.soon()
        self._mended = (self._mended | self._broken) - set(broken)
        self._broken = set(broken)
        now = time.monotonic()
        self._doubts = {folder: self._doubts.get(folder, now) for folder in engine.runner.doubting}
        if self._doubts and now - self._asked > DOUBT_SECONDS:
            self._asked = now
            self._watch.ask()
        self._look = self._watch.newest() or self._look
        allowed = read_allowed(self.pipeline)
        if allowed != self._allowed:
            self._allowed = allowed
            self._watch.ask()
        if self._look is not None:
            said += self._follow(engine, self._look, broken)
            self._look = None  # only now: a disk that was full must not cost what was seen
        self._hold(engine)
        return said + self._work_off(engine, busy)

    def _adopt(self, pipeline: Pipeline) -> None:
        """Go by the file that the engine goes by."""
        if pipeline is self.pipeline:
            return
        known, self.pipeline, self._adopted = self.evolutions, pipeline, time.monotonic()
        named = [name for name in self.only if name in pipeline.sinks]
        self.evolutions = {
            sink: known.get(sink) or read_evolution(pipeline, sink) for sink in chosen_sinks(pipeline, named)
        }
        self._watch.follow(pipeline)

    def _follow(self, engine: Engine, look: Look, broken: Collection[str]) -> list[str]:
        """Bring flows to the tables as they are now."""
        catalogue = remember_shapes(self.pipeline, look.shapes).told_to(look.catalogue)
        retake, said, begun = set[tuple[str, int]](), list[str](), set[tuple[str, str]]()
        for sink, acted in _acted(self.pipeline, self.evolutions, look.shapes, catalogue, self._allowed, broken):
            known = self.evolutions[sink].todo
            self.evolutions[sink] = acted.evolution
            for table in acted.evolution.todo.keys() - look.shapes.keys():
                self._set(sink, table, self._put_off(table, acted.evolution.todo[table]))
            begun |= {(sink, table) for table, todo in self.evolutions[sink].todo.items() if known.get(table) != todo}
            retake |= acted.retake
            said += acted.said
        self._absent = frozenset(table for _, table, _ in self._todo() if table not in look.shapes)
        said += self._owed(catalogue)
        self._looked = self.pipeline if look.began >= self._adopted else self._looked
        self._work.break_off(self.pipeline, lambda step: self._overtaken(step, begun, retake))
        self._take_again(engine, replace(look, catalogue=catalogue), retake)
        return list(dict.fromkeys(said))

    def _put_off(self, table: str, todo: Todo) -> Todo:
        """What is left to do for a table that is not there: what stops because of it is said elsewhere.

        It may be back at the next look, as it was, and then nothing is decided anew. A generation that goes on with
        the table as it was goes on so for ever if nobody builds the next one.
        """
        left = replace(todo, waits=False, error=None)
        if table in self.pipeline.source.tables:
            return left
        return replace(left, read=None, capture=False, sweep=False, new=False, show=False)

    def _overtaken(self, step: Step, begun: Collection[tuple[str, str]], retake: Collection[tuple[str, int]]) -> bool:
        """Whether what is being done is not any more what has to be: it ends, and goes on with the tables as they are.

        A generation that is built is concerned by what its views read; an hour's work does not end for another table.
        """
        if not step.builds:
            return any(step.concerns(sink, table) for sink, table in begun)
        if step.sink not in self.evolutions:  # the file has it no more
            return True
        todo, register = self.evolutions[step.sink].todo, register_of(self.pipeline, step.sink)
        built = [one for one in (register.newest("filling"), register.newest("ready")) if one is not None]
        if any((step.sink, one.number) in retake for one in built):
            return True
        mine = [table for sink, table in begun if sink == step.sink]
        unknown = not all(register.generation(one.number).started for one in built)  # it reads the tables just now
        return bool(mine) and (unknown or any(todo[table].waits for table in mine))

    def _take_again(self, engine: Engine, look: Look, retake: Collection[tuple[str, int]]) -> None:
        """Open generations anew with the tables as they are: those that are concerned, and those that doubt.

        What was committed before the look began fits what it has seen, or no shape: who doubts although nothing has
        changed for him takes values as they are from then on, or one column that never fits would stop him again and
        again; and who doubts even so takes everything but what transactions wrote that the look could not see.
        """
        now, known = time.monotonic(), look.catalogue
        engine.catalogue = known
        doubting = {folder for folder, since in self._doubts.items() if since <= look.began}
        for build in list(engine.builds):
            folder, changed = build.generation.folder, (build.sink, build.number) in retake
            if not changed and folder not in doubting:
                continue
            told = known if changed else replace(known, doubts=False)
            if folder in doubting and now - self._doubted.get(folder, -DOUBT_AGAIN) < DOUBT_AGAIN and not changed:
                told = replace(known, lsn=0)
            engine.take_again(build, told)
        self._doubted = {
            **{f: at for f, at in self._doubted.items() if now - at < DOUBT_AGAIN},
            **dict.fromkeys(doubting, now),
        }

    def _owed(self, catalogue: Catalogue) -> list[str]:
        """Read tables again of which a view has come to need values that no log has."""
        owed, said = read_owed(self.pipeline), list[str]()
        for sink, evolution in self.evolutions.items():
            for table, columns in owed_to(self.pipeline, sink, catalogue, owed).items():
                todo = evolution.todo.get(table) or Todo((), time.time())
                if todo.read != ALL_ROWS:
                    words = f"column {', '.join(columns)} is needed now, and was never read"
                    self._set(sink, table, replace(todo, what=(*todo.what, words), read=ALL_ROWS))
                    said.append(f"table {table}: {words}")
        return said

    def _set(self, sink: str, table: str, todo: Todo | None) -> None:
        self.evolutions[sink] = self.evolutions[sink].having(table, todo)
        write_evolution(self.pipeline, sink, self.evolutions[sink])

    def _hold(self, engine: Engine) -> None:
        """Stop what can't follow, and what waits for a word."""
        held, self._held, self.former = self._held, {}, set()
        for build in engine.builds:
            todo = self.evolutions[build.sink].todo if build.sink in self.evolutions else {}
            folder, refused = build.generation.folder, read_frozen(build.generation).refused
            former = bool(refused) and is_former(self.pipeline, build.generation)
            self.former |= {folder} if former else set()
            reasons = {
                t: still_to_do(why, todo.get(t), mended=t in self._mended, former=former) for t, why in refused.items()
            }
            reasons |= {t: self._waits(t, one) for t, one in todo.items() if one.waits}
            if reasons:
                reasons = by_topic(self.pipeline, reasons)
                reasons = reasons if former else with_standing(build, reasons)
                engine.runner.halt(reasons, folder, instead=held.get(folder, ()))
                self._held[folder] = list(reasons.values())

    def _waits(self, table: str, todo: Todo) -> str:
        return worded(
            f"table {table}: {', '.join(todo.what)}; policy.schema is {self.pipeline.policy.schema_}",
            fix=f"look at `headwater plan {self.file}`, then `headwater apply {self.file}` goes on",
        )

    # -- what takes long ---------------------------------------------------------------------------------------------

    def _work_off(self, engine: Engine, busy: Collection[str]) -> list[str]:
        ended, said = self._work.look(self.pipeline)
        try:
            for step, error in ended:
                self._ended(engine, step, error, said)
        finally:  # also on a disk that is full: what these sinks are to keep is written down
            self._open_widened(engine)
        named = self._absent.intersection(self.pipeline.source.tables)  # nothing can be done before it is there again
        open_ones = [(sink, table, one) for sink, table, one in self._todo() if not one.waits and table not in named]
        for step in self._work.due(steps_of(open_ones, busy, self._work.failed)):
            if self._begin(engine, step, open_ones):
                said.append(step.begin)
        return said

    def _ended(self, engine: Engine, step: Step, error: str, said: list[str]) -> None:
        # Altered once more between the new generation's promotion and the builder's end: it is not what is wanted.
        frozen = self._frozen(step.sink) if step.builds and not error else frozenset()
        for sink, table, todo in list(self._todo()):
            if step.concerns(sink, table):
                left = replace(todo, error=error) if error else step.done(todo)
                left = replace(left, rebuild=True) if todo.rebuild and table in frozen else left
                if todo.new and step.kind == "capture" and not error:
                    left = replace(left, new=False, show=self._take_up(engine, sink, table, said))
                    self._widened |= {sink} if left.show else set()
                self._set(sink, table, left)

    def _open_widened(self, engine: Engine) -> None:
        """Open sinks that keep more tables now, once for all of them; where that fails in the middle, the next time."""
        for sink in sorted(self._widened):
            for build in [build for build in engine.builds if build.sink == sink]:
                engine.take_again(build)
            self._widened.discard(sink)

    def _frozen(self, sink: str) -> frozenset[str]:
        """Tables that a sink's living generation keeps as they were."""
        if sink not in self.evolutions:
            return frozenset()
        register = register_of(self.pipeline, sink)
        return frozenset(read_frozen(register.generation(register.living())).tables)

    def _begin(self, engine: Engine, step: Step, todo: Sequence[tuple[str, str, Todo]]) -> bool:
        """Begin a step; False if it can't be done just now."""
        pipeline = with_master(self.pipeline, self.master)
        match step.kind:
            case "capture":
                self._work.begin(step, capture, pipeline)
            case "build":
                self._work.begin(step, build_next, pipeline, self.file, step.sink)
            case "read":
                (table,) = step.tables
                mine = [one for _, name, one in todo if name == table]
                condition = combined([one.read for one in mine if one.read is not None]) or ALL_ROWS
                sweep = any(one.sweep for one in mine)
                self._work.begin(step, partial(read_again, sweep=sweep), pipeline, table, condition)
            case "show":
                living = register_of(pipeline, step.sink).living()
                running = [b for b in engine.builds if (b.sink, b.number) == (step.sink, living)]
                views = [view.name for build in running for view in build.views_of(step.tables[0])]
                if not views:  # its generation does not run here just now
                    return False
                self._work.begin(step, show, pipeline, step.sink, living, views[0])
        return True

    def _take_up(self, engine: Engine, sink: str, table: str, said: list[str]) -> bool:
        """Let a sink of whole tables keep a new one too; whether it is to be opened anew, and readers are to see it."""
        if not take_up(self.pipeline, sink, engine.catalogue, table, said):
            return False
        self._work.break_off(self.pipeline, lambda step: step == Step("build", sink))
        return True

    def may_build(self, engine: Engine, sink: str) -> bool:
        """Whether a next generation of a sink can be filled as the engine's file says: the tables were looked at with
        that file, and of none that it reads rows are still to be read again, which it would lack."""
        if self._looked is not engine.pipeline:
            return False
        unread = {table for _, table, todo in self._todo() if todo.read is not None and not todo.waits}
        try:
            views = resolve_views(engine.pipeline, engine.catalogue, sink) if unread else []
        except ConfigError:
            return True  # who builds it says what is wrong
        return not any(view_tables(view).keys() & unread for view in views)

    def let_go(self, sink: str) -> None:
        """Another file was applied, and a generation of the sink is built from it: end the one that is built here.

        Until that one has ended the sink is among ``busy`` (``step``), so nothing is begun here.
        """
        self._work.break_off(self.pipeline, lambda step: step == Step("build", sink))

    def close(self) -> None:
        """End what was begun; it goes on at the next start. Idempotent."""
        self._watch.close()
        self._work.break_off(self.pipeline)


__all__ = ["Evolving", "catch_up"]
