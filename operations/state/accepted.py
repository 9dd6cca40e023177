"""A pipeline file that was applied, handed to the `run` that is alive; and what that `run` goes by.

    <state_dir>/<pipeline>/accepted.json     by `apply`: the file's text, since when
                           running.json      by `run`: the text that it goes by, its process, what it would not take up
                           running-<…>.json  the same by a `run --sink`: one for each choice of sinks, so that several
                                             at once keep a note each

A file that was only saved is in neither. Both may hold what is secret in the file, so nobody else may read them.
Imports nothing heavy: `run` looks at every step, `status` is asked often.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline
from operations.state.folder import (
    captured_path,
    numbered_state_dir,
    register_of,
    running_notes,
    running_path,
    state_dir,
)
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

    def knows(self, sink: str) -> bool:
        """Whether its file has a sink; also where nobody can tell which ones that has."""
        return not _lacks(self.taken, "sinks", sink)

    def has(self, sink: str) -> bool:
        """Whether a sink is of its file, and it was asked for that: it runs it, or would."""
        return sink in self.only if self.only else self.knows(sink)

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


def note_running(pipeline: Pipeline, running: Running, asked: Sequence[str] | None = None) -> None:
    """Say what this process goes by.

    Args:
        pipeline: the loaded file.
        running: the note.
        asked: the sinks that the process was started for, where a file has some of them no more: it keeps one note for
            as long as it lives. ``running.only`` if left out.

    Raises:
        DiskFull, OSError: as ``hand_over``.
    """
    numbered_state_dir(pipeline)
    _write(running_path(pipeline, running.only if asked is None else asked), asdict(running))


def read_runs(pipeline: Pipeline) -> list[Running]:
    """What processes of `run` have said, alive or not, the newest word first: the last one of each choice of sinks."""
    found = []
    for path in running_notes(pipeline):
        with suppress(FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            at, note = path.stat().st_mtime_ns, json.loads(path.read_text())
            lists = {name: tuple(note.get(name, ())) for name in ("building", "only")}
            found.append((at, Running(**{**note, "taken": Text(**note["taken"]), **lists})))
    return [running for _, running in sorted(found, key=lambda one: one[0], reverse=True)]


def living_runs(pipeline: Pipeline) -> list[Running]:
    """Those of ``read_runs`` whose processes are seen to be alive."""
    return [running for running in read_runs(pipeline) if running.alive(pipeline)]


def forget_captured(pipeline: Pipeline, *, runs: bool) -> None:
    """Remove what says that the pipeline was captured with this state folder; another one may have it next.

    Args:
        pipeline: the loaded file.
        runs: what `run` has noted of itself too, unless one is alive.
    """
    captured_path(pipeline).unlink(missing_ok=True)
    for path in running_notes(pipeline) if runs and not living_runs(pipeline) else ():
        path.unlink(missing_ok=True)


def cut_builds(runs: Sequence[Running], taken: Text, sinks: Collection[str]) -> list[str]:
    """Sinks whose next generation was being built when their `run` ended. Pure.

    Args:
        runs: of ``read_runs``.
        taken: the file that the next `run` goes by: of another one it goes on with nothing.
        sinks: those that it runs. Of each the newest word of whoever had it counts: an older one is of a process that
            was started otherwise, and what that built may have been shown since.
    """
    last = {sink: next((one for one in runs if one.has(sink)), None) for sink in sinks}
    return [
        sink
        for sink, one in last.items()
        if one is not None and one.taken.digest == taken.digest and sink in one.building
    ]


def _renewed(pipeline: Pipeline) -> Iterator[Holder]:
    """Who holds anything of a pipeline, and has said so lately; of sinks, too, that the file does not have any more."""
    for path in (state_dir(pipeline) / pipeline.name).glob("*/*/lease.json"):
        lease = Lease(path.parent, path.parent.name)
        holder = lease.holder()
        if holder is not None and holder.pid and lease.lately(holder):
            yield holder


def file_status(pipeline: Pipeline) -> dict[str, Any]:
    """Which file the newest `run` goes by, for ``status``; what is built, and what was refused, also of others."""
    runs = living_runs(pipeline)
    if not runs:
        return {"pid": None, "running": None, "since": None, "building": [], "refused": None}
    return {
        "pid": runs[0].pid,
        "running": runs[0].taken.digest,
        "since": runs[0].taken.at,
        "building": list(dict.fromkeys(sink for running in runs for sink in running.building)),
        "refused": next((running.refused for running in runs if running.refused is not None), None),
    }


def runs_without(pipeline: Pipeline, sink: str) -> bool:
    """Whether a `run` is alive, and none whose file has this sink: the one that has it was saved, and not taken up."""
    return _none_has(living_runs(pipeline), "sinks", sink)


def only_saved(pipeline: Pipeline, *keys: str) -> bool:
    """Whether a `run` is alive, none's file has an entry, and none has refused one that was applied since: who has
    written the entry has still to apply it.

    Args:
        pipeline: the loaded file, which has the entry.
        keys: where it is in the file, from outside to inside: ``"sinks", "search"``.
    """
    return _only_saved(living_runs(pipeline), *keys)


def sinks_to_wait_for(pipeline: Pipeline) -> list[str]:
    """The file's sinks but those that are ``only_saved`` and never had anything: nobody reads them, and who waited for
    their writes would wait in vain. All of them, if none was left."""
    runs = living_runs(pipeline)
    saved = [name for name in pipeline.sinks if _only_saved(runs, "sinks", name)]
    left = [name for name in pipeline.sinks if name not in saved or register_of(pipeline, name).generation().started]
    return left or list(pipeline.sinks)


def _only_saved(runs: Sequence[Running], *keys: str) -> bool:
    return _none_has(runs, *keys) and all(running.refused is None for running in runs)


def _none_has(runs: Sequence[Running], *keys: str) -> bool:
    """Whether there are any, and none's file has an entry."""
    return bool(runs) and all(_lacks(running.taken, *keys) for running in runs)


def sinks_of(taken: Text) -> list[str]:
    """The names of a file's sinks, also of one whose variables are not set here; none where it is no such file."""
    return list(_names(taken.text).get("sinks", ()))


def _lacks(taken: Text, *keys: str) -> bool:
    """Whether a file has no such entry; of one that can't be read nobody knows."""
    found = _names(taken.text)
    for key in keys if sinks_of(taken) else ():
        if key not in found:
            return True
        found = found[key]
    return False


# Of each pipeline that is served or watched, and some that are tried again: who waits asks at every request, and to
# read a file takes a tenth of a second. The names alone are kept, not all that is in it.
@lru_cache(maxsize=256)
def _names(text: str) -> dict[str, Any]:
    """The names in a file, those below each beside it; none where it is no such file."""
    from cdc.pipeline.document import SyntaxProblem, parse

    try:  # as the file was loaded: another reader fails with a text that looks like a date
        return _names_of(parse(text)[0].plain())
    except SyntaxProblem:
        return {}


def _names_of(part: Any) -> dict[str, Any]:
    return {name: _names_of(value) for name, value in part.items()} if isinstance(part, dict) else {}


def this_process(taken: Text, **more: Any) -> Running:
    """The note of this process."""
    return Running(taken, **signature(), **more)


def _write(path: Path, note: Mapping[str, Any]) -> None:
    """As ``spark.disk.files.write_atomic``, readable for its owner alone from its first moment on."""
    with replaced(path, 0o600) as out:
        out.write(json.dumps(note).encode())


def text_of(file: Path, data: bytes) -> Text:
    """A file as it was read just now, and taken for a pipeline."""
    return Text(str(file), data.decode("utf-8-sig"), time.time())
