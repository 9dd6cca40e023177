"""Python that is started from here runs the code that runs here, whatever lies in the working folder.

``python -m``, by which Spark starts its workers, looks in the working folder first: a ``spark.py`` of the operator's
there, or the clone of another version, would be what the workers run.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pyspark

# Python's own names: it leaves the working folder out, and looks in these before its own library.
SAFE, LOOKS_IN = "PYTHONSAFEPATH", "PYTHONPATH"
SPARK_HOME = "SPARK_HOME"
# By which PySpark's sessions go to a server of Spark Connect. Left there by somebody's notebook, one of them made every
# session fail: those servers have no streaming from here, and no way to a session's Java.
REMOTE = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")


def environment() -> dict[str, str]:
    """Variables for a Python that is started from here, or for what starts one."""
    root, said = Path(__file__).resolve().parents[2], os.environ.get(LOOKS_IN)
    # Where this process found itself by its path, its installed packages may have another version, or none.
    ours = [str(root)] if root in _ahead() else []
    return {SAFE: "1"} | ({LOOKS_IN: os.pathsep.join([*ours, *([said] if said else [])])} if ours else {})


def pinned_spark() -> dict[str, str]:
    """For Spark's launcher: the Spark that is installed with us, and not another one of this machine."""
    return {SPARK_HOME: str(Path(str(pyspark.__file__)).parent)}


def not_remote() -> None:
    """Let sessions of this process, and of those that it starts, be Spark's own, whatever its environment says."""
    for name in REMOTE:
        os.environ.pop(name, None)


def _ahead() -> set[Path]:
    """What this process looks in before Python's own library."""
    library = sysconfig.get_path("stdlib")
    entries = sys.path[: sys.path.index(library)] if library in sys.path else []
    return {Path(entry).resolve() for entry in entries}
