"""A process is told from a later one with its number, whatever the clock does meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from cdc.errors import StateError
from operations.jobs.job import Job
from operations.state.accepted import Running, Text, this_process
from spark.disk import process
from spark.disk.lease import Holder, Lease
from spark.disk.process import born, is_same

Step = Callable[[float], None]
# Of a process of this host no file is asked.
NO_PIPELINE: Any = None


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    """Sets the clock so many seconds ahead: the kernel reckons anew when it was booted, and psutil goes by that."""
    from psutil import _pslinux

    booted = _pslinux.boot_time()

    def ahead(seconds: float) -> None:
        before = psutil.Process().create_time()
        monkeypatch.setattr(_pslinux, "boot_time", lambda: booted + seconds)
        assert psutil.Process().create_time() == pytest.approx(before + seconds)

    return ahead


@contextmanager
def another() -> Iterator[int]:
    """Another process's number."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_a_living_holder_is_not_taken_over_once_the_clock_was_stepped(tmp_path: Path, step: Step) -> None:
    lease = Lease(tmp_path, "sink a")
    lease.take()
    step(3600.0)
    with pytest.raises(StateError, match=f"already run by process {os.getpid()}"):
        Lease(tmp_path, "sink a").take()
    lease.release()


def test_a_run_and_a_job_are_alive_once_the_clock_was_stepped(step: Step) -> None:
    running, job = this_process(Text("p.yaml", "", 1.0)), Job("1", "pause", "search")
    step(-86400.0)
    assert running.alive(NO_PIPELINE)
    assert is_same(job.pid, job.started)


def test_notes_of_an_older_headwater_are_understood(tmp_path: Path) -> None:
    began = psutil.Process().create_time()
    lease = Lease(tmp_path, "sink a")
    lease._write(Holder(7, os.getpid(), began + 1.0, os.uname().nodename, time.time()))
    assert lease.busy()
    lease._write(Holder(7, os.getpid(), began - 60.0, os.uname().nodename, time.time()))
    assert not lease.busy()
    assert Running(Text("p.yaml", "", 1.0), os.getpid(), began).alive(NO_PIPELINE)
    assert not is_same(os.getpid(), 0.0)


def test_a_later_process_with_the_number_is_another_one() -> None:
    with another() as pid:
        since = born(pid)
        assert is_same(pid, since) and not is_same(pid, since - 1) and not is_same(os.getpid(), since)
    assert born(pid) == 0.0 and not is_same(pid, since) and not is_same(pid, 0.0)


def test_a_process_of_another_boot_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    since = born(os.getpid())
    other = tmp_path / "boot_id"
    other.write_text("00000000-0000-4000-8000-000000000000\n")
    monkeypatch.setattr(process, "BOOT_ID", other)
    process._boot.cache_clear()
    try:
        assert not is_same(os.getpid(), since) and is_same(os.getpid(), born(os.getpid()))
        other.unlink()
        process._boot.cache_clear()  # a system that gives its boots no names
        assert born(os.getpid()) == psutil.Process().create_time() and is_same(os.getpid(), born(os.getpid()))
    finally:
        process._boot.cache_clear()


def test_a_command_s_name_may_hold_brackets_and_spaces(tmp_path: Path) -> None:
    (tmp_path / "a) S 1 (b").symlink_to("/bin/sh")
    child = subprocess.Popen([tmp_path / "a) S 1 (b", "-c", "read line; exit 0"], stdin=subprocess.PIPE)
    try:
        assert ") S 1 (" in psutil.Process(child.pid).name()
        ticks = round((psutil.Process(child.pid).create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK"))
        assert process._ticks(child.pid) == ticks
    finally:
        child.communicate()


def test_a_note_is_read_as_exactly_as_it_was_written() -> None:
    highest = float((process._BOOTS - 1) * process._TICKS + process._TICKS - 1)
    note = Holder(1, 2, highest, "h", 1.0)
    assert json.loads(json.dumps(asdict(note))) == asdict(note)
    assert replace(note, started=highest - 1) != note
    assert time.time() < process._TICKS, "seconds since 1970 are told from it"
