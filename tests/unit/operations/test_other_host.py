"""A state folder of several machines, or containers: whose process it is, is seen by more than its number."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import StateError
from cdc.polling import poll
from operations.jobs import jobs as module
from operations.jobs.job import Job
from operations.jobs.jobs import Jobs
from operations.state.losses import LossNote
from sinks.fields import MAX_TOKEN
from spark.disk.lease import EXPIRES_SECONDS, Holder, Lease
from spark.disk.process import host_name, is_here, place, signature
from spark.disk.status import BUSY_SECONDS, FlowStatus, state_of
from tests.unit.operations.test_file_edits import Files

# No process of this machine has it.
NOBODY = 2**22 + 1
ELSEWHERE: dict[str, Any] = {"host": "elsewhere", "pid": NOBODY, "started": 7.0}
# In another container a process has our number, and may have begun at the same tick as ours.
NAMESAKE: dict[str, Any] = {**signature(), "host": "elsewhere"}
# Containers of one pod, or with the host's network, have one host name, and process numbers of their own.
BESIDE: dict[str, Any] = {"host": f"{socket.gethostname()}/1", "pid": NOBODY, "started": 7.0}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.path.write_text(made.text())
    return made


def said(state: str = "running", ago: float = 0.0, **who: Any) -> FlowStatus:
    at = time.time() - ago
    status = FlowStatus("s/main", state, os.getpid(), 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], at)
    return replace(status, **who)


def held(ago: float = 0.0, **who: Any) -> Holder:
    return Holder(token=1, renewed=time.time() - ago, **who)


# -- flows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [ELSEWHERE, NAMESAKE, BESIDE])
def test_a_flow_on_another_host_is_alive_for_as_long_as_it_says_so(who: dict[str, Any]) -> None:
    assert state_of(said(**who)) == "running"
    assert state_of(said(ago=60, **who)) == "dead"
    assert state_of(said(ago=60, **who), held(**who)) == "running"  # it opens other flows
    assert state_of(said(ago=BUSY_SECONDS + 5, **who), held(**who)) == "dead"


def test_a_flow_of_an_older_headwater_is_of_this_host() -> None:
    assert state_of(said()) == "running" and state_of(said(pid=NOBODY)) == "dead"
    assert state_of(said("failed"), held(**signature())) == "failed"


def test_a_later_process_with_a_flow_s_number_does_not_keep_it_alive() -> None:
    mine: dict[str, Any] = {**signature()}
    assert state_of(said(**mine)) == "running"
    assert state_of(said(**{**mine, "started": mine["started"] - 1})) == "dead"


def test_a_generation_that_is_held_on_another_host_is_starting_whatever_the_number_has_said_here() -> None:
    assert state_of(said("failed", **signature()), held(**NAMESAKE)) == "starting"
    assert state_of(None, held(**ELSEWHERE)) == state_of(None, held(**BESIDE)) == "starting"
    assert state_of(said("failed", **NAMESAKE), held(**NAMESAKE)) == "failed"
    assert state_of(None, held(60, **ELSEWHERE)) == "never run"


def test_a_lease_that_a_namesake_on_another_host_renews_is_another_s(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "sink a")
    lease._write(held(**NAMESAKE))
    assert lease.held_by_other()
    with pytest.raises(StateError, match=f"already run by process {os.getpid()} on elsewhere"):
        lease.take()
    lease._write(held(60, **NAMESAKE))
    assert not lease.held_by_other()
    lease.take()
    try:
        assert not lease.held_by_other() and not Lease(tmp_path, "sink a").held_by_other()
    finally:
        lease.release()


def test_a_place_is_the_host_and_its_processes_namespace_and_the_host_alone_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = socket.gethostname()
    assert signature()["host"] == place() and host_name(place()) == host_name(name) == name
    assert [is_here(kept) for kept in (place(), name, "", BESIDE["host"], "elsewhere", f"{place()}0")] == [
        *(True, True, True),
        *(False, False, False),
    ]
    monkeypatch.setattr("spark.disk.process.NAMESPACE", tmp_path / "nothing")
    assert place() == name and is_here(name) and not is_here(BESIDE["host"])


def test_a_lease_names_the_host_of_another_container_as_people_know_it(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "sink a")
    lease._write(held(**BESIDE))
    assert lease.busy()
    with pytest.raises(StateError) as refused:
        lease.take()
    assert refused.value.what.endswith(f"process {NOBODY} on {socket.gethostname()}")


def test_a_container_that_is_started_again_waits_for_the_silence_of_who_had_its_name(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "sink a", expires=0.6)
    lease._write(held(**BESIDE))
    lease.wait_out()
    lease.take()
    lease.release()


@pytest.mark.parametrize("who", [ELSEWHERE, {**signature()}, BESIDE | {"pid": 0}])
def test_nobody_else_is_waited_for(tmp_path: Path, who: dict[str, Any]) -> None:
    lease, before = Lease(tmp_path, "sink a"), time.monotonic()
    lease._write(held(**who))
    lease.wait_out()
    Lease(tmp_path / "new", "sink b").wait_out()
    assert time.monotonic() - before < 10


def test_a_container_of_this_name_that_renews_its_lease_is_not_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, before = Lease(tmp_path, "sink a"), time.monotonic()
    lease._write(held(5, **BESIDE))
    monkeypatch.setattr("spark.disk.lease.time.sleep", lambda _seconds: lease._write(held(**BESIDE)))
    lease.wait_out()
    assert lease.busy() and time.monotonic() - before < 10


LIVES = """
import sys, time
from pathlib import Path
from spark.disk import process
process.place = lambda: "NAME/1"
from sinks.fields import MAX_TOKEN
from spark.disk.lease import Lease
lease = Lease(Path(sys.argv[1]), "sink a")
lease.take()
print("held", flush=True)
time.sleep(60)
""".replace("NAME", socket.gethostname())


def test_of_another_container_of_this_name_it_is_seen_at_once_that_it_has_died(tmp_path: Path) -> None:
    """A container that was killed would wait twenty seconds for itself when it is started again."""
    with subprocess.Popen([sys.executable, "-c", LIVES, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        lease = Lease(tmp_path, "sink a")
        known = lease.holder()
        assert known is not None and known.host == BESIDE["host"] and lease.busy(), "it lives"
        other.kill()
        other.wait()
        assert not lease.busy()
        lease._write(replace(known, token=known.token + 1))
        assert lease.busy(), "this one has shown no life that could have ended: its silence tells"
        lease._write(known)
        before = time.monotonic()
        lease.wait_out()
        lease.take()
        assert time.monotonic() - before < 10
    assert (tmp_path / "life").read_text() == str(lease.token)
    lease.release()


# -- leases ------------------------------------------------------------------------------------------------------------


def test_two_folders_whose_leases_are_taken_in_one_second_have_tokens_that_tell_them_apart(tmp_path: Path) -> None:
    """In seconds they were equal, and a sink took the writes of both machines."""
    leases = [Lease(tmp_path / name, name) for name in ("a", "b", "c")]
    tokens = [lease.take() for lease in leases]
    for lease in leases:
        lease.release()
    assert tokens == sorted(set(tokens)) and tokens[-1] < MAX_TOKEN


@pytest.mark.parametrize("last", [1_795_236_777, 2**52])
def test_a_token_is_newer_than_the_last_one_of_its_folder(tmp_path: Path, last: int) -> None:
    """Those of an older Headwater are seconds; a clock may have been put back."""
    lease = Lease(tmp_path, "g")
    lease._write(Holder(token=last, renewed=0.0, **ELSEWHERE))
    assert lease.take() > last
    lease.release()


# -- a clock that was put back, or of another host is ahead ------------------------------------------------------------


def test_a_holder_elsewhere_whose_clock_was_ahead_is_watched_here_and_dead_if_he_says_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He had the lease for as long as the clock was ahead; one that lives must not lose it: there would be two."""
    now = SimpleNamespace(at=1_000.0)

    def sleep(seconds: float) -> None:
        now.at += seconds

    clocks = SimpleNamespace(time=time.time, monotonic=lambda: now.at, sleep=sleep)
    monkeypatch.setattr("spark.disk.lease.time", clocks)
    lease = Lease(tmp_path, "sink a")
    for ahead in range(3_600, 3_700, 3):  # he lives
        lease._write(held(-ahead, **ELSEWHERE))
        sleep(EXPIRES_SECONDS - 1)
        assert lease.busy() and lease.held_by_other()
        with pytest.raises(StateError, match="already run"):
            Lease(tmp_path, "sink a").take()
    sleep(EXPIRES_SECONDS - 1)
    assert lease.busy()
    sleep(2)
    assert not lease.busy() and not Lease(tmp_path, "sink a").held_by_other()
    lease._write(held(-3_600, **ELSEWHERE))
    assert lease.busy(), "he has said something, so he lives"
    before = now.at
    lease.wait_out()
    assert EXPIRES_SECONDS - 1 < now.at - before < EXPIRES_SECONDS + 1
    lease.take()
    lease.release()


