"""The Java options by which a session uses the archive of classes."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.java import AT_ITS_ADDRESS

# Names the archive for sessions of this process and its children.
VARIABLE = "HEADWATER_SPARK_ARCHIVE"

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def beside(name: str) -> Path | None:
    """A file in the archive's folder, if it is there."""
    archive = os.environ.get(VARIABLE)
    path = Path(archive).with_name(name) if archive else None
    return path if path is not None and path.is_file() else None


def java_options() -> str:
    """What a session's Java is told: to use the archive if there is one, or else nothing."""
    archive = Path(os.environ.get(VARIABLE, ""))
    # In quotes: Spark's launcher cuts the options at spaces, and a path may hold one.
    if not (archive.name and archive.is_file()):
        return ""
    return f' "-XX:SharedArchiveFile={archive}" {" ".join(AT_ITS_ADDRESS)} {_QUIET}'
