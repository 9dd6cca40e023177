"""How far each sink has followed the tables, and what is under way because of a newer shape.

<state_dir>/<pipeline>/allowed.json             shapes that `headwater apply` has let through
                       evolving.json            how far the steps are, for `status`
                       asked.json               tables that are being read again, and what was asked for
                       <sink>/evolution.json    the shape that the sink was brought to, and what is under way
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cdc.catalogue import as_stored
from cdc.formats import SHAPES, refuse_newer
from cdc.pipeline import Pipeline
from cdc.shapes import Shape, shape_of
from operations.state.folder import pipeline_folder
from spark.disk.files import Stamp, stamp, write_atomic, write_somehow
from spark.disk.notes import glance, read_note

# More files than a process has sinks and generations.
KEPT_READ = 256
MEND = "restore it from a copy; or remove it, and `headwater verify FILE` shows what has to be read again"


@dataclass(frozen=True)
class Todo:
    """What is under way for one table.

    Attributes:
        what: what has happened to it, in words.
        at: when that was noticed, epoch seconds.
        read: which of its rows are to be read again: a condition, or empty for all; None for none, or done.
        rebuild: the sink gets a new generation.
        capture: the connector's settings are to be brought to the table.
        sweep: rows that are gone without a delete are to be looked for.
        new: the table is new; a sink of whole tables takes it up once it is captured.
        show: readers are to see what was taken up.
        waits: stopped by ``policy.schema`` until `headwater apply`.
        error: why the last attempt at a step has failed.
    """

    what: tuple[str, ...]
    at: float
    read: str | None = None
    rebuild: bool = False
    capture: bool = False
    sweep: bool = False
    new: bool = False
    show: bool = False
    waits: bool = False
    error: str | None = None

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return self.read is None and not (self.rebuild or self.capture or self.show or self.waits)


@dataclass(frozen=True)
class Evolution:
    """How far one sink has followed the tables: by sink, because each may have a process of its own.

    Attributes:
        acted: table -> the shape that the sink was brought to.
        todo: table -> what is under way.
        allowed: shapes that `headwater apply` has let through, under ``policy.schema`` pause or ignore.
    """

    acted: Mapping[str, Shape] = field(default_factory=dict)
    todo: Mapping[str, Todo] = field(default_factory=dict)
    allowed: Mapping[str, Shape] = field(default_factory=dict)

    def having(self, table: str, todo: Todo | None) -> Evolution:
        """The same with what is under way for one table; None for nothing."""
        rest = {name: one for name, one in self.todo.items() if name != table}
        return replace(self, todo=rest if todo is None or todo.over else {**rest, table: todo})


def has_evolution(pipeline: Pipeline, sink: str) -> bool:
    """Whether it is known what a sink was brought to."""
    return _evolution(pipeline, sink).exists()


def _evolution(pipeline: Pipeline, sink: str) -> Path:
    return pipeline_folder(pipeline) / sink / "evolution.json"


def read_evolution(pipeline: Pipeline, sink: str) -> Evolution:
    """How far a sink has followed.

    Raises:
        StateError: the file can't be read (terminal).
    """
    path = _evolution(pipeline, sink)

    def of(raw: Any) -> Evolution:
        refuse_newer(str(path), raw["format"], SHAPES)
        return Evolution(
            {name: shape_of(shape) for name, shape in raw["acted"].items()},
            {name: Todo(**{**todo, "what": tuple(todo["what"])}) for name, todo in raw["todo"].items()},
            {name: shape_of(shape) for name, shape in raw["allowed"].items()},
        )

    return read_note(path, of, MEND) or Evolution()


def write_evolution(pipeline: Pipeline, sink: str, evolution: Evolution) -> None:
    """Replace it in one step.

    Raises:
        DiskFull: no room (transient); nothing was changed.
    """
    text = json.dumps({"format": SHAPES, **as_stored(evolution)}, sort_keys=True)
    write_atomic(_evolution(pipeline, sink), text)


def read_allowed(pipeline: Pipeline) -> dict[str, Shape]:
    """Shapes that `headwater apply` has let through; a word of its own file, because `run` writes the other one."""
    path = pipeline_folder(pipeline) / "allowed.json"
    return dict(_allowed(path, stamp(path)))


# `run` asks for this and for what is frozen twice a second, of every generation: they are read when they have changed.
@lru_cache(maxsize=KEPT_READ)
def _allowed(path: Path, _now: Stamp | None) -> Mapping[str, Shape]:
    try:
        return {name: shape_of(shape) for name, shape in json.loads(path.read_text()).items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def allow(pipeline: Pipeline, shapes: Mapping[str, Shape]) -> None:
    """Let the tables' shapes through, whatever ``policy.schema`` says."""
    text = json.dumps({name: as_stored(shape) for name, shape in sorted(shapes.items())})
    write_atomic(pipeline_folder(pipeline) / "allowed.json", text)


# A step that is under way: its sink, or none; its tables, or none; what it has said last.
Progress = tuple[str, Sequence[str], str]


def write_progress(pipeline: Pipeline, steps: Sequence[Progress]) -> None:
    """How far the steps are that are under way, for `status`; nothing when none is."""
    path = pipeline_folder(pipeline) / "evolving.json"
    if not steps:
        path.unlink(missing_ok=True)
        return
    write_somehow(path, json.dumps({"steps": steps}))


def read_progress(pipeline: Pipeline) -> list[Progress]:
    """What ``write_progress`` has said last; empty for nothing."""
    path = pipeline_folder(pipeline) / "evolving.json"
    return glance(path, lambda note: [(str(sink), tuple(of), str(words)) for sink, of, words in note["steps"]], [])


def read_asked(pipeline: Pipeline) -> dict[str, str]:
    """Tables that are being read again -> what was asked for, of which shape: it is not asked for twice.

    A damaged note says nothing: what was in it is asked for once more, which takes time and changes nothing.

    Raises:
        OSError: the system does not let us read it; to ask once more at each attempt would end never.
    """
    return glance(pipeline_folder(pipeline) / "asked.json", dict, {})


def write_asked(pipeline: Pipeline, asked: Mapping[str, str]) -> None:
    """Replace what ``read_asked`` gives.

    Raises:
        DiskFull: no room (transient).
    """
    write_atomic(pipeline_folder(pipeline) / "asked.json", json.dumps(dict(asked)))


def forget_asked(pipeline: Pipeline, table: str) -> None:
    """It has ended: the next time it is asked for anew. Raises as ``write_asked``."""
    write_asked(pipeline, {name: one for name, one in read_asked(pipeline).items() if name != table})
