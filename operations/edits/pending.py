"""What will become of a file in the `run` that is alive, before it is applied."""

from __future__ import annotations

from typing import Any

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, loads
from operations.accepted import read_running
from operations.edits.changes import Changes, changes_between


def pending(pipeline: Pipeline) -> Changes | None:
    """What the `run` that is alive would do if this file was applied; None if there is none alive.

    Args:
        pipeline: the loaded file.
    """
    running = read_running(pipeline)
    if running is None or not running.alive:
        return None
    try:
        old = loads(running.taken.text, running.taken.file)
    except ConfigError:  # variables that are set for it and not here: it knows by itself what has changed
        return Changes()
    return changes_between(old, pipeline)


def told(found: Changes | None) -> dict[str, Any] | None:
    """The shape in ``--json``."""
    return None if found is None else found.to_dict()
