"""Jobs: on a disk that is full for a while none is called running that has ended, and none keeps its kind from others;
and what one does is what the verb of its name does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import DiskFull, StateError
from cdc.pipeline import Pipeline, load
from cdc.polling import poll
from connectors.snapshots.progress import TableProgress
from operations.generations import lag
from operations.jobs import jobs as module
from operations.jobs import work as working
from operations.jobs.job import Job, Verb
from operations.jobs.jobs import Jobs
from operations.state.folder import register_of
from operations.state.letters import note_count
from spark.disk.files import disk_full, write_atomic
from tests.support.lone_cache import written

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
    return load(written(tmp_path))


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


# -- what they do ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "left", "letters", "refusal"),
    [
        ("promote", lag.MOST_BEHIND + 1, 0, "10,001 records behind the log"),
        ("promote", 0, 1, "1 dead letters of generation 2 stand"),
        ("rollback", 0, 1, "1 dead letters of generation 1 stand"),
        ("promote", lag.MOST_BEHIND, 0, None),
        ("rollback", lag.MOST_BEHIND + 1, 0, None),
    ],
)
def test_a_job_sends_readers_to_no_generation_that_the_verb_refuses(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, verb: Verb, left: int, letters: int, refusal: str | None
) -> None:
    """It takes no --force: who wants readers to see what is missing there says so to the verb."""
    register, promoted = register_of(pipeline, "cache"), list[int]()
    register.move(register.create("a test").number, "ready")
    if verb == "rollback":
        register.begin_promotion(2, 1)
        register.promote(2)
    meant = 2 if verb == "promote" else 1
    note_count(pipeline, "cache", {meant: letters})

    def promote(_pipeline: Pipeline, _sink: str, number: int, _say: Any) -> dict[str, Any]:
        promoted.append(number)
        return {"generation": number}

    monkeypatch.setattr(lag, "behind", lambda *_: left)
    monkeypatch.setattr(working, "promote", promote)
    job = Job("1", verb, "cache")
    if refusal is None:
        assert working.work(job, pipeline, print, Event()) == {"generation": meant}
    else:
        with pytest.raises(StateError, match=refusal):
            working.work(job, pipeline, print, Event())
    assert promoted == ([] if refusal else [meant])


@pytest.mark.parametrize(
    ("asked", "swept"), [({}, True), ({"sweep": None}, True), ({"sweep": True}, True), ({"sweep": False}, False)]
)
def test_rows_that_are_gone_are_looked_for_unless_a_job_says_otherwise(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], swept: bool
) -> None:
    """As `headwater resnapshot` does: without it deletes that were missed stay in every sink."""
    wishes = list[Any]()

    def resnapshot(_pipeline: Pipeline, wish: Any, _say: Any) -> list[str]:
        wishes.append(wish)
        return ["public.t"]

    at = SimpleNamespace(table="public.t", rows=3, swept=3, done=True)
    monkeypatch.setattr("connectors.resnapshot.resnapshot", resnapshot)
    waited = list[Any]()

    def wait(*_: Any, only: Any) -> Any:
        waited.append(only)
        return SimpleNamespace(tables=[at])

    monkeypatch.setattr("connectors.snapshots.snapshot.wait_snapshot", wait)
    assert pipeline.file is not None
    report = working.resnapshot_step(print, Path(pipeline.file), None, asked)
    assert [wish.sweep for wish in wishes] == [swept] and waited == [["public.t"]]
    assert report["tables"] == {"public.t": {"rows": 3, "swept": 3, "done": True}}


def test_a_job_that_reads_again_says_how_far_it_is_as_far_as_that_is_known(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a table of which nobody knew how many there are were added to the total of the others, or were all of it;
    and records that were looked at for missed deletes were told as rows read again."""
    known, unknown = TableProgress("public.a", 40, 100, done=False), TableProgress("public.b", 5, None, done=False)
    another = TableProgress("public.another", 7, None, done=False)
    sweep = replace(known, rows=30, total=60, done=False, sweeping=True)
    steps = [
        (known, another),
        (known, unknown),
        (unknown, sweep),
        (sweep, replace(unknown, rows=900, total=1000, sweeping=True)),
    ]

    def waits(_pipeline: Pipeline, show: Any, **_only: Any) -> Any:
        for tables in steps:
            show(SimpleNamespace(tables=tables))
        return SimpleNamespace(tables=[])

    monkeypatch.setattr("operations.pace.LINE_SECONDS", 0.0)
    monkeypatch.setattr("connectors.resnapshot.resnapshot", lambda *_: ["public.a", "public.b"])
    monkeypatch.setattr("connectors.snapshots.snapshot.wait_snapshot", waits)
    said = list[str]()
    assert pipeline.file is not None
    working.resnapshot_step(said.append, Path(pipeline.file), None, {})
    assert [line.strip() for line in said] == [
        "40 of about 100 rows read again (40%)",
        "45 rows read again",
        "30 of about 60 records of public.a looked at for missed deletes (50%)",
        "900 of about 1,000 records of public.b looked at for missed deletes (90%)",
    ]


def test_one_that_is_under_way_is_kept_however_many_newer_ones_have_ended(
    jobs: Jobs, pipeline: Pipeline, does: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild of days was forgotten after a hundred pauses and promotions, and a second one began beside it."""
    monkeypatch.setattr(module, "JOBS_KEPT", 2)
    go_on = Event()
    does(lambda _say: go_on.wait(LONG))
    long = jobs.begin("rebuild", "cache")
    does(lambda _say: None)
    short = list[Job]()
    for _ in range(4):
        job = jobs.begin("pause", "cache")
        short.append(jobs.wait(job, LONG))
        time.sleep(0.002)  # ids are of milliseconds
    elsewhere = Job("0000000000001-aaaaaa", "verify", "cache", began=1.0, host="another")
    folder = Path(pipeline.engine.state_dir) / pipeline.name / ".jobs"
    (folder / f"{elsewhere.id}.json").write_text(json.dumps(asdict(elsewhere)))
    last = jobs.wait(jobs.begin("resume", "cache"), LONG)
    kept = [job.id for job in jobs.newest()]
    assert kept == [last.id, short[3].id, short[2].id, long.id, elsewhere.id]  # what has just begun has not ended
    with pytest.raises(StateError, match="rebuild is under way"):
        jobs.begin("rebuild", "cache")
    go_on.set()
    assert jobs.wait(long, LONG).state == "done"
