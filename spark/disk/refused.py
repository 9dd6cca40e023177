"""Why nobody runs a generation, or writes a history: word that is left in its folder, for ``status``."""

from __future__ import annotations

import json
import time
from pathlib import Path

from spark.disk.files import write_atomic

FILE = "refused.json"


def refuse(folder: Path, reason: str) -> None:
    """Leave word of why the process that was to run what is there would not: its flows know only how they last ended.

    Raises:
        DiskFull: there is no room for it (transient).
    """
    write_atomic(folder / FILE, json.dumps({"reason": reason, "at": time.time()}))


def refused(folder: Path) -> str | None:
    """Why the last process that was to run it would not; None once one does."""
    try:
        return str(json.loads((folder / FILE).read_text())["reason"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def accepted(folder: Path) -> None:
    """Take back what ``refuse`` has said."""
    (folder / FILE).unlink(missing_ok=True)
