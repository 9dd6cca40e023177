"""What ``status`` is told of a sink that was lost and is being made again: ``<state_dir>/<pipeline>/<sink>/loss.json``.

Imports nothing heavy: `status` is asked often.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from cdc.ages import ago, at_least
from spark.disk.files import write_atomic
from spark.disk.process import is_gone, signature
from spark.disk.status import BUSY_SECONDS


class LossNote:
    """One sink's note.

    Args:
        folder: the sink's.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "loss.json"

    def write(self, since: float, attempt: int, doing: str, progress: str, error: str | None) -> None:
        """Leave word.

        Args:
            since: when the loss was noticed (epoch seconds).
            attempt: which one is under way, from 1; 0 before the first.
            doing: the verb at work; "" in a pause.
            progress: the newest line of that verb.
            error: why the last attempt failed; None if none has.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        note = {"since": since, "attempt": attempt, "doing": doing, "progress": progress, "error": error}
        write_atomic(self._path, json.dumps({**note, **signature(), "at": time.time()}))

    def read(self) -> dict[str, Any] | None:
        """The note, with ``seconds`` since the loss; None if there is none, or if its process has ended."""
        try:
            note: dict[str, Any] = json.loads(self._path.read_text())
            now, pid, host, started = time.time(), int(note.pop("pid")), note.pop("host", ""), note.pop("started", 0.0)
            # It is written every two seconds, by the thread of `run` that also opens flows anew.
            if is_gone(host, pid, started, ago(note.pop("at", now), now), BUSY_SECONDS):
                return None
            return {**note, "seconds": round(at_least(note["since"], now), 1)}
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def there(self) -> bool:
        """Whether a loss was noted and not mended, whoever has noted it: what was lost does not come back with him."""
        return self._path.exists()

    def clear(self) -> None:
        """The sink is whole again, or this process ends."""
        self._path.unlink(missing_ok=True)
