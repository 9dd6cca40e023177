"""Folders for what memory would be too small for: whoever is killed, the next one removes what he left."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc import scratch
from cdc.scratch import LOCK, OLD_SECONDS, scratch_folder
from spark.disk import temporary

NOBODY = 2**22 + 1
PREFIX = "headwater-x-"


def left(root: Path, pid: int, age: float = 0.0) -> Path:
    made = root / f"{PREFIX}{pid}-abc"
    (made / "document").mkdir(parents=True)
    os.utime(made, (time.time() - age, time.time() - age))
    return made


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def begun(root: Path) -> None:
    with scratch_folder(PREFIX, root):
        pass


def sparks_own(root: Path) -> None:
    assert temporary.own(root) is not None


USES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a block's": (f"from cdc.scratch import scratch_folder as f; w = f({PREFIX!r}, root); print(w.__enter__())", begun),
    "spark's": ("from spark.disk.temporary import own; print(own(root))", sparks_own),
}


@pytest.mark.parametrize("use", USES)
def test_what_a_killed_process_leaves_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """Each kill -9 left hundreds of megabytes in /tmp for good."""
    monkeypatch.setattr(temporary, "_OWN", {})
    monkeypatch.setattr(temporary.atexit, "register", lambda *_: None)
    said, next_one = USES[use]
    script = f"import sys, time; from pathlib import Path; root = Path(sys.argv[1]); {said}; sys.stdout.flush()"
    asked = [sys.executable, "-c", f"{script}; time.sleep(60)", str(tmp_path)]
    killed = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    folder = Path(killed.stdout.readline().strip())
    assert f"-{killed.pid}-" in folder.name and folder.stat().st_mode & 0o77 == 0
    (folder / "blockmgr-1").mkdir()
    others = [tmp_path / name for name in ("blockmgr-2", "spark-3", "headwater-spark", PREFIX, f"{PREFIX}y-1")]
    for one in others:
        one.mkdir()
    next_one(tmp_path)
    assert (folder / "blockmgr-1").is_dir(), "it is at work"
    killed.kill()
    killed.communicate()
    temporary._OWN.clear()
    next_one(tmp_path)
    assert not folder.exists() and all(one.is_dir() for one in others)


def test_a_folder_is_another_s_while_that_holds_its_lock_whatever_its_number(tmp_path: Path) -> None:
    folder = left(tmp_path, NOBODY)
    with locked(folder):
        begun(tmp_path)
        assert folder.exists()
    begun(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_leave_each_other_alone_and_nothing_behind(tmp_path: Path) -> None:
    with scratch_folder(PREFIX, tmp_path) as one:
        with scratch_folder(PREFIX, tmp_path) as other:
            assert one.exists() and other.exists() and one != other
        assert one.exists() and not other.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pid", "age", "stays"),
    [(NOBODY, 0.0, True), (NOBODY, OLD_SECONDS + 5, False), (os.getpid(), OLD_SECONDS + 5, True)],
    ids=["young", "old", "of a process that is there"],
)
def test_a_folder_of_an_older_headwater_goes_after_a_day_if_its_process_is_gone(
    tmp_path: Path, pid: int, age: float, stays: bool
) -> None:
    folder = left(tmp_path, pid, age)
    begun(tmp_path)
    assert folder.exists() == stays


def test_a_folder_that_is_taken_for_left_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[Path]()

    def first(_lock: Any, _how: int) -> None:
        if not taken:
            taken.extend(tmp_path.iterdir())
            shutil.rmtree(taken[0])

    monkeypatch.setattr(fcntl, "flock", first)
    with scratch_folder(PREFIX, tmp_path) as folder:
        assert folder != taken[0] and (folder / LOCK).exists()


def test_where_nothing_can_be_locked_all_works_and_nothing_of_others_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left(tmp_path, NOBODY)
    (folder / LOCK).touch()

    def refused(_lock: Any, _how: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    begun(tmp_path)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_without_room_for_its_lock_is_no_endless_row_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError), scratch_folder(PREFIX, tmp_path):
        pass


def test_what_cannot_be_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / "elsewhere").mkdir(parents=True)
    (root / f"{PREFIX}1-file").touch()
    (root / f"{PREFIX}1-link").symlink_to(root / "elsewhere")
    theirs = left(root, NOBODY)
    (theirs / LOCK).touch()
    (root / "elsewhere" / LOCK).touch()
    told = SimpleNamespace(st_mode=theirs.stat().st_mode, st_uid=os.getuid() + 1, st_mtime=0.0)
    monkeypatch.setattr(Path, "lstat", lambda _path: told)
    scratch.remove_left(PREFIX, root)
    monkeypatch.undo()
    assert theirs.is_dir(), "another user's"
    scratch.remove_left(PREFIX, root)
    assert not theirs.exists()
    assert (root / f"{PREFIX}1-link").is_symlink() and (root / "elsewhere" / LOCK).exists()
    assert (root / f"{PREFIX}1-file").exists()


def test_a_fork_s_end_takes_nothing_from_who_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scratch.hold(PREFIX, tmp_path)
    mine = os.getpid()
    monkeypatch.setattr(scratch.os, "getpid", lambda: mine + 1)
    made.end()
    assert made.path.is_dir()
    monkeypatch.undo()
    made.end()
    assert not made.path.exists()
