"""A pipeline file that was applied, handed to the `run` that is alive; and what that `run` goes by.

    <state_dir>/<pipeline>/accepted.json     by `apply`: the file's text, since when
                           running.json      by `run`: the text that it goes by, its process, what it would not take up

A file that was only saved is in neither. Both may hold what is secret in the file, so nobody else may read them.
Imports nothing heavy: `run` looks at every step, `status` is asked often.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline
from operations.state.folder import RUNNING, numbered_state_dir, register_of, state_dir
from spark.disk.files import replaced
from spark.disk.lease import Holder, Lease
from spark.disk.notes import read_note
from spark.disk.process import is_here, is_same, signature


@dataclass(frozen=True)
class Text:
    """A pipeline file as it was read.

    Attributes:
        file: its path, for messages.
        text: what was in it; variables are not filled in.
        at: when it was applied, or when `run` began with it (epoch seconds).
    """

    file: str
    text: str
    at: float

    @property
    def digest(self) -> str:
        """Twelve hex digits that tell one text from another."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Running:
    """What a process of `run` says of itself.

    Attributes:
        taken: the file that it goes by.
        pid, started, host: the process (``spark.disk.process.signature``).
        refused: of a file that was applied and not taken up: ``digest``, ``at`` and ``reason``; None if there is none.
        building: sinks whose next generation it builds.
        only: the sinks of its file that it was asked for; none for all.
    """

    taken: Text
    pid: int
    started: float
    refused: Mapping[str, Any] | None = None
    building: tuple[str, ...] = ()
    host: str = ""
    only: tuple[str, ...] = ()

    def alive(self, pipeline: Pipeline) -> bool | None:
        """Whether that process is there; None for one on another machine that nobody can see from here.

        Args:
            pipeline: the loaded file: there it renews the leases of what it runs, if it runs anything now.
        """
        if is_here(self.host):
            return is_same(self.pid, self.started)
        return True if any(self._is(holder) for holder in _renewed(pipeline)) else None

    def _is(self, holder: Holder) -> bool:
        return (holder.host, holder.pid, holder.started) == (self.host, self.pid, self.started)


def accepted_path(pipeline: Pipeline) -> Path:
    """Where `apply` leaves the file."""
    return state_dir(pipeline) / pipeline.name / "accepted.json"


def hand_over(pipeline: Pipeline, text: Text) -> None:
    """Leave a file that was applied for the `run` that is alive.

    Raises:
        DiskFull: there is no room for it (transient). OSError: as the system says.
    """
    numbered_state_dir(pipeline)
    _write(accepted_path(pipeline), asdict(text))


def read_accepted(pipeline: Pipeline) -> Text | None:
    """The file that was applied last; None if none was.

    Raises:
        StateError: it can't be read (terminal).
    """
    fix = "`headwater apply FILE` writes it anew"
    return read_note(accepted_path(pipeline), lambda note: Text(**note), fix, "what was applied is not known")


def note_running(pipeline: Pipeline, running: Running) -> None:
    """Say what this process goes by.

    Raises:
        DiskFull, OSError: as ``hand_over``.
    """
    numbered_state_dir(pipeline)
    _write(_running_path(pipeline), asdict(running))


def read_running(pipeline: Pipeline) -> Running | None:
    """What the newest process of `run` has said, whether it is alive or not; None if there is nothing to read."""
    try:
        note = json.loads(_running_path(pipeline).read_text())
        lists = {name: tuple(note.get(name, ())) for name in ("building", "only")}
        return Running(**{**note, "taken": Text(**note["taken"]), **lists})
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None


def living_run(pipeline: Pipeline) -> Running | None:
    """What the newest process of `run` has said, if it is seen to be alive."""
    running = read_running(pipeline)
    return running if running is not None and running.alive(pipeline) else None


def _renewed(pipeline: Pipeline) -> Iterator[Holder]:
    """Who holds anything of a pipeline, and has said so lately; of sinks, too, that the file does not have any more."""
    for path in (state_dir(pipeline) / pipeline.name).glob("*/*/lease.json"):
        lease = Lease(path.parent, path.parent.name)
        holder = lease.holder()
        if holder is not None and holder.pid and lease.lately(holder):
            yield holder


def file_status(pipeline: Pipeline) -> dict[str, Any]:
    """Which file `run` goes by, for ``status``."""
    running = living_run(pipeline)
    if running is None:
        return {"pid": None, "running": None, "since": None, "building": [], "refused": None}
    return {
        "pid": running.pid,
        "running": running.taken.digest,
        "since": running.taken.at,
        "building": list(running.building),
        "refused": running.refused,
    }


def runs_without(pipeline: Pipeline, sink: str) -> bool:
    """Whether a `run` is alive whose file does not have this sink: the one that has it was saved, and not taken up."""
    running = living_run(pipeline)
    return running is not None and _lacks(running.taken, "sinks", sink)


def only_saved(pipeline: Pipeline, *keys: str) -> bool:
    """Whether a `run` is alive whose file does not have an entry, and it has refused none that was applied since: who
    has written the entry has still to apply it.

    Args:
        pipeline: the loaded file, which has the entry.
        keys: where it is in the file, from outside to inside: ``"sinks", "search"``.
    """
    running = living_run(pipeline)
    return running is not None and running.refused is None and _lacks(running.taken, *keys)


def sinks_to_wait_for(pipeline: Pipeline) -> list[str]:
    """The file's sinks but those that never had anything and that the `run` that is alive does not know of: nobody
    reads them, and who waited for their writes would wait in vain. All of them, if none was left."""
    running = living_run(pipeline)
    lacking = [] if running is None else [name for name in pipeline.sinks if _lacks(running.taken, "sinks", name)]
    left = [name for name in pipeline.sinks if name not in lacking or register_of(pipeline, name).generation().started]
    return left or list(pipeline.sinks)


def sinks_of(taken: Text) -> list[str]:
    """The names of a file's sinks, also of one whose variables are not set here; none where it is no such file."""
    return list(_entries(_entries(_document(taken.text)).get("sinks")))


def _lacks(taken: Text, *keys: str) -> bool:
    """Whether a file has no such entry; of one that can't be read nobody knows."""
    found = _document(taken.text)
    for key in keys if sinks_of(taken) else ():
        entries = _entries(found)
        if key not in entries:
            return True
        found = entries[key]
    return False


def _entries(part: Any) -> Mapping[str, Any]:
    """A part of a file by its names; empty where it is something else."""
    return {str(name): value for name, value in part.items()} if isinstance(part, dict) else {}


@lru_cache(maxsize=8)  # who watches asks every second
def _document(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None


def this_process(taken: Text, **more: Any) -> Running:
    """The note of this process."""
    return Running(taken, **signature(), **more)


def _running_path(pipeline: Pipeline) -> Path:
    return state_dir(pipeline) / pipeline.name / RUNNING


def _write(path: Path, note: Mapping[str, Any]) -> None:
    """As ``spark.disk.files.write_atomic``, readable for its owner alone from its first moment on."""
    with replaced(path, 0o600) as out:
        out.write(json.dumps(note).encode())


def text_of(file: Path, data: bytes) -> Text:
    """A file as it was read just now, and taken for a pipeline."""
    return Text(str(file), data.decode("utf-8-sig"), time.time())