def test_a_holder_elsewhere_whose_clock_is_ahead_by_a_little_is_not_waited_for(tmp_path: Path) -> None:
    lease, before = Lease(tmp_path, "sink a"), time.monotonic()
    lease._write(held(-3, **ELSEWHERE))
    lease.wait_out()
    assert lease.busy() and time.monotonic() - before < 10


def test_a_flow_that_has_said_something_in_a_moment_still_to_come_says_nothing_now() -> None:
    assert state_of(said(ago=-3, **ELSEWHERE)) == "running", "another host's clock is ahead by a little"
    assert state_of(said(ago=-3_600, **ELSEWHERE)) == state_of(said(ago=-3_600, **signature())) == "dead"
    assert state_of(None, held(-3, **ELSEWHERE)) == "starting"
    assert state_of(None, held(-3_600, **ELSEWHERE)) == "never run"


# -- losses ------------------------------------------------------------------------------------------------------------


def test_a_loss_that_is_mended_on_another_host_is_told_for_as_long_as_it_is_written_anew(tmp_path: Path) -> None:
    note, path = LossNote(tmp_path), tmp_path / "loss.json"
    note.write(time.time() - 9, 1, "rebuild", "1 of 2", None)
    here = json.loads(path.read_text())
    shown = note.read()
    assert shown is not None and set(shown) == {"since", "attempt", "doing", "progress", "error", "seconds"}
    for changed, there in (
        (ELSEWHERE, True),
        (BESIDE, True),
        (ELSEWHERE | {"at": time.time() - BUSY_SECONDS - 5}, False),
        (ELSEWHERE | {"at": time.time() + 3}, True),
        (ELSEWHERE | {"at": time.time() + 3_600}, False),
        ({"pid": NOBODY}, False),
        ({"started": here["started"] - 1}, False),
    ):
        path.write_text(json.dumps(here | changed))
        assert (note.read() is not None) == there, changed
    for name in ("host", "started", "at"):  # as an older Headwater writes it
        del here[name]
    for pid, there in ((os.getpid(), True), (NOBODY, False)):
        path.write_text(json.dumps(here | {"pid": pid}))
        assert (note.read() is not None) == there


