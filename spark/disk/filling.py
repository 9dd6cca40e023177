"""How far the fill of an empty sink is, what it reads next, and what the folder of its flow says of it.

Everybody asks here: who knew the notes by their names and shapes in a place of his own, took one that looks otherwise
for none, and was silent.

The log is read up to where it ended when the fill began, in slices: a batch job each, after which the place is written
down. A crash costs a slice. Two passes: first the rows of every table but the root's, then the root's topic, whose rows
go into the store and become documents in one go. If the root's table is also somewhere below the root, or counted in an
aggregate, its rows belong to the first pass too, and the second makes documents of their keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cdc.errors import StateError
from spark.disk.files import write_atomic
from spark.disk.notes import read_note
from spark.disk.state import rebuild_command

# In a flow's folder: the fill's place; and that it has ended, and the query goes on from there.
FILL, PHASE = "fill.json", "phase.json"

Offsets = Mapping[str, Mapping[int, int]]
Pass = Literal["rows", "documents"]


class Slice(NamedTuple):
    """Records to read at once: from ``starts`` to before ``ends``, for the partitions that have any left."""

    which: Pass
    starts: Offsets
    ends: Offsets

    @property
    def size(self) -> int:
        """Offsets in it."""
        return sum(to - self.starts[topic][part] for topic, parts in self.ends.items() for part, to in parts.items())


@dataclass(frozen=True)
class FillState:
    """A fill's place in the log.

    Attributes:
        server: the run of the row store's server that has had every write since the fill began.
        attempt: another text each time the fill is begun anew.
        root: the root table's topic.
        once: whether the root's table stands nowhere else in the view.
        begins: topic -> partition -> where the log began.
        ends: where it ended.
        rows: the first pass: next offsets.
        documents: the second pass: next offsets of the root's topic.
        slices: how many were done, by earlier attempts too.
        at: when the newest was done (epoch seconds).
        begun: when this attempt was.
    """

    server: str
    attempt: str
    root: str
    once: bool
    begins: Offsets
    ends: Offsets
    rows: Offsets = field(default_factory=dict)
    documents: Offsets = field(default_factory=dict)
    slices: int = 0
    at: float = 0.0
    begun: float = 0.0

    @property
    def done(self) -> bool:
        """Whether nothing is left to read."""
        return self.next(1) is None

    def next(self, size: int) -> Slice | None:
        """The slice that comes next, of about ``size`` offsets; None when all is done."""
        passes: tuple[tuple[Pass, Offsets], ...] = (("rows", self.rows), ("documents", self.documents))
        for which, at in passes:
            found = _slice(self._of(which, self.begins), at, self._of(which, self.ends), size)
            if found is not None:
                return Slice(which, *found)
        return None

    def after(self, piece: Slice, now: float) -> FillState:
        """The state when a slice is done."""
        before = getattr(self, piece.which)
        moved = {topic: {**before.get(topic, {}), **parts} for topic, parts in piece.ends.items()}
        done: Any = {piece.which: {**before, **moved}}
        return replace(self, slices=self.slices + 1, at=now, **done)

    def progress(self) -> tuple[Pass, int, int]:
        """Which pass it is in; offsets done and to do in both."""
        done = total = 0
        current: Pass = "documents"
        for which, at in (("documents", self.documents), ("rows", self.rows)):
            here = whole = 0
            begins = self._of(which, self.begins)
            for topic, parts in self._of(which, self.ends).items():
                for part, end in parts.items():
                    begin = begins[topic].get(part, 0)
                    whole += end - begin
                    here += at.get(topic, {}).get(part, begin) - begin
            if here < whole and which == "rows":
                current = "rows"
            done, total = done + here, total + whole
        return current, done, total

    def _of(self, which: str, offsets: Offsets) -> Offsets:
        if which == "documents":
            return {self.root: offsets.get(self.root, {})}
        return {topic: parts for topic, parts in offsets.items() if topic != self.root or not self.once}

    def to_json(self) -> str:
        """For the disk."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FillState:
        """What ``to_json`` wrote."""
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> FillState:
        """What ``to_json`` wrote, read as JSON already."""
        found = dict(note)
        for name in ("begins", "ends", "rows", "documents"):
            found[name] = {t: {int(part): at for part, at in parts.items()} for t, parts in found[name].items()}
        return cls(**found)


def _slice(begins: Offsets, at: Offsets, ends: Offsets, size: int) -> tuple[Offsets, Offsets] | None:
    """Where to start and end; each partition gets a share of what it has left, so that they end together.

    What is left is cut into equal slices, so that no small one remains.
    """
    left = {
        (topic, part): (start, end)
        for topic, parts in ends.items()
        for part, end in parts.items()
        if (start := at.get(topic, {}).get(part, begins[topic].get(part, 0))) < end
    }
    if not left:
        return None
    total = sum(end - start for start, end in left.values())
    size = -(-total // max(1, round(total / size)))
    starts: dict[str, dict[int, int]] = {}
    stops: dict[str, dict[int, int]] = {}
    for (topic, part), (start, end) in left.items():
        share = -(-(end - start) * size // total)
        starts.setdefault(topic, {})[part] = start
        stops.setdefault(topic, {})[part] = min(end, start + max(1, share))
    return starts, stops


# -- what stands in a flow's folder ------------------------------------------------------------------------------------


def load(folder: Path) -> FillState | None:
    """The fill that the flow of a folder has begun, or ended; None if there is none.

    Raises:
        StateError: the note can't be read (terminal).
    """
    fix = f"restore it from a copy; or {rebuild_command(folder.parent.parent.name)}"
    return read_note(folder / FILL, FillState.of, fix)


def save(folder: Path, state: FillState) -> None:
    """Write it down."""
    write_atomic(folder / FILL, state.to_json())


def has_place(folder: Path) -> bool:
    """Whether the flow of a folder has written a fill's place, whatever it says."""
    return (folder / FILL).exists()


def passes_before(folder: Path) -> int:
    """How many passes of a fill stand before the first batch of a flow's checkpoint, in the one sequence of numbers in
    which its status and its kept batches count; 0 of a flow without a fill, or if the note can't be read."""
    try:
        state = load(folder)
    except (OSError, StateError):
        return 0
    return 0 if state is None else state.slices


def fill_progress(folder: Path) -> tuple[int, int] | None:
    """Offsets done and to do, in both passes, of a fill that has not ended: until then the flow's checkpoint is empty.
    None of a flow that is in none, or if its notes can't be read."""
    try:
        state = load(folder) if in_fill(folder) else None
    except (OSError, StateError):
        return None
    return None if state is None else state.progress()[1:]


def write_live(folder: Path) -> None:
    """Remember that the fill has ended, and that the query goes on from there."""
    write_atomic(folder / PHASE, json.dumps({"phase": "live"}))


def is_live(folder: Path) -> bool:
    """Whether the flow of a folder keeps a joined view that is filled. Of a release that noted the passes of a
    fill as well, only the word "live" says so.

    Raises:
        StateError: the note can't be read (terminal).
    """
    fix = 'write {"phase": "live"} into it if `status` had said `running` of the flow; else remove it'
    return bool(read_note(folder / PHASE, lambda note: str(note["phase"]) == "live", fix))


def was_begun(folder: Path) -> bool:
    """Whether the flow of a folder has ever begun a fill, as far as that knows."""
    return has_place(folder) or (folder / PHASE).exists()


def in_fill(folder: Path) -> bool:
    """Whether the flow of a folder keeps a joined view whose fill was begun and has not ended.

    Raises:
        StateError: as ``is_live``.
    """
    return was_begun(folder) and not is_live(folder)
