"""A folder of this process's own for what Spark writes besides: blocks, shuffles, spilled sorts, native libraries.

Spark removes those as its virtual machine ends, which after kill -9 nobody does: hundreds of megabytes at each time.
So they lie in a folder that the next start removes once its process is gone (cdc/scratch.py).
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc.scratch import hold

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
    sockets = {SOCKETS: _short(root)} if java is not None and not _fits(java) and SOCKETS not in conf else {}
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
        try:
            made = hold(PREFIX, root)
        except OSError:  # no room, no right: Spark says so itself, in words of the folder that is meant
            return None
        _OWN[root] = made.path
        atexit.register(made.end)
    return _OWN[root]


def _short(root: Path) -> str:
    """Where sockets can lie, if not in our own folder."""
    return str(root) if _fits(root) else "/tmp"  # noqa: S108 - they have names that nobody can know


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= SOCKETS_LONGEST


def _named(conf: Mapping[str, str]) -> list[Path]:
    told = os.environ.get(VARIABLE) or conf.get(SETTING, "")
    return [Path(one.strip()) for one in told.split(",") if one.strip()]