# -- jobs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(files: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.02)
    pipeline = files.load()
    made = Jobs(lambda: pipeline)
    yield made
    made.close()


@pytest.mark.parametrize("who", [ELSEWHERE, NAMESAKE, BESIDE])
def test_a_job_of_a_server_on_another_host_is_running_until_that_renews_it_no_more(
    jobs: Jobs, files: Files, monkeypatch: pytest.MonkeyPatch, who: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "work", lambda *_: {})
    jobs._write(replace(Job("0000000000001-aaaaaa", "promote", "cache"), **who))
    assert [job.state for job in jobs.newest()] == ["running"]
    with pytest.raises(StateError, match="promote is under way"):
        jobs.begin("pause", "cache")
    long_ago = time.time() - 60
    os.utime(files.folder / "p" / ".jobs" / "0000000000001-aaaaaa.json", (long_ago, long_ago))
    assert [job.state for job in jobs.newest()] == ["cut"]
    assert jobs.wait(jobs.begin("pause", "cache"), 30).state == "done"
    for ahead, state in ((3, "running"), (3_600, "cut")):
        at = time.time() + ahead
        os.utime(files.folder / "p" / ".jobs" / "0000000000001-aaaaaa.json", (at, at))
        assert jobs.newest()[-1].state == state


def test_a_job_that_says_nothing_is_renewed_for_servers_on_other_hosts(
    jobs: Jobs, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[float]()

    def work(job: Job, *_: Any) -> dict[str, Any]:
        path = files.folder / "p" / ".jobs" / f"{job.id}.json"
        os.utime(path, (1.0, 1.0))
        seen.append(poll(lambda: path.stat().st_mtime, lambda at: at > 1.0, 10, 0.02))
        return {}

    monkeypatch.setattr(module, "work", work)
    assert jobs.wait(jobs.begin("rebuild", "cache"), 30).state == "done"
    assert time.time() - seen[0] < 60


def test_a_job_of_an_older_headwater_is_of_this_host_and_none_shows_its_process(jobs: Jobs, files: Files) -> None:
    job = Job("0000000000001-aaaaaa", "promote", "cache", pid=NOBODY)
    assert job.host == place() and not {"host", "pid", "started"} & job.to_dict().keys()
    folder = files.folder / "p" / ".jobs"
    folder.mkdir(parents=True)
    raw = asdict(job)
    del raw["host"]
    (folder / f"{job.id}.json").write_text(json.dumps(raw))
    assert [job.state for job in jobs.newest()] == ["cut"]
