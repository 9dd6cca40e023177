"""Where a pipeline's state is, and which of its sinks are meant. Imports nothing heavy: `status` is asked often."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cdc.errors import ConfigError, StateError
from cdc.formats import STATE, refuse_newer
from cdc.pipeline import Pipeline
from spark.disk.files import write_atomic
from spark.disk.notes import glance, read_note
from spark.disk.register import Register

# In <state_dir>/<pipeline>: one number for all that lies below.
NUMBER = "format.json"
# There as well: by `apply`, that it captures the pipeline, which nobody had captured from another folder.
CAPTURED = "captured.json"
# And what was seen of the source last (operations/run/source_watch.py).
SOURCE = "source.json"


def chosen_sinks(pipeline: Pipeline, only: Sequence[str]) -> list[str]:
    """Names of the sinks to work on.

    Raises:
        ConfigError: a name that the pipeline file does not have.
    """
    for name in only:
        if name not in pipeline.sinks:
            raise ConfigError(f"no sink {name} in the pipeline", fix=f"choose from {', '.join(pipeline.sinks)}")
    return list(only) or list(pipeline.sinks)


def state_dir(pipeline: Pipeline) -> Path:
    """Where checkpoints and status files live.

    Raises:
        NewerFormat: a newer Headwater has written what is there (terminal).
        StateError: its number can't be read.
    """
    folder = Path(pipeline.engine.state_dir)
    found = _number(folder / pipeline.name)
    refuse_newer(f"the state of pipeline {pipeline.name} in {folder}", found, STATE)
    return folder


def pipeline_folder(pipeline: Pipeline) -> Path:
    """Where what is kept of one pipeline lies. Raises as ``state_dir``."""
    return state_dir(pipeline) / pipeline.name


def numbered_state_dir(pipeline: Pipeline) -> Path:
    """``state_dir``, for who puts something there: first of all is written down in what form it is."""
    top = state_dir(pipeline)
    folder = top / pipeline.name
    if _number(folder) is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / NUMBER, json.dumps({"format": STATE}))
    return top


def bound(top: Path) -> list[Path]:
    """Folders of the pipelines that remember which Postgres they follow, and refuse another one.

    Args:
        top: a state folder, whichever pipelines are in it.
    """
    notes = [path / SOURCE for path in sorted(top.glob("*"))]
    return [note.parent for note in notes if glance(note, lambda seen: seen["system_identifier"], None, withheld=True)]


def is_begun(pipeline: Pipeline) -> bool:
    """Whether a `run` has been at work with this state folder, or the pipeline was captured with it and waits for one.
    All else says nothing: who applies a file here, or verifies, leaves something in whichever folder it is."""
    if running_notes(pipeline) or captured_path(pipeline).exists():
        return True
    return any(register_of(pipeline, sink).begun() for sink in pipeline.sinks)


def running_path(pipeline: Pipeline, only: Sequence[str]) -> Path:
    """Where a `run` notes which file it goes by (operations/state/accepted.py).

    Args:
        pipeline: the loaded file.
        only: the sinks that it was started for; none for all.
    """
    # By a digest: names of many sinks are longer than a file's name may be.
    which = f"-{hashlib.sha256(' '.join(sorted({*only})).encode()).hexdigest()[:12]}" if only else ""
    return pipeline_folder(pipeline) / f"running{which}.json"


def running_notes(pipeline: Pipeline) -> list[Path]:
    """The notes of all choices of sinks that a `run` was ever started for."""
    return sorted(pipeline_folder(pipeline).glob("running*.json"))


def captured_path(pipeline: Pipeline) -> Path:
    """Where ``note_captured`` notes it."""
    return pipeline_folder(pipeline) / CAPTURED


def note_captured(pipeline: Pipeline) -> None:
    """Note that the pipeline was captured with this state folder.

    Raises:
        DiskFull: no room (transient).
    """
    numbered_state_dir(pipeline)
    write_atomic(captured_path(pipeline), "{}")


def refuse_not_begun(pipeline: Pipeline, means: str, lost: str = "") -> None:
    """Refuse to change sinks by a state folder that knows nothing of them: what is done would be nothing, or done to
    what a `run` with another folder is at work with.

    Args:
        pipeline: the loaded file.
        means: what is not done, and why, as a clause.
        lost: what to do where the folder is lost; empty: as docs/runbooks.md says.

    Raises:
        StateError: ``is_begun`` says no (terminal).
    """
    if is_begun(pipeline):
        return
    raise StateError(
        f"there is nothing of pipeline {pipeline.name} in engine.state_dir "
        f"({Path(pipeline.engine.state_dir).absolute()})",
        means=means,
        fix="name the folder that its `run` has, as an absolute path in engine.state_dir, or go to the working folder "
        "in which `run` was started; if it never was, start `run` here once. If it is lost: "
        f"{lost or 'docs/runbooks.md#the-state-folder-is-lost'}",
    )


def followed_timelines(pipeline: Pipeline) -> frozenset[int]:
    """Timelines of the source that are one history: a promoted standby was followed from each to the next."""
    path = state_dir(pipeline) / pipeline.name / SOURCE
    # Who knows nothing of it follows nobody.
    return glance(path, _timelines, frozenset(), withheld=True)


def _timelines(seen: Any) -> frozenset[int]:
    return frozenset((*seen.get("followed", ()), seen["timeline"]))


def _number(folder: Path) -> Any:
    return read_note(folder / NUMBER, lambda note: note["format"], 'restore it from a copy ({"format": 1})')


def registers_of(pipeline: Pipeline, only: Sequence[str]) -> dict[str, Register]:
    """The registers of the sinks to work on, by their names.

    Raises:
        ConfigError: a name that the pipeline file does not have.
    """
    return {sink: register_of(pipeline, sink) for sink in chosen_sinks(pipeline, only)}


def left_sinks(pipeline: Pipeline) -> list[str]:
    """Names of sinks that the file has no more, and whose generations, or history, are kept here still."""
    folder = pipeline_folder(pipeline)
    kept = (path for name in ("generations.json", "g[0-9]*", "history") for path in folder.glob(f"*/{name}"))
    return sorted({path.parent.name for path in kept} - pipeline.sinks.keys())


def register_of(pipeline: Pipeline, sink: str) -> Register:
    """The register of a sink's generations."""
    folder = state_dir(pipeline)
    return Register(folder, pipeline.name, sink)
