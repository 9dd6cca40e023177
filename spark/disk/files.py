"""Files that are replaced in one step, and how to see that they were."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from cdc.errors import DiskFull

_FULL = (errno.ENOSPC, errno.EDQUOT)

Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Something else each time that a file was written, or replaced; None while there is none that can be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def write_atomic(path: Path, text: str) -> None:
    """Replace ``path`` in one step: a reader or a crash sees the old text or the new, never half of it.

    Raises:
        DiskFull: there is no room for it (transient); the old text stays.
        OSError: as the system says.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()  # half of it would take the room that others wait for
        if error.errno not in _FULL:
            raise
        raise disk_full(path) from error


def write_somehow(path: Path, text: str) -> None:
    """As ``write_atomic``; on a full disk over the old text, where the blocks are that it has already.

    For files of which the newest word matters more than half of it: a reader takes half a text for none. Without this
    a process that lives and waits for room would be called dead.

    Raises:
        DiskFull, OSError: as ``write_atomic``.
    """
    try:
        write_atomic(path, text)
    except DiskFull:
        if not path.exists():
            raise
        _overwrite(path, text)


def _overwrite(path: Path, text: str) -> None:
    data = text.encode()
    handle = os.open(path, os.O_WRONLY)
    try:
        if os.pwrite(handle, data, 0) < len(data):
            raise disk_full(path)
        os.ftruncate(handle, len(data))
    except OSError as error:
        raise disk_full(path) from error
    finally:
        os.close(handle)


def disk_full(path: Path) -> DiskFull:
    """The error for a path on a disk that has no room left."""
    return DiskFull(
        f"the disk that holds {path} is full",
        means="nothing is lost: offsets do not move past what could be written down",
        fix="make room there; what runs goes on by itself",
    )
