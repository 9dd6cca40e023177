"""The Java options by which a session uses the archive of classes."""

from __future__ import annotations

import os
from pathlib import Path

# Names the archive for sessions of this process and its children.
VARIABLE = "HEADWATER_SPARK_ARCHIVE"

# Mapped where it was made for. Java's default is a random address, for which it rewrites every pointer in it at the
# start: a tenth of a second, and 100 MiB that no other process shares and the kernel can't drop.
AT_ITS_ADDRESS = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"

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
    return f' "-XX:SharedArchiveFile={archive}" {AT_ITS_ADDRESS} {_QUIET}'
