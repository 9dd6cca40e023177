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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from cdc.ages import ago
from cdc.errors import HeadwaterError, StateError
from cdc.pipeline import Pipeline
from cdc.repeating import Repeating
from operations.jobs.job import Job, Verb, refuse_unfit, told
from operations.jobs.work import work
from operations.state.folder import chosen_sinks, numbered_state_dir, state_dir
from spark.disk.files import write_atomic
from spark.disk.lease import EXPIRES_SECONDS, RENEW_SECONDS
from spark.disk.process import is_gone, is_me

# Of those that have ended the newest are kept, and of each the newest lines.
JOBS_KEPT, LINES_KEPT = 100, 200
# An end that could not be written, on a full disk, is written again after so long.
AGAIN_SECONDS = 5.0


class Jobs:
    """The jobs of one pipeline; of a kind one at a time a sink (``Job.hinders``).

    Args:
        pipeline: gives the file as it is now.
    """

    def __init__(self, pipeline: Callable[[], Pipeline]) -> None:
        self._pipeline = pipeline
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        # Jobs that have ended, and whose files do not say so yet.
        self._unwritten: dict[str, Job] = {}
        self._again = Repeating("ends of jobs", self._write_ends, AGAIN_SECONDS)
        # A server on another machine sees of this process only when it touched a job's file.
        self._renewing = Repeating("jobs under way", self._renew, RENEW_SECONDS)
        self._written: dict[str, Path] = {}

    def close(self) -> None:
        """What is done in a process of its own is asked to end; the rest is waited for a moment."""
        self._stop.set()
        with self._lock:  # none is about to begin
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(timeout=5.0)
        self._again.stop()
        self._renewing.stop()

    def newest(self, sink: str | None = None) -> list[Job]:
        """Jobs, the newest first.

        Args:
            sink: only of this one, and those that are about all.
        """
        folder = self._folder()
        found = [job for path in sorted(folder.glob("*.json"), reverse=True) if (job := self._now(path)) is not None]
        return [job for job in found if sink is None or job.sink in (None, sink)]

    def get(self, number: str) -> Job | None:
        """A job by its id; None if there is none."""
        return next((job for job in self.newest() if job.id == number), None)

    def begin(
        self, verb: Verb, sink: str | None, *, generation: int | None = None, why: str | None = None, **asked: Any
    ) -> Job:
        """Begin a job in the background.

        Args:
            verb: what.
            sink: the sink's name; None for all of them, and for tables.
            generation: which one; without it the one that the verb would take.
            why: of a pause.
            asked: what else is said, by the names of ``operations.jobs.job.TAKES``; None for what is not.

        Raises:
            ConfigError: no such sink, or the verb does not take what was said (terminal).
            StateError: another job on it is running (transient by nature).
        """
        pipeline = self._pipeline()
        chosen_sinks(pipeline, () if sink is None else (sink,))
        refuse_unfit(verb, sink, {**asked, "generation": generation, "why": why})
        said = {name: value for name, value in asked.items() if value is not None}
        with self._lock:
            running = next((job for job in self.newest() if job.hinders(verb, sink)), None)
            if running is not None:
                who = "" if running.sink is None else f"sink {running.sink}: "
                raise StateError(f"{who}{running.verb} is under way", fix="wait until it has ended")
            number = f"{int(time.time() * 1000):013d}-{secrets.token_hex(3)}"
            job = Job(number, verb, sink, generation, why, said, began=time.time())
            thread = threading.Thread(target=self._do, args=(job, pipeline), name=f"job {job.id}", daemon=True)
            self._threads[job.id] = thread  # before it can be read: one that nobody does is taken for cut
            try:
                self._write(job)
                self._forget_old()
                self._renewing.start()
                thread.start()
            except BaseException:
                self._threads.pop(job.id)
                raise
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
            # A full disk, a file that is half edited: no reason to end the work.
            with suppress(HeadwaterError, OSError):
                self._write(replace(job, lines=tuple(said[-LINES_KEPT:])))

        try:
            result, error = work(job, pipeline, say, self._stop), None
        except HeadwaterError as raised:
            result, error = None, told(raised)
        except Exception as raised:  # a defect: the page says so, and goes on
            result, error = None, told(HeadwaterError(f"{type(raised).__name__}: {raised}"))
        state = "done" if error is None else "failed"
        lines = tuple(said[-LINES_KEPT:])
        ended = replace(job, state=state, ended=time.time(), lines=lines, result=result, error=error)
        self._unwritten[job.id] = ended
        try:
            self._write_end(ended)
        except Exception:  # it is told when it fails again
            self._again.start()
        finally:
            self._threads.pop(job.id, None)

    def _write_ends(self) -> None:
        for job in list(self._unwritten.values()):
            self._write_end(job)

    def _write_end(self, job: Job) -> None:
        self._write(job)
        self._unwritten.pop(job.id, None)
        self._written.pop(job.id, None)

    def _write(self, job: Job) -> None:
        folder = numbered_state_dir(self._pipeline()) / self._pipeline().name / ".jobs"
        folder.mkdir(parents=True, exist_ok=True)
        path = self._written[job.id] = folder / f"{job.id}.json"
        write_atomic(path, json.dumps(asdict(job)))

    def _renew(self) -> None:
        """Say of each job that somebody does it, by the time of its file: its text is the job's own thread's."""
        for number in list(self._threads):
            if (path := self._written.get(number)) is not None:
                with suppress(OSError):
                    os.utime(path, (time.time(), time.time()))

    def _forget_old(self) -> None:
        """Remove the oldest that have ended: one that is under way keeps others of its kind from its sink."""
        found = sorted(self._folder().glob("*.json"), reverse=True)
        ended = [path for path in found if (job := self._now(path)) is None or job.state != "running"]
        for path in ended[JOBS_KEPT:]:
            path.unlink(missing_ok=True)

    def _folder(self) -> Path:
        pipeline = self._pipeline()
        return state_dir(pipeline) / pipeline.name / ".jobs"

    def _now(self, path: Path) -> Job | None:
        """A job as it is, whether its file says so or not."""
        ended = self._unwritten.get(path.stem)
        job = ended or _read(path)
        if job is None or job.state != "running" or job.id in self._threads or not _is_mine(job):
            return job
        # No thread does it: it ended since its file was read, or it was begun, in this process, by nobody that is left.
        job = self._unwritten.get(path.stem) or _read(path)
        return replace(job, state="cut") if job is not None and job.state == "running" else job


def _is_mine(job: Job) -> bool:
    return is_me(job.host, job.pid, job.started)


def _read(path: Path) -> Job | None:
    try:
        with path.open() as file:  # one that is open is asked of the server of a shared folder, and of no cache
            raw, renewed = json.load(file), os.fstat(file.fileno()).st_mtime
        known = {one.name for one in fields(Job)}
        job = Job(**{name: value for name, value in raw.items() if name in known} | {"lines": tuple(raw["lines"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None  # being removed, or written by another version
    gone = is_gone(job.host, job.pid, job.started, ago(renewed, time.time()), EXPIRES_SECONDS)
    return replace(job, state="cut") if job.state == "running" and gone else job
