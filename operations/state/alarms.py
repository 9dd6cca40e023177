"""What the webhook of ``policy.alert`` was told is bad, and not yet that it is well: for the next process of `run`.

    <state_dir>/<pipeline>/alarm-source.json
                           alarm-wal.json
                           alarm-sink-<sink>.json     since when it is bad, and a digest of the webhook that knows it

A file for each, because several `run`s of one pipeline tell of other sinks each. A note that can't be read or written
only means that an alarm is told twice, or a `well` not at all: nothing else hangs on it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.state.folder import numbered_state_dir, state_dir
from spark.disk.files import write_atomic

SOURCE, WAL = "source", "wal"
_log = logging.getLogger(__name__)


def subject_of(sink: str) -> str:
    """How a message names a sink: by other words than ``SOURCE`` and ``WAL`` whatever the sink is called."""
    return f"sink {sink}"


class Told:
    """What one webhook was told.

    Args:
        pipeline: the loaded file.
        url: of the webhook: what another one was told counts for nothing. It is a secret, and not kept.
    """

    def __init__(self, pipeline: Pipeline, url: str) -> None:
        self._pipeline = pipeline
        self._to = hashlib.sha256(url.encode()).hexdigest()[:16]

    def since(self, subject: str) -> float | None:
        """Since when (epoch seconds) something is bad of which it was told; None if it knows nothing of that."""
        try:
            note = json.loads(_path(self._pipeline, subject).read_text())
            return float(note["since"]) if note["to"] == self._to else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, HeadwaterError) as error:
            _log.debug("what was told of %s can't be read: %s", subject, error)
            return None

    def note(self, message: Mapping[str, Any]) -> None:
        """Remember that it has taken a message."""
        subject = str(message["subject"])
        try:
            path = _path(self._pipeline, subject)
            if message["event"] == "alarm":
                numbered_state_dir(self._pipeline)
                write_atomic(path, json.dumps({"since": message["since"], "to": self._to}))
            else:
                path.unlink(missing_ok=True)
        except (OSError, HeadwaterError) as error:
            _log.debug("what was told of %s could not be noted: %s", subject, error)


def forget_alarms(pipeline: Pipeline, *, keep: Collection[str] = ()) -> None:
    """Forget what was told of everything but this: who comes under such a name later has nothing to do with it.

    Args:
        pipeline: the loaded file.
        keep: subjects.
    """
    try:
        kept = {_path(pipeline, subject).name for subject in keep}
        for path in (state_dir(pipeline) / pipeline.name).glob("alarm-*.json"):
            if path.name not in kept:
                path.unlink(missing_ok=True)
    except (OSError, HeadwaterError) as error:
        _log.debug("what was told of others could not be forgotten: %s", error)


def forget_alarm(pipeline: Pipeline, sink: str) -> None:
    """Forget what was told of a sink that is dropped: one that is filled anew under its name is another."""
    _path(pipeline, subject_of(sink)).unlink(missing_ok=True)


def _path(pipeline: Pipeline, subject: str) -> Path:
    return state_dir(pipeline) / pipeline.name / f"alarm-{subject.replace(' ', '-')}.json"
