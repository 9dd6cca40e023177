"""Where a comparison keeps what memory would be too small for: its own for as long as it holds a lock there.

The state folder may be of several machines, and of containers whose processes have the same numbers: by its number a
process at work was taken for one that was killed, and what it compared was removed under its hands.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil

from cdc.ages import at_least
from cdc.errors import HeadwaterError
from operations.verify.buckets import gone

LOCK = ".lock"
# A folder without a lock is of an older Headwater, whose comparison took no longer than this, wherever it ran.
OLD_SECONDS = 86_400.0


@contextmanager
def work_folder(root: Path) -> Iterator[Path]:
    """A folder for the time of a block; those that killed processes have left are removed.

    That it is there at the end is not looked at: what was done in sinks meanwhile has to be told. See ``refuse_gone``.

    Args:
        root: where it is made.

    Raises:
        StateError: the block failed for want of it: somebody has removed it meanwhile.
    """
    root.mkdir(parents=True, exist_ok=True)
    _remove_left(root)
    folder, lock = _made(root)
    try:
        with naming_gone(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def refuse_gone(folder: Path) -> None:
    """Look whether what was compared in a folder was there to the end.

    Raises:
        StateError: somebody has removed it.
    """
    if not (folder / LOCK).exists():
        raise gone(folder)


@contextmanager
def naming_gone(folder: Path) -> Iterator[None]:
    """For a block that works in a folder: what fails for want of it says so.

    Raises:
        StateError: the block failed in a way that has no name, and somebody has removed the folder.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, HeadwaterError) or (folder / LOCK).exists():
            raise
        raise gone(folder) from error


def _made(root: Path) -> tuple[Path, TextIO]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".verify-{os.getpid()}-", dir=root))
        lock = (folder / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / LOCK).exists():
            return folder, lock
        lock.close()  # before it was locked another process took it for one that was left


def _remove_left(root: Path) -> None:
    for left in root.glob(".verify-*-*"):
        with suppress(OSError, ValueError):  # its process is at work; or somebody else removes it
            _remove_unheld(left)


def _remove_unheld(left: Path) -> None:
    try:
        lock = (left / LOCK).open("r+")  # over NFS an exclusive lock needs a file that may be written
    except FileNotFoundError:
        old = at_least(left.stat().st_mtime, time.time()) > OLD_SECONDS
        if old and not psutil.pid_exists(int(left.name.split("-")[1])):
            shutil.rmtree(left, ignore_errors=True)
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
