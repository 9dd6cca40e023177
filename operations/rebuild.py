"""What ``headwater rebuild`` does: create or go on with a generation, fill it, prove it, promote it."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError, KafkaError, ShapeUnknown, SinkUnavailable, StateError
from cdc.log.ends import LogEnds, removed
from cdc.pipeline import Pipeline
from operations.apart import Apart
from operations.catalogue import source_catalogue
from operations.compared import compare, judged
from operations.generations.found import adopt
from operations.generations.outdated import FILLED, read_filled
from operations.generations.promote import promote
from operations.generations.retire import retire
from operations.kept_shapes import read_frozen
from operations.pausing import Say, refuse_paused
from operations.run.engine import Engine, open_rebuild
from operations.run.flow_lines import lines
from operations.run.halting import refuse_changed
from operations.state_folder import chosen_sinks, register_of
from operations.status.caught_up import Goal
from sinks.configure import plain_config
from sinks.factory import open_sink, open_target
from spark.disk.checkpoint import committed_offsets
from spark.disk.files import write_atomic
from spark.disk.made_of import as_defined, outdated
from spark.disk.register import Registered
from spark.disk.status import FlowStatus
from spark.flow import flow_of, has_set_up

STEP_SECONDS = 0.5

Show = Callable[[Sequence[FlowStatus]], None]
Shown = Callable[[Goal], AbstractContextManager[Show]]


def unshown(_goal: Goal) -> AbstractContextManager[Show]:
    """Nobody looks."""
    return nullcontext(lambda _statuses: None)


class _Altered(Exception):
    """What is filled is of a table as it was."""


class Rebuild:
    """One rebuild.

    Args:
        pipeline: the loaded file.
        file: its path, for the commands that are named and called.
        sink: the sink's name.
        throttle: share of the time it may be at work.
        stop: set when it is asked to end.
        say: told what happens, a line each.
        shown: shows how far the flows are; shown nothing if left out.
        own: `run` does it by itself, and no person has asked for it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        file: Path,
        sink: str,
        throttle: float,
        stop: threading.Event,
        say: Say,
        shown: Shown = unshown,
        *,
        own: bool = False,
    ) -> None:
        chosen_sinks(pipeline, [sink])
        self.pipeline, self.file, self.sink, self.throttle = pipeline, file, sink, throttle
        self.stop, self.say, self.shown, self.own = stop, say, shown, own
        self.registry = register_of(pipeline, sink)
        self.auto = False

    def run(self, *, auto: bool) -> dict[str, Any]:
        """Do it; returns the shape of ``--json``.

        Raises:
            TableChanged: changes of a table are missing in its topic, so the new generation would lack them.
            StateError: a generation is ready already, the sink is paused, or the rebuild was stopped before its end.
            HeadwaterError: a flow has failed.
        """
        self.auto = auto
        refuse_paused(self.pipeline, [self.sink], "nothing is filled")
        self.registry.living()  # what is wrong here is said before a server is asked
        adopt(self.pipeline, self.sink, self.say)
        if auto and not self.own and (filled := self._filled()) is not None:
            return self._compared(filled)
        catalogue = source_catalogue(self.pipeline)
        while True:
            refuse_changed(self.pipeline, self.sink, catalogue)
            entry = self._entry()
            try:
                return self._generation(entry, catalogue, auto=auto)
            except _Altered as altered:
                if self.own:  # `run` looks at the tables, and knows whether what is filled can go on with them
                    raise ShapeUnknown(
                        f"a table that {self.sink} reads was altered while generation {entry.number} was filled",
                        means="what is filled stays, if it can hold what comes",
                        fix="nothing: `headwater run` looks at the table, and goes on",
                    ) from altered
                self.say(f"a table that {self.sink} reads was altered: generation {entry.number} is begun anew")
                retire(self.pipeline, self.sink, entry.number, self.say)
                catalogue = source_catalogue(self.pipeline)

    def _generation(self, entry: Registered, catalogue: Catalogue, *, auto: bool) -> dict[str, Any]:
        """Fill one, prove it, show it to readers."""
        self.say(f"sink {self.sink}: filling generation {entry.number} beside generation {self.registry.living()}")
        started = time.monotonic()
        engine = open_rebuild(self.pipeline, catalogue, self.sink, entry.number, self.throttle)
        equal, late = None, None
        try:
            records = self._fill(engine)
            seconds = time.monotonic() - started
            self._ready(engine, entry.number, records, seconds)
            if auto:
                equal, late = judged(self._proven(engine, entry.number), self.say)
                if equal:
                    promote(self.pipeline, self.sink, entry.number, self.say)
        finally:
            engine.close()
        return self._report(entry.number, records, seconds, equal, late)

    def _filled(self) -> int | None:
        """A generation that an attempt of before has filled, of the file as it is: it was killed while it compared."""
        ready = self._unless_lost(self.registry.newest("ready"))
        if ready is None or outdated(self.pipeline, self.registry.generation(ready.number)):
            return None
        return ready.number

    def _compared(self, number: int) -> dict[str, Any]:
        """Prove one that is filled, and show it to readers; it is `run` that keeps it up to date meanwhile."""
        self.say(f"sink {self.sink}: generation {number} is filled, and is compared with Postgres")
        equal, late = judged(compare(self.say, self.pipeline, self.sink, number), self.say)
        if equal:
            promote(self.pipeline, self.sink, number, self.say)
        records, seconds = read_filled(self.registry.generation(number)) or (0, 0.0)
        return self._report(number, records, seconds, equal, late)

    def _report(
        self, number: int, records: int, seconds: float, equal: bool | None, late: bool | None
    ) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline.name,
            "sink": self.sink,
            "generation": number,
            "stage": self.registry.get(number).stage,
            "records": records,
            "seconds": round(seconds, 3),
            "equal": equal,
            "late": late,
        }

    @property
    def _again(self) -> str:
        """The command that was given."""
        return f"headwater rebuild {self.file} {self.sink}{' --auto' if self.auto else ''}"

    def _entry(self) -> Registered:
        """The generation to fill: one whose rebuild was cut, if it was made of what the file says now; else a new."""
        ready = self._unless_lost(self.registry.newest("ready"))
        if ready is not None:
            raise self._waits(ready)
        begun = self._unless_lost(self.registry.newest("filling"))
        if begun is not None:
            differs = outdated(self.pipeline, self.registry.generation(begun.number))
            if not differs:
                self._refuse_filled_twice(begun.number)
                if not self._cut_off(begun.number):
                    if begun.own and not self.own:
                        self.registry.claim(begun.number)
                    return begun
                of = f"generation {begun.number} can't be gone on with: the log has lost what it had not read"
            else:
                of = f"generation {begun.number} was begun from another file ({', '.join(differs[:3])})"
            if self.registry.generation(begun.number).lease.busy():  # to be told before anything is taken from it
                raise StateError(f"sink {self.sink}: {of}, and is being filled", fix="end that rebuild, or wait for it")
            self.say(f"{of}: it is given up")
            retire(self.pipeline, self.sink, begun.number, self.say)
        differs = outdated(self.pipeline, self.registry.generation(self.registry.living()))
        return self.registry.create(", ".join(differs[:5]) or "asked for", own=self.own)

    def _cut_off(self, number: int) -> bool:
        """Whether the log no longer has what a generation would read next: each attempt would end at that place."""
        generation = self.registry.generation(number)
        defined = as_defined(self.pipeline, generation)
        flows = {flow_of(defined, self.sink, view) for view in generation.views()}
        places = [committed_offsets(generation.flow_folder(flow) / "checkpoint")[1] for flow in sorted(flows)]
        topics = {topic for place in places for topic in place}
        if not topics:
            return False
        log = LogEnds(self.pipeline.kafka.bootstrap, self.pipeline.kafka.options_plain())
        try:
            first, _ = log.bounds(topics)
        except KafkaError:
            return False  # its flows will wait for the brokers
        finally:
            log.close()
        return any(removed(first, place) is not None for place in places)

    def _refuse_filled_twice(self, number: int) -> None:
        lease = self.registry.generation(number).lease
        holder = lease.holder()
        if holder is not None and lease.busy():
            raise StateError(
                f"sink {self.sink}: generation {number} is being filled already, by process {holder.pid} on"
                f" {holder.host}",
                means="nothing was done; one rebuild of a sink at a time",
                fix=f"wait for it (`headwater status {self.file}` shows how far it is), or end that process:"
                " then this command goes on where it has stopped",
            )

    def _waits(self, ready: Registered) -> StateError:
        """One that is ready is a person's to show or to remove; of another file, it is not what this rebuild is for."""
        retire = f"`headwater retire {self.file} {self.sink} --generation {ready.number}`"
        differs = outdated(self.pipeline, self.registry.generation(ready.number))
        if not differs:
            return StateError(
                f"sink {self.sink}: generation {ready.number} is ready and waits to be promoted",
                # With --auto it may have been killed while it compared, and a promotion does not compare.
                means="it is filled; whether it was compared with Postgres, `headwater generations` tells",
                fix=f"`headwater verify {self.file} --sink {self.sink} --generation {ready.number}`, then"
                f" `headwater promote {self.file} {self.sink}`; or {retire}",
            )
        return StateError(
            f"sink {self.sink}: generation {ready.number} is ready, and of another file ({', '.join(differs[:3])})",
            means="somebody has built it, so it is not removed by itself; promoted, it would show what that file said",
            fix=f"{retire}; then one of this file is built",
        )

    def _unless_lost(self, entry: Registered | None) -> Registered | None:
        """A generation whose target was lost with its server's data can't be gone on with: it is removed."""
        if entry is None or not self.registry.generation(entry.number).started:
            return entry
        generation = self.registry.generation(entry.number)
        defined = as_defined(self.pipeline, generation)
        # Each flow makes its own targets, when what it needs is there: one that never did has lost nothing.
        flows = {view: generation.flow_folder(flow_of(defined, self.sink, view)) for view in generation.views()}
        views = [view for view, folder in flows.items() if has_set_up(folder)]
        if not views:
            return entry
        opened = open_target(plain_config(defined, self.sink, entry.number, views))
        try:
            if all(opened.there(view) for view in views):
                return entry
        except SinkUnavailable:
            return entry  # its flows will wait for the server
        finally:
            opened.close()
        self.say(f"generation {entry.number} has lost its target: it is given up")
        self.registry.give_up_promotion(entry.number)
        retire(self.pipeline, self.sink, entry.number, self.say)
        return None

    def _fill(self, engine: Engine) -> int:
        """Run until all is applied that the log held at the start; returns records applied by this process."""
        with Goal(self.pipeline, engine.runner.running) as goal, self.shown(goal) as show:
            while not self.stop.wait(STEP_SECONDS):
                refuse_paused(self.pipeline, [self.sink], "what is filled stays; readers see nothing of it")
                statuses = engine.runner.step()
                engine.follow_cluster()
                engine.follow_lease()
                show(statuses)
                if engine.runner.errors:
                    raise StateError(
                        "; ".join(f"{flow} failed: {why}" for flow, why in engine.runner.errors.items()),
                        means="the new generation is not complete; the one that readers see is not touched by that",
                        fix=f"put it right, then the same command goes on: `{self._again}`",
                    )
                if engine.runner.doubting:
                    raise _Altered
                if goal.caught_up():
                    return sum(status.records for status in statuses)
        raise StateError(
            f"the rebuild of {self.sink} was stopped before its end",
            means="what is filled stays; readers see nothing of it",
            fix=f"the same command goes on: `{self._again}`",
        )

    def _ready(self, engine: Engine, number: int, records: int, seconds: float) -> None:
        for run in engine.runner.running:
            if run.flow.spec.sink_config:
                sink = open_sink(dict(run.flow.spec.sink_config))
                try:
                    for view in run.flow.spec.views:
                        sink.bulk_load(view, False)
                finally:
                    sink.close()
        folder = self.registry.generation(number).folder
        write_atomic(folder / FILLED, json.dumps({"records": records, "seconds": seconds}))
        self.registry.move(number, "ready")

    def _proven(self, engine: Engine, number: int) -> dict[str, Any]:
        """Verify the new generation in a process of its own, while this one keeps it up to date; what it has found."""
        self.say(f"verifying generation {number}")
        verify = f"`headwater verify {self.file} --sink {self.sink} --generation {number}`"
        with Apart(compare, self.pipeline, self.sink, number) as proof:
            while not proof.ended():
                for line in proof.lines():
                    self.say(line)
                refuse_paused(self.pipeline, [self.sink], "the new generation is ready, but not proven, and waits")
                engine.runner.step()
                if engine.runner.doubting:
                    raise _Altered
                if self.stop.wait(STEP_SECONDS):
                    raise StateError(
                        f"the rebuild of {self.sink} was stopped while generation {number} was verified",
                        means="the generation is ready, but not proven; it was not promoted",
                        fix=f"{verify}, then `headwater promote {self.file} {self.sink}`",
                    )
            try:
                found: dict[str, Any] = proof.result()
                return found
            except HeadwaterError:
                self.say(f"generation {number} is ready, but could not be proven, and was not promoted: {verify}")
                raise


