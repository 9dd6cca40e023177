"""A sink's generations: which there are, which one readers see, and what each was made of.

    <state_dir>/<pipeline>/<sink>/generations.json            this register
                                  g<N>/definition.json        what generation N was made of (cdc/pipeline/definition.py)

The register is what Headwater wants; what readers see is in the target (an alias, a pointer, a catalogue's row), which
is changed first. A process that dies between the two leaves the register behind; the same command again finishes it.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cdc.errors import StateError
from cdc.pipeline import Pipeline
from cdc.pipeline.definition import changes, defined_as, definition_of
from spark.files import write_atomic
from spark.state import Generation

# filling   a rebuild is under way (or was cut: the same command goes on)
# ready     complete, kept up to date, may be promoted
# living    readers see it
# previous  was living; kept up to date, so that one can go back
# retiring  to be removed as soon as the process that runs it lets go
Stage = Literal["filling", "ready", "living", "previous", "retiring"]
# These are kept up to date by `run`.
KEPT: frozenset[Stage] = frozenset(("ready", "living", "previous"))


@dataclass(frozen=True)
class Registered:
    """One generation.

    Attributes:
        number: from 1; never used twice.
        stage: see Stage.
        created_at: epoch seconds; 0 for one that is older than the register.
        why: for what it was made, in words.
        promoted_at: when readers last began to see it (epoch seconds).
    """

    number: int
    stage: Stage
    created_at: float = 0.0
    why: str = "the first"
    promoted_at: float | None = None


@dataclass(frozen=True)
class Promotion:
    """A promotion that was begun: readers of some views may see either generation until it has ended.

    Attributes:
        number: the generation that readers are sent to.
        origin: the one that they come from.
        moving: readers may have been moved; before that the new generation comes as far as the one that they see.
    """

    number: int
    origin: int
    moving: bool = True


def _promotion(register: Mapping[str, Any], after: float = 0.0) -> Promotion | None:
    begun = register.get("promoting")
    if begun is None or time.time() - begun["at"] < after:
        return None
    # One that was begun by an earlier version does not say from where: from the living one.
    stages = {int(e["number"]): e["stage"] for e in register["generations"]}
    living = next((number for number, stage in stages.items() if stage == "living"), 1)
    number, origin = int(begun["number"]), int(begun.get("from", living))
    return Promotion(number, origin, bool(begun.get("moving", True))) if number in stages else None


class Register:
    """The register of one sink.

    Args:
        state_dir: the pipeline's ``engine.state_dir``.
        pipeline: its name.
        sink: the sink's name.
    """

    def __init__(self, state_dir: Path, pipeline: str, sink: str) -> None:
        self.state_dir, self.pipeline, self.sink = state_dir, pipeline, sink
        self.folder = state_dir / pipeline / sink
        self._path = self.folder / "generations.json"

    # -- reading ------------------------------------------------------------------------------------------------------

    def entries(self) -> list[Registered]:
        """All generations, by number; without a register there is one, the living."""
        return [Registered(**entry) for entry in self._read()["generations"]]

    def previous(self) -> list[Registered]:
        """Generations that readers have seen, those that they saw last at the end: also after a rollback."""
        found = [entry for entry in self.entries() if entry.stage == "previous"]
        return sorted(found, key=lambda entry: (entry.promoted_at or 0.0, entry.number))

    def get(self, number: int) -> Registered:
        """One generation.

        Raises:
            StateError: there is none of that number.
        """
        for entry in self.entries():
            if entry.number == number:
                return entry
        there = ", ".join(str(entry.number) for entry in self.entries())
        raise StateError(f"sink {self.sink} has no generation {number}", fix=f"it has {there}: `headwater generations`")

    def living(self) -> int:
        """The number of the one that readers see."""
        for entry in self.entries():
            if entry.stage == "living":
                return entry.number
        raise StateError(
            f"sink {self.sink}: {self._path} says of no generation that readers see it",
            fix="`headwater generations FILE` shows all; restore the file from a copy",
        )

    def newest(self, *stages: Stage) -> Registered | None:
        """The newest generation in one of these stages."""
        return next((entry for entry in reversed(self.entries()) if entry.stage in stages), None)

    def kept(self) -> list[int]:
        """Numbers of those that `run` keeps up to date."""
        return [entry.number for entry in self.entries() if entry.stage in KEPT]

    def written(self) -> list[int]:
        """Numbers of those that somebody keeps up to date: `run`, or whoever fills the newest."""
        filling = self.newest("filling")
        return [*self.kept(), *([filling.number] if filling else [])]

    def generation(self, number: int | None = None) -> Generation:
        """A generation's folder; the living one's without a number."""
        return Generation(self.state_dir, self.pipeline, self.sink, self.living() if number is None else number)

    # -- changing -----------------------------------------------------------------------------------------------------

    def create(self, why: str) -> Registered:
        """A new generation, to be filled."""
        with self._changed() as register:
            number = int(register["last"]) + 1
            entry = Registered(number, "filling", time.time(), why)
            register["last"] = number
            register["generations"].append(asdict(entry))
        return entry

    def move(self, number: int, stage: Stage) -> None:
        """Put a generation into another stage."""
        self._replace(lambda entry: replace(entry, stage=stage) if entry.number == number else entry)

    def begin_promotion(self, number: int, origin: int) -> None:
        """Remember that readers are being sent to a generation: writers may wait until that has ended.

        Args:
            number: where to.
            origin: where from.

        Raises:
            StateError: it is being removed, or is not there; or readers are in the middle of another promotion.
        """
        with self._changed() as register:
            stage = next((e["stage"] for e in register["generations"] if e["number"] == number), "not there")
            under_way = _promotion(register)
            if under_way is not None and under_way.moving and number not in (under_way.number, under_way.origin):
                raise self._unended(under_way, "nothing was changed")
            if stage not in KEPT:
                raise StateError(
                    f"sink {self.sink}: generation {number} is {stage}",
                    fix="`headwater generations FILE` shows those that there are",
                )
            moving = under_way is not None and under_way.moving  # goes on, or back, with what was cut
            register["promoting"] = {"number": number, "from": origin, "at": time.time(), "moving": moving}

    def move_readers(self, number: int) -> None:
        """From now on readers may see a generation.

        Raises:
            StateError: somebody has given up, or taken over, the promotion meanwhile.
        """
        with self._changed() as register:
            begun = register.get("promoting") or {}
            if begun.get("number") != number:
                raise StateError(
                    f"sink {self.sink}: the promotion of generation {number} was given up meanwhile",
                    fix="promote again",
                )
            begun["moving"] = True

    def promotion(self, after: float = 0.0) -> Promotion | None:
        """The promotion that was begun more than ``after`` seconds ago, and has not ended."""
        return _promotion(self._read(), after)

    def give_up_promotion(self, number: int) -> None:
        """Forget that readers were to be sent to a generation: its target is gone, so none was, and none can be."""
        with self._changed() as register:
            if (register.get("promoting") or {}).get("number") == number:
                register.pop("promoting")

    def begin_retiring(self, number: int) -> None:
        """Put a generation into the stage ``retiring``.

        Raises:
            StateError: readers see it, or may see it: a promotion to or from it has not ended.
        """
        with self._changed() as register:
            entry = next((e for e in register["generations"] if e["number"] == number), None)
            if entry is None or entry["stage"] == "living":
                raise StateError(
                    f"sink {self.sink}: " + ("readers see" if entry else "there is no") + f" generation {number}",
                    fix="promote or roll back to another one first; `headwater drop FILE --sink` removes all of them",
                )
            begun = _promotion(register)
            if begun is not None and number in (begun.number, begun.origin):
                raise self._unended(begun, "nothing was removed")
            entry["stage"] = "retiring"

    def promote(self, number: int) -> None:
        """Make a generation the living one; the one that was becomes the previous one."""

        def moved(entry: Registered) -> Registered:
            if entry.number == number:
                return replace(entry, stage="living", promoted_at=time.time())
            return replace(entry, stage="previous") if entry.stage == "living" else entry

        with self._changed() as register:
            if all(entry["number"] != number for entry in register["generations"]):
                raise StateError(f"sink {self.sink} has no generation {number}: it was removed meanwhile")
            register["generations"] = [asdict(moved(Registered(**entry))) for entry in register["generations"]]
            register.pop("promoting", None)

    def remove(self, number: int) -> None:
        """Forget a generation; its number is not used again."""
        with self._changed() as register:
            register["generations"] = [e for e in register["generations"] if e["number"] != number]
            if (register.get("promoting") or {}).get("number") == number:
                register.pop("promoting")  # nothing is left to finish

    def _unended(self, begun: Promotion, so: str) -> StateError:
        return StateError(
            f"sink {self.sink}: a promotion from generation {begun.origin} to {begun.number} has not ended",
            means=f"readers of some views may see either of them; {so}",
            fix=f"end it: `headwater promote FILE {self.sink} --generation {begun.number}`, "
            f"or take it back: the same with {begun.origin}",
        )

    def _replace(self, changed: Callable[[Registered], Registered]) -> None:
        with self._changed() as register:
            register["generations"] = [asdict(changed(Registered(**entry))) for entry in register["generations"]]

    def _read(self) -> dict[str, Any]:
        try:
            register: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {"last": 1, "generations": [asdict(Registered(1, "living"))]}
        except ValueError as error:
            raise StateError(f"{self._path} can't be read: {error}", fix="restore it from a copy") from error
        return register

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "generations.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            register = self._read()
            yield register
            write_atomic(self._path, json.dumps(register, indent=1))


# -- what a generation is made of -------------------------------------------------------------------------------------


def define(generation: Generation, pipeline: Pipeline, tables: Sequence[str]) -> Mapping[str, Any]:
    """A generation's definition; one that has none takes the file's as it is now, for good.

    Args:
        generation: the generation.
        pipeline: the loaded file.
        tables: all captured tables, for a sink that keeps tables.
    """
    path = generation.folder / "definition.json"
    if not path.exists():
        keep_definition(generation, proposed(generation, pipeline, tables))
    return _definition(path)


def proposed(generation: Generation, pipeline: Pipeline, tables: Sequence[str]) -> dict[str, Any]:
    """What a generation would be made of if it began now; arguments as ``define``. Nothing is written."""
    part = pipeline.sinks[generation.sink]
    chosen = tables if part.tables == "all" else part.tables or ()
    return definition_of(pipeline, generation.sink, chosen)


def keep_definition(generation: Generation, definition: Mapping[str, Any]) -> None:
    """Write what a generation is made of."""
    write_atomic(generation.folder / "definition.json", json.dumps(definition, indent=1))


def add_table(generation: Generation, table: str) -> bool:
    """Let a generation of a sink of whole tables keep another one; whether it did not before.

    Args:
        generation: one that was defined.
        table: ``schema.table``.
    """
    kept = dict(_definition(generation.folder / "definition.json"))
    known = list(kept["sink"].get("tables") or ())
    if table in known:
        return False
    keep_definition(generation, {**kept, "sink": {**kept["sink"], "tables": [*known, table]}})
    return True


def _definition(path: Path) -> Mapping[str, Any]:
    try:
        kept: Mapping[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise StateError(f"{path} can't be read: {error}", fix="restore it from a copy, or rebuild the sink") from error
    return kept


def as_defined(pipeline: Pipeline, generation: Generation) -> Pipeline:
    """The pipeline with a sink and its views as one of its generations was made of.

    Args:
        pipeline: the loaded file.
        generation: of the sink; one that was never started is as the file says.

    Raises:
        StateError: the definition can't be used with this file (terminal).
    """
    path = generation.folder / "definition.json"
    if not path.exists():
        return pipeline
    kept, title = _definition(path), f"generation {generation.number} of sink {generation.sink}, as it was defined"
    return defined_as(pipeline, generation.sink, kept, title)


def outdated(pipeline: Pipeline, generation: Generation) -> list[str]:
    """In what the file differs from what a generation was made of, in words; empty if it does not.

    Tables that a sink of whole tables has gained since are not known here without the catalogue, only those named.
    """
    path = generation.folder / "definition.json"
    if not path.exists():
        return []
    kept, sink = _definition(path), generation.sink
    part = pipeline.sinks[sink]
    tables = kept["sink"].get("tables") or () if part.tables == "all" else part.tables or ()
    if kept["sink"]["type"] != part.type:
        return [f"sink.type changed from {kept['sink']['type']} to {part.type}"]
    return changes(kept, json.loads(json.dumps(definition_of(pipeline, sink, tables))))
