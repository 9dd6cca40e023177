"""Files that are replaced in one step, and how to see that they were."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cdc.ages import at_least
from cdc.errors import DiskFull

_FULL = (errno.ENOSPC, errno.EDQUOT)

# As ``replaced`` names what it has not put into its place yet.
_TEMPORARY = re.compile(r"\..+\.[0-9]+\.[0-9a-f]{8}")
# One that is so old is of a writer that was killed; a machine that was suspended just then goes on before.
LEFT_SECONDS = 3600.0
_swept: set[Path] = set()

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
    with replaced(path) as out:
        out.write(text.encode())


@contextlib.contextmanager
def replaced(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """What is written here replaces ``path`` in one step, once the block has ended without an error.

    Under a name that nobody else takes: threads of one process write the same file, and processes of two containers
    have the same number. A file that was not there is on the disk before it has its name: after a loss of power one
    that is written but once (that a fill of hours has ended, say) would be there with nothing in it. One that replaces
    another is seen to by the file system, as a rule, and written again soon.

    Args:
        path: the file; its folder is made if it is not there.
        mode: who may read it, from its first moment on.

    Raises:
        DiskFull, OSError: as ``write_atomic``.
    """
    # Not its whole name, which may be as long as names may be.
    temporary = path.with_name(f".{path.name[:50]}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            yield out
            if not path.exists():
                out.flush()
                os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()  # half of it would take the room that others wait for
        if not isinstance(error, OSError) or error.errno not in _FULL:
            raise
        raise disk_full(path) from error


def _sweep(folder: Path) -> None:
    """Remove what killed writers have left in a folder, once for each that this process writes to: one that lives has
    replaced its file within moments."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError):  # somebody else removes it, or has replaced his file: the next one does the rest
        for left in folder.iterdir():
            if _TEMPORARY.fullmatch(left.name) and at_least(left.stat().st_mtime, time.time()) > LEFT_SECONDS:
                left.unlink()


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
