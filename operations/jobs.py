"""What somebody has asked the server to do with a sink: each a job with an id, a log and a result.

    <state_dir>/<pipeline>/.jobs/<id>.json

A job's file outlives the server that does it: one whose server is gone was ``cut``, and the same again goes on, as with
the verb that does the same. No sink can be called `.jobs`.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from cdc.errors import ConfigError, HeadwaterError, StateError
from cdc.pipeline import Pipeline
from operations.apart import Apart
from operations.generations.promote import candidate, promote, refuse_far_behind
from operations.losses.steps import rebuild as rebuild_apart
from operations.pausing import pause, refuse_paused, resume
from operations.state_folder import chosen_sinks, numbered_state_dir, state_dir
from spark.files import write_atomic

Verb = Literal["promote", "rollback", "pause", "resume", "rebuild"]
# Of these the newest are kept, and of each the newest lines.
JOBS_KEPT, LINES_KEPT = 100, 200
# Between two looks at a process of its own.
LOOK_SECONDS = 0.3

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        id: of the job; newer ones sort behind older ones.
        verb: as the command line has it.
        sink: the sink's name.
        state: ``running``, ``done``, ``failed``, or ``cut``: the server that did it is gone.
        began, ended: epoch seconds.
        lines: what it has said.
        result: in the shape of the verb's ``--json``.
        error: ``code``, ``what``, ``means``, ``fix``, ``transient``.
        pid, started: the server's process.
    """

    id: str
    verb: Verb
    sink: str
    generation: int | None = None
    why: str | None = None
    state: str = "running"
    began: float = 0.0
    ended: float | None = None
    lines: tuple[str, ...] = ()
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=lambda: psutil.Process().create_time())

    def to_dict(self) -> dict[str, Any]:
        """The shape of ``GET /v1/jobs``."""
        shown = asdict(self)
        return {name: value for name, value in shown.items() if name not in ("pid", "started")}


