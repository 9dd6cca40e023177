"""A folder of this process's own for what Spark writes besides: blocks, shuffles, spilled sorts, native libraries.

Spark removes those as its virtual machine ends, which after kill -9 nobody does: hundreds of megabytes at each time,
until the disk is full. So they lie in a folder that its process holds locked, as systemd's tidying of /tmp respects;
the next start removes those that nobody holds. By a lock, and not by a process's number: a container that is started
again keeps its files, and its processes are of another place than before (spark/disk/process.py).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PREFIX = "headwater-spark-"
# Spark's own way to say where; it goes before the setting. Both may name several folders.
VARIABLE, SETTING = "SPARK_LOCAL_DIRS", "spark.local.dir"
# Python's workers are reached by sockets in Java's folder, whose paths the kernel limits to 104 bytes on some systems;
# a socket's own name has 43 of them.
SOCKETS, SOCKETS_LONGEST = "spark.python.unix.domain.socket.dir", 60

# Parent -> this process's folder in it. Sessions come and go, their virtual machine stays.
_OWN: dict[Path, Path] = {}


def options(conf: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
    """Where this process's Spark writes besides, and remove what processes that are gone have left there.

    Args:
        conf: the operator's own settings.

    Returns:
        an option for Java; settings; variables of its environment.
    """
    named, root = _named(conf), Path(tempfile.gettempdir())
    java = own(root)
    text = "" if java is None else f' "-Djava.io.tmpdir={java}"'
    long = java is not None and len(os.fsencode(java)) > SOCKETS_LONGEST
    sockets = {SOCKETS: str(root)} if long and SOCKETS not in conf else {}
    local = ",".join(str(own(one) or one) for one in named)
    if os.environ.get(VARIABLE):
        return text, sockets, {VARIABLE: local}
    return text, sockets | ({SETTING: local} if named else {}), {}


def places() -> Sequence[Path]:
    """Where this process's Spark writes besides; where it would, if it has not begun."""
    return [*_OWN.values()] or _named({}) or [Path(tempfile.gettempdir())]


def own(root: Path) -> Path | None:
    """This process's folder in another one, without those that are left there; None if it can't be made."""
    if root not in _OWN:
        remove_left(root)
        try:
            root.mkdir(parents=True, exist_ok=True)  # as Spark does
            _OWN[root] = _made(root)
        except OSError:  # no room, no right: Spark says so itself, in words of the folder that is meant
            return None
        atexit.register(_end, _OWN[root], os.getpid())
    return _OWN[root]


def remove_left(root: Path) -> None:
    """Remove folders of processes of ours that are gone; what can't be removed stays."""
    for left in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # its process is at work; it is another user's; somebody else removes it
            held = _locked(left)
            try:
                if os.fstat(held).st_uid == os.getuid():
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(held)


def _named(conf: Mapping[str, str]) -> list[Path]:
    told = os.environ.get(VARIABLE) or conf.get(SETTING, "")
    return [Path(one.strip()) for one in told.split(",") if one.strip()]


def _made(root: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
        with suppress(OSError):  # a file system without locks: nobody else's look can lock it either
            _locked(folder)  # as long as this process lives
        if folder.exists():
            return folder  # else another process took it for one that was left, before it was locked


def _locked(folder: Path) -> int:
    """A descriptor that holds it.

    Raises:
        OSError: somebody else does, or it is no folder that we may read.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def _end(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # and not a fork
        shutil.rmtree(folder, ignore_errors=True)
