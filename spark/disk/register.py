"""A sink's generations: which there are, and which one readers see; what each was made of is in ``spark.disk.made_of``.

    <state_dir>/<pipeline>/<sink>/generations.json            this register

The register is what Headwater wants; what readers see is in the target (an alias, a pointer, a catalogue's row), which
is changed first. A process that dies between the two leaves the register behind; the same command again finishes it.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cdc.errors import StateError
from spark.disk.files import write_atomic
from spark.disk.notes import read_note
from spark.disk.promotion import Promotion, promotion_of, unmoved_of
from spark.disk.state import Generation

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
        own: `run` makes it by itself, so `run` may remove it again; one that a person asked for is that person's.
    """

    number: int
    stage: Stage
    created_at: float = 0.0
    why: str = "the first"
    promoted_at: float | None = None
    own: bool = False

    @property
    def unseen(self) -> bool:
        """Whether no reader has seen it yet: it is filled, or ready to be shown."""
        return self.stage in ("filling", "ready")


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

    def stage(self, number: int) -> Stage | None:
        """The stage of a generation; None if there is none of that number (any more)."""
        return next((entry.stage for entry in self.entries() if entry.number == number), None)

    def living(self) -> int:
        """The number of the one that readers see.

        Raises:
            StateError: the register says so of none (terminal).
        """
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

    def begun(self) -> list[Generation]:
        """Of those that were ``written``, the ones that have begun, and go on as they were defined: another one takes
        file and tables as they are."""
        return [one for one in map(self.generation, self.written()) if one.started]

    # -- changing -----------------------------------------------------------------------------------------------------

    def create(self, why: str, *, own: bool = False) -> Registered:
        """A new generation, to be filled.

        Args:
            why: for what it is made, in words.
            own: by `run`, which nobody has asked for it.

        Raises:
            StateError: one is there that no reader has seen: somebody has begun it since the caller has looked.
        """
        with self._changed() as register:
            if unseen := [entry["number"] for entry in register["generations"] if Registered(**entry).unseen]:
                raise StateError(f"sink {self.sink}: generation {unseen[-1]} was begun meanwhile; one at a time")
            number = int(register["last"]) + 1
            entry = Registered(number, "filling", time.time(), why, own=own)
            register["last"] = number
            register["generations"].append(asdict(entry))
        return entry

    def move(self, number: int, stage: Stage) -> None:
        """Put a generation into another stage.

        Raises:
            StateError: it is being removed, or is gone: whoever still fills it must not bring it back (terminal).
        """
        with self._changed() as register:
            entry = next((e for e in register["generations"] if e["number"] == number), None)
            if entry is None or entry["stage"] == "retiring":
                why = "is being removed" if entry else "was removed"
                raise StateError(f"sink {self.sink}: generation {number} {why}, so it can't be {stage} any more")
            entry["stage"] = stage

    def claim(self, number: int) -> None:
        """A person goes on with what `run` has begun: it is that person's from now on."""
        with self._changed() as register:
            next(e for e in register["generations"] if e["number"] == number)["own"] = False

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
            under_way = promotion_of(register)
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
            self._refuse_other(register, number)
            register["promoting"]["moving"] = True

    def refuse_other(self, number: int) -> None:
        """Refuse to go on with a promotion that is not under way any more.

        Raises:
            StateError: somebody has given up, or taken over, the promotion meanwhile.
        """
        self._refuse_other(self._read(), number)

    def _refuse_other(self, register: Mapping[str, Any], number: int) -> None:
        begun = (register.get("promoting") or {}).get("number")
        if begun != number:
            what = (
                f"was overtaken by that of generation {begun}" if begun else "was given up, or ended, by somebody else"
            )
            either = "readers may see either; the one that is under way is ended by its command, or by `run`"
            raise StateError(
                f"sink {self.sink}: the promotion of generation {number} {what} meanwhile",
                means=either if begun is not None else "`headwater generations FILE` says which one readers see",
                fix="promote again, if it is still wanted",
            )

    def promotion(self, after: float = 0.0) -> Promotion | None:
        """The promotion that was begun, more than ``after`` seconds ago, and has not ended."""
        return promotion_of(self._read(), after)

    def cut_promotion(self, after: float) -> int | None:
        """Where readers were being sent more than ``after`` seconds ago: some may be there, so it must be finished."""
        begun = self.promotion(after)
        return begun.number if begun is not None and begun.moving else None

    def give_up_unmoved(self, after: float) -> int | None:
        """Forget a promotion that was begun more than ``after`` seconds ago and has moved nobody; where it went to."""
        if unmoved_of(self._read(), after) is None:
            return None  # nothing is written while there is nothing to forget
        with self._changed() as register:  # readers may be moved at this moment: then it stays
            number = unmoved_of(register, after)
            if number is not None:
                register.pop("promoting")
        return number

    def give_up_promotion(self, number: int, *, unmoved: bool = False) -> None:
        """Forget that readers were to be sent to a generation: its target is gone, so none was, and none can be.

        Args:
            number: of the generation.
            unmoved: only if nobody has begun to move readers meanwhile.
        """
        with self._changed() as register:
            begun = promotion_of(register)
            if begun is not None and begun.number == number and not (unmoved and begun.moving):
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
            begun = promotion_of(register)
            if begun is not None and number in (begun.number, begun.origin):
                raise self._unended(begun, "nothing was removed")
            entry["stage"] = "retiring"

    def promote(self, number: int) -> None:
        """Make a generation the living one; the one that was becomes the previous one.

        Raises:
            StateError: it was removed meanwhile; or its promotion was overtaken by that of another one, or somebody
                else has ended it and readers were taken back since (terminal).
        """

        def moved(entry: Registered) -> Registered:
            if entry.number == number:
                return replace(entry, stage="living", promoted_at=time.time())
            return replace(entry, stage="previous") if entry.stage == "living" else entry

        with self._changed() as register:
            if all(entry["number"] != number for entry in register["generations"]):
                raise StateError(f"sink {self.sink} has no generation {number}: it was removed meanwhile")
            living = any(entry["number"] == number and entry["stage"] == "living" for entry in register["generations"])
            if living and not register.get("promoting"):
                return  # somebody else has ended it
            # Another's record would go, and nobody know that views are mixed; without one, somebody has ended it, and
            # taken readers back, while this process slept.
            self._refuse_other(register, number)
            register["generations"] = [asdict(moved(Registered(**entry))) for entry in register["generations"]]
            register.pop("promoting", None)

    def remove(self, number: int) -> None:
        """Forget a generation; its number is not used again."""
        with self._changed() as register:
            register["generations"] = [e for e in register["generations"] if e["number"] != number]
            if (register.get("promoting") or {}).get("number") == number:
                register.pop("promoting")  # nothing is left to finish

    def last(self) -> int:
        """The highest number that was ever given, as far as is known here."""
        return int(self._read()["last"])

    def adopt(
        self,
        known: Collection[Registered],
        living: int,
        last: int,
        void: Collection[Generation] = (),
        left: Collection[int] = (),
    ) -> bool:
        """Take over what the target shows (operations/generations/found.py); the one that was living is a previous one.

        Args:
            known: the entries that it was judged by.
            living: the generation that readers see.
            last: the highest number that is known to be used.
            void: generations to be forgotten, with what they keep; the caller holds them.
            left: generations to be removed by ``retire``, which the register did not know.

        Returns:
            whether it was done: not if the register has changed since, or readers are being sent somewhere.

        Raises:
            Fenced: another process has taken over one of the void ones; the register is as it was (terminal).
        """
        found = Registered(living, "living", time.time(), "readers see it")
        with self._changed() as register:
            entries = [Registered(**entry) for entry in register["generations"]]
            if entries != list(known) or register.get("promoting"):
                return False
            for generation in void:  # before the register says that readers see it: nobody is to go on with that
                generation.clear()
            numbers = {generation.number for generation in void}
            kept = {entry.number: entry for entry in entries if entry.number not in numbers}
            kept = {n: replace(e, stage="previous") if e.stage == "living" else e for n, e in kept.items()}
            kept[living] = replace(kept.get(living, found), stage="living")
            kept |= {number: Registered(number, "retiring", 0.0, "left of a state that is gone") for number in left}
            register["generations"] = [asdict(kept[number]) for number in sorted(kept)]
            register["last"] = max(int(register["last"]), last)
        return True

    def _unended(self, begun: Promotion, so: str) -> StateError:
        return StateError(
            f"sink {self.sink}: a promotion from generation {begun.origin} to {begun.number} has not ended",
            means=f"readers of some views may see either of them; {so}",
            fix=f"end it: `headwater promote FILE {self.sink} --generation {begun.number}`, "
            f"or take it back: the same with {begun.origin}",
        )

    def _read(self) -> dict[str, Any]:
        fix = (
            "restore it from a copy; or remove it: where readers see another generation than 1, "
            f"`headwater rebuild FILE {self.sink} --auto` asks the target for it"
        )
        found = read_note(self._path, _checked, fix)
        return found or {"last": 1, "generations": [asdict(Registered(1, "living"))]}

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "generations.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            register = self._read()
            yield register
            write_atomic(self._path, json.dumps(register, indent=1))


def _checked(note: Mapping[str, Any]) -> dict[str, Any]:
    """A register whose entries can be read: one that can't is refused by its name, whoever asks for it. Pure."""
    return {**note, "generations": [asdict(Registered(**entry)) for entry in note["generations"]]}