def build_next(say: Say, pipeline: Pipeline, file: Path, sink: str) -> bool:
    """Fill a sink's next generation, and show it to readers if it equals Postgres: as ``rebuild --auto``.

    For a process of its own: asked to end, it stops where the next attempt goes on. One that was filled by an attempt
    that was broken off is compared, and not filled again. Of the generations that were replaced the newest stays, for
    `headwater rollback`: with a migration every week each older one would go on costing what the living one does.

    Args:
        say: told what happens, a line each.
        pipeline: the loaded file.
        file: its path.
        sink: the sink's name.

    Returns:
        whether it equals Postgres, and readers see it.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    register = register_of(pipeline, sink)
    for left in [one for one in register.entries() if one.own and one.stage == "retiring"]:  # cut in its middle
        retire(pipeline, sink, left.number, say)
    for begun in (register.newest("ready"), register.newest("filling")):
        # One that was filled of tables as they were would be shown, and the sink stay behind, or never be equal.
        if begun is not None and read_frozen(register.generation(begun.number)).tables:
            say(f"generation {begun.number} is of tables as they were: it is given up")
            retire(pipeline, sink, begun.number, say)
    ready = register.newest("ready")
    if ready is not None and ready.own and (differs := outdated(pipeline, register.generation(ready.number))):
        # Of the file of before: compared with Postgres by this one's words it would never be equal, and never go.
        say(f"generation {ready.number} was built from another file ({', '.join(differs[:3])}): it is given up")
        retire(pipeline, sink, ready.number, say)
        ready = None
    if ready is not None and not outdated(pipeline, register.generation(ready.number)):
        equal, late = judged(compare(say, pipeline, sink, ready.number), say)
        if equal:
            promote(pipeline, sink, ready.number, say)
        elif not late:  # compared twice: the next attempt builds another one
            retire(pipeline, sink, ready.number, say)
    else:
        report = Rebuild(pipeline, file, sink, 1.0, stop, say, partial(lines, say), own=True).run(auto=True)
        equal = bool(report["equal"])
    if equal:
        _let_go_of_older(pipeline, sink, say)
    return equal


def _let_go_of_older(pipeline: Pipeline, sink: str, say: Say) -> None:
    for entry in register_of(pipeline, sink).previous()[:-1]:
        try:
            retire(pipeline, sink, entry.number, say)
        except HeadwaterError as error:  # what was built is shown all the same
            say(f"warning: {error.what}; `headwater retire FILE {sink} --generation {entry.number}` removes it")
