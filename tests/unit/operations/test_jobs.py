"""Jobs on a disk that is full for a while: none is called running that has ended, none keeps its kind from others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import DiskFull, StateError
from cdc.pipeline import Pipeline, load
from cdc.polling import poll
from operations.jobs import jobs as module
from operations.jobs.job import Job
from operations.jobs.jobs import Jobs
from spark.disk.files import disk_full, write_atomic
from tests.support.lone_cache import FILE

LONG = 30.0


class Disk:
    """Takes texts while there is room."""

    room = True

    def write(self, path: Path, text: str) -> None:
        if not self.room:
            raise disk_full(path)
        write_atomic(path, text)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(module, "write_atomic", made.write)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.02)
    return made


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state"))
    return load(path)


@pytest.fixture
def jobs(disk: Disk, pipeline: Pipeline) -> Iterator[Jobs]:
    made = Jobs(lambda: pipeline)
    yield made
    made.close()


@pytest.fixture
def does(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Set what a job does, with what it says its lines to."""

    def set_work(what: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(module, "work", lambda _job, _pipeline, say, _stop: what(say))

    return set_work


def on_disk(pipeline: Pipeline, job: Job) -> dict[str, Any]:
    path = Path(pipeline.engine.state_dir) / pipeline.name / ".jobs" / f"{job.id}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_line_that_can_not_be_written_does_not_end_the_job(jobs: Jobs, disk: Disk, does: Any) -> None:
    def work(say: Callable[[str], None]) -> dict[str, Any]:
        disk.room = False
        say("half of it")
        disk.room = True
        return {"changed": True}

    does(work)
    ended = jobs.wait(jobs.begin("pause", "cache"), LONG)
    assert (ended.state, ended.result, ended.lines) == ("done", {"changed": True}, ("half of it",))


@pytest.mark.parametrize("error", [None, "not today"])
def test_an_end_that_can_not_be_written_is_told_at_once_and_written_once_there_is_room(
    jobs: Jobs, disk: Disk, does: Any, pipeline: Pipeline, error: str | None
) -> None:
    def work(_say: object) -> dict[str, Any]:
        disk.room = False
        if error is not None:
            raise StateError(error)
        return {"changed": True}

    does(work)
    job = jobs.begin("pause", "cache")
    ended = jobs.wait(job, LONG)
    assert ended.state == ("done" if error is None else "failed") and not ended.hinders("pause", "cache")
    assert on_disk(pipeline, job)["state"] == "running"
    disk.room = True
    assert poll(lambda: on_disk(pipeline, job)["state"], lambda state: state == ended.state, LONG, 0.02) == ended.state
    assert jobs.get(job.id) == ended and Jobs(lambda: pipeline).get(job.id) == ended
    does(lambda _say: {})
    assert jobs.wait(jobs.begin("pause", "cache"), LONG).state == "done"


def test_a_job_of_this_process_that_no_thread_does_is_cut_and_keeps_no_other_up(jobs: Jobs, does: Any) -> None:
    jobs._write(Job("0000000000001-aaaaaa", "promote", "cache", began=time.time()))
    assert [job.state for job in jobs.newest()] == ["cut"]
    does(lambda _say: {})
    assert jobs.wait(jobs.begin("pause", "cache"), LONG).state == "done"


def test_a_job_that_can_not_be_begun_keeps_no_other_up(jobs: Jobs, disk: Disk, does: Any) -> None:
    does(lambda _say: {})
    disk.room = False
    with pytest.raises(DiskFull):
        jobs.begin("pause", "cache")
    disk.room = True
    assert not jobs._threads and jobs.wait(jobs.begin("pause", "cache"), LONG).state == "done"