class Jobs:
    """The jobs of one pipeline; one at a time a sink, and a rebuild beside the others.

    Args:
        pipeline: gives the file as it is now.
    """

    def __init__(self, pipeline: Callable[[], Pipeline]) -> None:
        self._pipeline = pipeline
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def close(self) -> None:
        """A rebuild that is under way is asked to end, where the next one goes on; the rest is waited for a moment."""
        self._stop.set()
        for thread in list(self._threads.values()):
            thread.join(timeout=5.0)

    def newest(self, sink: str | None = None) -> list[Job]:
        """Jobs, the newest first.

        Args:
            sink: only of this one.
        """
        folder = self._folder()
        found = [job for path in sorted(folder.glob("*.json"), reverse=True) if (job := _read(path)) is not None]
        return [job for job in found if sink in (None, job.sink)]

    def get(self, number: str) -> Job | None:
        """A job by its id; None if there is none."""
        return next((job for job in self.newest() if job.id == number), None)

    def begin(self, verb: Verb, sink: str, *, generation: int | None = None, why: str | None = None) -> Job:
        """Begin a job in the background.

        Args:
            verb: what.
            sink: the sink's name.
            generation: which one, of promote and rollback; the one that the verb would take without it.
            why: of a pause.

        Raises:
            ConfigError: no such sink (terminal). StateError: another job on it is running (transient by nature).
        """
        pipeline = self._pipeline()
        chosen_sinks(pipeline, [sink])
        with self._lock:
            # A rebuild takes minutes, and its process some seconds more to end: what it has made may be promoted, and
            # the sink be paused, as beside the verb.
            others = [job for job in self.newest(sink) if job.state == "running"]
            running = next((job for job in others if job.verb != "rebuild" or verb == "rebuild"), None)
            if running is not None:
                raise StateError(f"sink {sink}: {running.verb} is under way", fix="wait until it has ended")
            number = f"{int(time.time() * 1000):013d}-{secrets.token_hex(3)}"
            job = Job(number, verb, sink, generation, why, began=time.time())
            self._write(job)
            self._forget_old()
        thread = threading.Thread(target=self._do, args=(job, pipeline), name=f"job {job.id}", daemon=True)
        self._threads[job.id] = thread
        thread.start()
        return job

    def wait(self, job: Job, seconds: float) -> Job:
        """The job as it is once it has ended, or after so many seconds."""
        thread = self._threads.get(job.id)
        if thread is not None:
            thread.join(timeout=seconds)
        return self.get(job.id) or job

    def _do(self, job: Job, pipeline: Pipeline) -> None:
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            self._write(replace(job, lines=tuple(said[-LINES_KEPT:])))

        try:
            result, error = self._work(job, pipeline, say), None
        except HeadwaterError as raised:
            result, error = None, told(raised)
        except Exception as raised:  # a defect: the page says so, and goes on
            result, error = None, told(HeadwaterError(f"{type(raised).__name__}: {raised}"))
        state = "done" if error is None else "failed"
        lines = tuple(said[-LINES_KEPT:])
        self._write(replace(job, state=state, ended=time.time(), lines=lines, result=result, error=error))
        self._threads.pop(job.id, None)

    def _work(self, job: Job, pipeline: Pipeline, say: Say) -> dict[str, Any]:
        sink = job.sink
        if job.verb == "promote":
            entry = candidate(pipeline, sink, job.generation, "ready", "previous", "living")
            refuse_far_behind(pipeline, sink, entry.number)
            return promote(pipeline, sink, entry.number, say)
        if job.verb == "rollback":
            return promote(pipeline, sink, candidate(pipeline, sink, job.generation, "previous").number, say)
        if job.verb == "pause":
            found, changed = pause(pipeline, sink, job.why, say)
            return {"paused": True, "changed": changed, "since": found.since}
        if job.verb == "resume":
            return {"paused": False, "changed": resume(pipeline, sink) is not None}
        return self._rebuild(pipeline, sink, say)

    def _rebuild(self, pipeline: Pipeline, sink: str, say: Say) -> dict[str, Any]:
        if pipeline.file is None:
            raise ConfigError("the pipeline has no file", fix="serve it from one")
        refuse_paused(pipeline, [sink], "nothing is filled")
        with Apart(rebuild_apart, Path(pipeline.file), sink, None) as work:
            while not work.ended() and not self._stop.is_set():
                for line in work.lines():
                    say(line)
                self._stop.wait(LOOK_SECONDS)
            if not work.ended():
                raise StateError(
                    "the server was stopped", means="what is filled stays", fix="rebuild again: it goes on"
                )
            for line in work.lines():
                say(line)
            work.result()
        return {"sink": sink, "stage": "ready"}

    def _write(self, job: Job) -> None:
        folder = numbered_state_dir(self._pipeline()) / self._pipeline().name / ".jobs"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / f"{job.id}.json", json.dumps(asdict(job)))

    def _forget_old(self) -> None:
        for path in sorted(self._folder().glob("*.json"), reverse=True)[JOBS_KEPT:]:
            path.unlink(missing_ok=True)

    def _folder(self) -> Path:
        pipeline = self._pipeline()
        return state_dir(pipeline) / pipeline.name / ".jobs"


def told(error: HeadwaterError) -> dict[str, Any]:
    """An error as every answer over HTTP has it."""
    return {
        "code": error.code,
        "what": error.what,
        "means": error.means,
        "fix": error.fix,
        "transient": error.transient,
    }


def _read(path: Path) -> Job | None:
    try:
        raw = json.loads(path.read_text())
        known = {one.name for one in fields(Job)}
        job = Job(**{name: value for name, value in raw.items() if name in known} | {"lines": tuple(raw["lines"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None  # being removed, or written by another version
    return replace(job, state="cut") if job.state == "running" and not _alive(job) else job


def _alive(job: Job) -> bool:
    try:
        return abs(psutil.Process(job.pid).create_time() - job.started) < 2.0
    except psutil.Error:
        return False
