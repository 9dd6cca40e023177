"""Files that are replaced in one step, whoever else replaces them at the moment."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.errors import DiskFull
from operations.state import accepted
from spark.disk import files
from spark.disk.files import LEFT_SECONDS, replaced, write_atomic
from spark.disk.state import Generation
from spark.events.clocks import Clocks


def _clocks(folder: Path) -> None:
    clocks = Clocks(folder)
    clocks.before("t", 0, 1)
    clocks.after("t", 0, 1, 1)
    clocks.keep()


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda folder: write_atomic(folder / "t.0.json", json.dumps(["x" * 20_000])),
    "owner's": lambda folder: accepted._write(folder / "t.0.json", {"x": "x" * 20_000}),
    "clocks": _clocks,
}


@pytest.mark.parametrize("name", WRITERS)
def test_threads_that_write_one_file_do_not_tear_each_other_s(tmp_path: Path, name: str) -> None:
    """Under one name for all of a process the second one's file was gone, or half of it in place."""
    WRITERS[name](tmp_path)
    failed, torn, over = list[BaseException](), list[str](), threading.Event()

    def write() -> None:
        try:
            for _ in range(150):
                WRITERS[name](tmp_path)
        except BaseException as error:
            failed.append(error)

    def read() -> None:
        while not over.is_set():
            text = (tmp_path / "t.0.json").read_text()
            try:
                json.loads(text)
            except ValueError:
                torn.append(text[:40])

    reader, writers = threading.Thread(target=read), [threading.Thread(target=write) for _ in range(6)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    assert (failed, torn, [path.name for path in tmp_path.iterdir()]) == ([], [], ["t.0.json"])


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_text_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    WRITERS[name](tmp_path)
    before = (tmp_path / "t.0.json").read_text()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DiskFull, match=r"t\.0\.json is full"):
        WRITERS[name](tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"t.0.json": before}


def test_what_is_the_owner_s_alone_is_so_from_its_first_moment_on(tmp_path: Path) -> None:
    with replaced(tmp_path / "new" / "a.json", 0o600) as out:
        (temporary,) = (tmp_path / "new").iterdir()
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        out.write(b"1")
    assert (tmp_path / "new" / "a.json").read_text() == "1"


def test_a_name_may_be_as_long_as_names_may_be(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("é" * 127), "1")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1"]


def test_what_killed_writers_have_left_is_removed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaves a name of its own; one that is at work, and what is not of ours, stays."""
    long_ago = time.time() - LEFT_SECONDS - 60
    old, young, other = (tmp_path / name for name in (".a.json.7.0123abcd", ".b.json.7.0123abce", ".c.json.7"))
    for path in (old, young, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    monkeypatch.setattr(files, "_swept", set())
    write_atomic(tmp_path / "d", "1")
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, other.name, "d"]


def test_what_a_killed_writer_has_left_makes_no_flow_one_that_has_written(tmp_path: Path) -> None:
    """Its sink was taken for one that has begun: a mapping that the server refuses could not be corrected any more."""
    generation = Generation(tmp_path, "p", "s")
    flow = generation.flow_folder("main")
    flow.mkdir(parents=True)
    (flow / ".unread.json.7.0123abcd").write_text("{")
    assert not generation.started
    (flow / "fill.json").write_text("{}")
    assert generation.started


def test_what_is_written_but_once_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power leaves a new file empty whose name came before its contents."""
    path, kept = tmp_path / "phase.json", list[int]()
    fsync = os.fsync

    def seen(number: int) -> None:
        fsync(number)
        assert not path.exists()
        kept.append(os.fstat(number).st_size)

    monkeypatch.setattr(os, "fsync", seen)
    write_atomic(path, "live")
    write_atomic(path, "again")
    assert kept == [len("live")] and path.read_text() == "again"
