"""What a view's matcher is doing, for who asks no server: ``<state_dir>/<pipeline>/standing-<view>.json``."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cdc.ages import ago
from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from operations.state.accepted import only_saved
from operations.state.folder import state_dir
from operations.state.pausing import rests
from spark.disk.files import write_atomic

# A matcher notes every two seconds, while a request takes longer now and then; an older note is of one that is gone.
STALE_SECONDS = 30.0


@dataclass(frozen=True)
class MatcherNote:
    """One matcher's.

    Attributes:
        documents: versions that were held against the queries since it began.
        told: versions of which something was told.
        unread: versions that the search server could not read: they match nothing.
        lag_seconds: how much younger the newest change is than those that were judged; None while it does not go on.
        queries: how many stand, as the next two by the last look; None before the first of its process.
        pending: how many of them wait until all documents were held against them.
        refused: queries that the server does not take, of the registered ones and of saved ones: they match nothing.
        error: why it does not go on; None while it does.
        at: when it was written; 0 for never.
    """

    documents: int = 0
    told: int = 0
    unread: int = 0
    lag_seconds: float | None = None
    queries: int | None = None
    pending: int | None = None
    refused: int | None = None
    error: str | None = None
    at: float = field(default_factory=time.time)

    @property
    def working(self) -> bool:
        """Whether the matcher goes on: it can, and is run."""
        return self.error is None and ago(self.at, time.time()) < STALE_SECONDS

    def write(self, pipeline: Pipeline, view: str) -> None:
        """Leave it.

        Raises:
            OSError: there is no room, or no right.
        """
        path = _path(pipeline, view)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(self)))


def read_notes(pipeline: Pipeline) -> dict[str, MatcherNote]:
    """The newest of each view; one whose matcher has never left any is not at work either."""
    noted = {view: read_note(pipeline, view) or MatcherNote(at=0.0) for view in pipeline.queries}
    return {view: note if note.working else replace(note, lag_seconds=None) for view, note in noted.items()}


def read_note(pipeline: Pipeline, view: str) -> MatcherNote | None:
    """The newest of a view, whether the file still has queries on it or not; None if nobody has left one."""
    try:
        return MatcherNote(**json.loads(_path(pipeline, view).read_text()))
    except (OSError, ValueError, TypeError, HeadwaterError):
        return None


def works(pipeline: Pipeline, view: str, note: MatcherNote) -> bool | None:
    """Whether a view's matcher goes on; None while nobody is to run it: the sink whose changes it reads is paused, or
    the `run` at work goes by a file without the view's queries."""
    part = pipeline.queries.get(view)
    if part is not None and rests(pipeline, part.changes):
        return None
    return None if not note.working and only_saved(pipeline, "queries", view) else note.working


def standing_report(pipeline: Pipeline) -> list[dict[str, Any]]:
    """How the matchers of a file are; the shape of ``status --json``."""
    notes = read_notes(pipeline)
    return [
        {"view": view, "working": works(pipeline, view, note), **asdict(note), "at": note.at or None}
        for view, note in notes.items()
    ]


def _path(pipeline: Pipeline, view: str) -> Path:
    return state_dir(pipeline) / pipeline.name / f"standing-{view}.json"
