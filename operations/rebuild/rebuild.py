"""What ``headwater rebuild`` does: create or go on with a generation, fill it, prove it, promote it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError, ShapeUnknown, StateError
from operations.child_process import Apart
from operations.generations.found import adopt
from operations.generations.outdated import FILLED, read_filled
from operations.generations.promote import promote
from operations.generations.retire import retire
from operations.rebuild.chosen import Chosen
from operations.rebuild.compared import compare, judged
from operations.run.engine import Engine, open_rebuild
from operations.run.halting import refuse_changed
from operations.state.catalogue import source_catalogue
from operations.state.folder import chosen_sinks
from operations.state.pausing import refuse_paused
from operations.status.caught_up import Goal
from sinks.factory import open_sink
from spark.disk.files import write_atomic
from spark.disk.register import Registered
from spark.disk.status import FlowStatus

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
        chosen: what is built.
        throttle: share of the time it may be at work.
        stop: set when it is asked to end.
        shown: shows how far the flows are; shown nothing if left out.
    """

    def __init__(self, chosen: Chosen, throttle: float, stop: threading.Event, shown: Shown = unshown) -> None:
        self.pipeline, self.file, self.sink, self.say = chosen.pipeline, chosen.file, chosen.sink, chosen.say
        chosen_sinks(self.pipeline, [self.sink])
        self.chosen, self.throttle, self.stop, self.shown = chosen, throttle, stop, shown
        self.registry = chosen.registry
        self.auto = False

    def run(self, *, auto: bool) -> dict[str, Any]:
        """Do it; returns the shape of ``--json``.

        Args:
            auto: hold it against Postgres too, and promote it if it is equal; one that is filled already, because an
                attempt was killed while it compared, is compared.

        Raises:
            TableChanged: changes of a table are missing in its topic, so the new generation would lack them.
            StateError: a generation is ready already, the sink is paused, or the rebuild was stopped before its end.
            HeadwaterError: a flow has failed.
        """
        self.auto = auto
        refuse_paused(self.pipeline, [self.sink], "nothing is filled")
        self.registry.living()  # what is wrong here is said before a server is asked
        adopt(self.pipeline, self.sink, self.say)
        while True:
            catalogue = source_catalogue(self.pipeline)
            refuse_changed(self.pipeline, self.sink, catalogue)
            filled = self.chosen.filled() if auto else None
            entry = filled or self.chosen.to_fill()
            try:
                return self._compared(entry, catalogue) if filled else self._filled(entry, catalogue)
            except _Altered as altered:
                if self.chosen.own:  # `run` looks at the tables, and knows whether what is filled can go on with them
                    raise ShapeUnknown(
                        f"a table that {self.sink} reads was altered while generation {entry.number} was filled",
                        means="what is filled stays, if it can hold what comes",
                        fix="nothing: `headwater run` looks at the table, and goes on",
                    ) from altered
                self.say(f"a table that {self.sink} reads was altered: generation {entry.number} is begun anew")
                retire(self.pipeline, self.sink, entry.number, self.say)

    def _filled(self, entry: Registered, catalogue: Catalogue) -> dict[str, Any]:
        """Fill one; with ``auto`` prove it, and show it to readers."""
        self.say(f"sink {self.sink}: filling generation {entry.number} beside generation {self.registry.living()}")
        # What a process before this one has applied is counted by nobody: of one that goes on no rate is known.
        begun, started = self.registry.generation(entry.number).started, time.monotonic()
        engine = open_rebuild(self.pipeline, catalogue, self.sink, entry.number, self.throttle)
        equal, late = None, None
        try:
            records = self._fill(engine, entry.number)
            seconds = time.monotonic() - started
            self._ready(engine, entry.number, None if begun else (records, seconds))
            if self.auto:
                equal, late = self._judged(self._proven(engine, entry.number), entry.number)
        finally:
            engine.close()
        return self._report(entry.number, records, seconds, equal, late)

    def _compared(self, entry: Registered, catalogue: Catalogue) -> dict[str, Any]:
        """Prove one that is filled, and show it to readers. It is kept up to date meanwhile: what Postgres has by now
        and it has not would be told as a difference."""
        number = entry.number
        self.say(f"sink {self.sink}: generation {number} is filled, and is compared with Postgres")
        if self.registry.generation(number).lease.busy():  # `run` keeps it
            equal, late = self._judged(compare(self.say, self.pipeline, self.sink, number), number)
        else:
            engine = open_rebuild(self.pipeline, catalogue, self.sink, number, self.throttle)
            try:
                equal, late = self._judged(self._proven(engine, number), number)
            finally:
                engine.close()
        records, seconds = read_filled(self.registry.generation(number)) or (0, 0.0)
        return self._report(number, records, seconds, equal, late)

    def _judged(self, found: dict[str, Any], number: int) -> tuple[bool, bool]:
        """What a comparison says; one that is equal is promoted."""
        equal, late = judged(found, self.say)
        if equal:
            promote(self.pipeline, self.sink, number, self.say)
        return equal, late

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

    def _fill(self, engine: Engine, number: int) -> int:
        """Run until each flow has applied what the log held when it was taken up; returns records applied by this
        process."""
        with Goal(self.pipeline, engine.runner.running) as goal, self.shown(goal) as show:
            while not self.stop.wait(STEP_SECONDS):
                refuse_paused(self.pipeline, [self.sink], "what is filled stays; readers see nothing of it")
                self._refuse_retired(number)
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

    def _refuse_retired(self, number: int) -> None:
        """Who removes it waits for its lease: to fill it to its end would be for nothing, and in his way."""
        if (stage := self.registry.stage(number)) in (None, "retiring"):
            so = "was removed" if stage is None else "is being removed while it is filled"
            raise StateError(
                f"sink {self.sink}: generation {number} {so}",
                means="somebody has retired it, or `run` has, because a table was altered; readers see nothing of it",
                fix=f"`{self._again}` fills another one, unless `run` does so by itself (`headwater generations`)",
            )

    def _ready(self, engine: Engine, number: int, filled: tuple[int, float] | None) -> None:
        for run in engine.runner.running:
            if run.flow.spec.sink_config:
                sink = open_sink(dict(run.flow.spec.sink_config))
                try:
                    for view in run.flow.spec.views:
                        sink.bulk_load(view, False)
                finally:
                    sink.close()
        if filled is not None:
            note = json.dumps({"records": filled[0], "seconds": filled[1]})
            write_atomic(self.registry.generation(number).folder / FILLED, note)
        self.registry.move(number, "ready")

    def _proven(self, engine: Engine, number: int) -> dict[str, Any]:
        """Verify the new generation in a process of its own, while this one keeps it up to date; what it has found."""
        self.say(f"verifying generation {number}")
        verify = f"`headwater verify {self.file} --sink {self.sink} --generation {number}`"

        def step() -> None:
            refuse_paused(self.pipeline, [self.sink], "the new generation is ready, but not proven, and waits")
            self._refuse_retired(number)
            engine.runner.step()
            if engine.runner.doubting:
                raise _Altered
            if self.stop.wait(STEP_SECONDS):
                raise StateError(
                    f"the rebuild of {self.sink} was stopped while generation {number} was verified",
                    means="the generation is ready, but not proven; it was not promoted",
                    fix=f"{verify}, then `headwater promote {self.file} {self.sink}`",
                )

        with Apart(compare, self.pipeline, self.sink, number) as proof:
            proof.follow(self.say, step)
            try:
                found: dict[str, Any] = proof.result()
                return found
            except HeadwaterError:
                self.say(f"generation {number} is ready, but could not be proven, and was not promoted: {verify}")
                raise
