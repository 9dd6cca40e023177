"""What the last verification of each sink and generation has found, kept for whoever asks later: pages, the API.

    <state_dir>/<pipeline>/verified.json

Without what rows hold, also after ``verify --values``: keys, and names of columns. It is as old as it is: what it
found may have been mended since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cdc.errors import HeadwaterError
from cdc.letters.words import hidden
from cdc.pipeline import Pipeline
from operations.state.folder import numbered_state_dir, state_dir
from spark.disk.files import write_atomic
from spark.disk.notes import glance

FILE = "verified.json"
BUILD = "#"  # between a sink's name, which has no such sign, and a generation's number
_log = logging.getLogger(__name__)


def note_verified(pipeline: Pipeline, report: Mapping[str, Any]) -> None:
    """Remember a report: of each sink, and of each generation, that was compared the newest. Whoever may not write
    there has verified all the same.

    Args:
        pipeline: the loaded file.
        report: of ``verified``.
    """
    compared = {sink["sink"]: _of(sink, report) for sink in report["sinks"] if sink["views"] or sink["error"]}
    shown = ("at", "equal", "sample")
    builds = {_build(name, one["generation"]): {key: one[key] for key in shown} for name, one in compared.items()}
    path = state_dir(pipeline) / pipeline.name / FILE
    if not compared or not path.parent.exists():  # a folder would tell `drop` that there is something of ours
        return
    try:
        numbered_state_dir(pipeline)
        write_atomic(path, json.dumps(_read(path) | compared | builds))
    except (OSError, HeadwaterError) as error:
        _log.debug("what was verified could not be noted: %s", error)


def forget_verified(pipeline: Pipeline, sink: str, number: int | None = None) -> None:
    """Forget what was found of a sink that is dropped: one that is filled anew under its name, whose generations are
    numbered from 1 again, has not been compared. Or of one of its generations, which is removed.

    Args:
        pipeline: the loaded file.
        sink: its name.
        number: the generation's; None for the sink and all of them.
    """
    path = state_dir(pipeline) / pipeline.name / FILE
    found = _read(path)
    gone = {key for key in found if key.partition(BUILD)[0] == sink} if number is None else {_build(sink, number)}
    kept = {key: one for key, one in found.items() if key not in gone}
    if kept != found:
        write_atomic(path, json.dumps(kept))


def last_verified(pipeline: Pipeline) -> dict[str, Any]:
    """The newest result of each sink; asks no server.

    Args:
        pipeline: the loaded file.

    Returns:
        ``pipeline`` and ``sinks``: as in ``verify --json``, each with ``at`` (epoch seconds), ``sample`` and ``equal``;
        those that were never verified are not there.
    """
    found = _read(state_dir(pipeline) / pipeline.name / FILE)
    return {"pipeline": pipeline.name, "sinks": [found[name] for name in pipeline.sinks if name in found]}


def verified_generations(pipeline: Pipeline, sink: str) -> Callable[[int], dict[str, Any] | None]:
    """What is known of a sink's generations: a function from a number to ``at`` (epoch seconds), ``equal`` and
    ``sample`` of its last comparison, or to None if it was never compared; asks no server."""
    found = _read(state_dir(pipeline) / pipeline.name / FILE)
    return lambda number: found.get(_build(sink, number))


def _build(sink: str, number: int | None) -> str:
    return f"{sink}{BUILD}{number}"


def _of(sink: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    views = [
        {
            **view,
            "columns": {key: _names(told) for key, told in view["columns"].items()},
            "not_repaired": [one | {"why": hidden(one["why"])} for one in view["not_repaired"]],
        }
        for view in sink["views"]
    ]
    equal = sink["error"] is None and not any(view["differences"] for view in views)
    return {**sink, "views": views, "at": report["at"], "sample": report["sample"], "equal": equal}


def _names(told: list[Any]) -> list[str]:
    """Columns that differ, without what they hold (``--values``)."""
    return [one if isinstance(one, str) else str(one["field"]) for one in told]


def _read(path: Path) -> dict[str, Any]:
    return glance(path, dict, {}, withheld=True)
