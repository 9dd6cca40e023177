"""Folders for what memory would be too small for, and what no process leaves for good, however it ends.

After kill -9, a SIGTERM to a verb or the kernel's want of memory nobody removes what a process wrote besides: gigabytes
at each time, until the disk is full. So it lies in a folder that its process holds locked, and the next one that needs
such a folder there removes those that nobody holds. By a lock, and not by a process's number: the folder that they lie
in may be of several machines, and of containers whose processes have the same numbers; and a container that is started
again keeps its files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from cdc.ages import at_least

# In each folder; over NFS an exclusive lock needs a file that may be written.
LOCK = ".lock"
# A folder without one is of an older Headwater, or was cut as it was made: neither works for longer than this.
OLD_SECONDS = 86_400.0


@dataclass(frozen=True)
class Scratch:
    """A folder that is this process's own until it ends, or says that it needs it no more.

    Attributes:
        path: of the folder.
        locks: descriptors that hold it.
        pid: of its process.
    """

    path: Path
    locks: tuple[int, ...]
    pid: int

    def end(self) -> None:
        """Remove it, and let go of it; a fork's copy does nothing."""
        if os.getpid() == self.pid:
            shutil.rmtree(self.path, ignore_errors=True)
            for one in self.locks:
                os.close(one)


@contextmanager
def scratch_folder(prefix: str, root: Path | None = None) -> Iterator[Path]:
    """A folder for the time of a block; those that killed processes have left beside it are removed.

    Args:
        prefix: how its name begins, and those of the others that are like it, up to a process's number.
        root: where it is made; None for where temporary files lie (``TMPDIR``).

    Raises:
        OSError: it can't be made.
    """
    made = hold(prefix, root)
    try:
        yield made.path
    finally:
        made.end()


def hold(prefix: str, root: Path | None = None) -> Scratch:
    """As ``scratch_folder``, for who ends it himself."""
    root = root or Path(tempfile.gettempdir())
    remove_left(prefix, root)
    root.mkdir(parents=True, exist_ok=True)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=root))
        try:
            locks = [os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)]
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with suppress(OSError):  # a file system without locks: nobody else's look can lock it either
            fcntl.flock(locks[0], fcntl.LOCK_EX)
        with suppress(OSError):  # over NFS. It is for systemd, whose tidying of /tmp respects that
            locks.append(_locked(folder, os.O_RDONLY | os.O_DIRECTORY))
        if (folder / LOCK).exists():
            return Scratch(folder, tuple(locks), os.getpid())
        for one in locks:  # another process took it for one that was left, before it was locked
            os.close(one)


def remove_left(prefix: str, root: Path) -> None:
    """Remove folders of processes that are gone; what can't be removed stays."""
    for left in root.glob(f"{prefix}*-*"):
        with suppress(OSError, ValueError):  # its process is at work; it is another user's; somebody else removes it
            told = left.lstat()
            # A file server may call what we make somebody else's; then the folder that it lies in is called so, too.
            if stat.S_ISDIR(told.st_mode) and told.st_uid in (os.getuid(), root.stat().st_uid):
                _remove_unheld(left, int(left.name.removeprefix(prefix).split("-")[0]), told.st_mtime)


def _remove_unheld(left: Path, pid: int, changed: float) -> None:
    try:
        held = _locked(left / LOCK, os.O_RDWR)
    except FileNotFoundError:
        if at_least(changed, time.time()) > OLD_SECONDS and not psutil.pid_exists(pid):
            shutil.rmtree(left, ignore_errors=True)
        return
    try:
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(held)


def _locked(path: Path, how: int) -> int:
    """A descriptor that holds it.

    Raises:
        OSError: somebody else does, or it is not what it should be.
    """
    held = os.open(path, how | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held
