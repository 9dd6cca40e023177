"""How a webhook is, and the note of it in the state folder, which `status` and metrics read.

<state_dir>/<pipeline>/.push/<webhook>.json

No sink can be called `.push`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cdc.ages import ago
from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import Outlet, outlets
from operations.state.accepted import only_saved
from operations.state.folder import state_dir
from operations.state.pausing import rests
from spark.disk.files import write_atomic
from spark.disk.notes import glance

# Whoever runs it writes the note about every second; an older one is of a process that is gone.
STALE_SECONDS = 15.0
State = Literal["starting", "delivering", "failing", "standby", "stopped", "paused", "unapplied"]


@dataclass
class Health:
    """How one is.

    Attributes:
        state: ``delivering``; ``failing``: it is tried again and again; ``standby``: another process sends;
            ``paused``: nobody is to send, as its sink is; ``unapplied``: nor is it in the file of the `run` at work.
        lag_entries: changes of the view that are still to be looked at, at most some thousands; None if not known.
        delivered_at: of the last batch that was taken, epoch seconds.
        events: that were taken, ever; None until the lease was had, as it is counted in Redis: a counter that began
            at 0 in each new process would seem to have grown by all that was ever counted.
        letters: batches that were refused, ever; the same.
        failing_since: epoch seconds.
        why: it fails, in words.
    """

    state: State = "starting"
    lag_entries: int | None = None
    delivered_at: float | None = None
    events: int | None = None
    letters: int | None = None
    failing_since: float | None = None
    why: str | None = None

    def fail(self, why: str) -> bool:
        """It does not go on; whether that is news."""
        news = self.state != "failing" or self.why != why
        self.state, self.why, self.failing_since = "failing", why, self.failing_since or time.time()
        return news

    def well(self) -> bool:
        """It goes on; whether that is news."""
        news = self.state == "failing"
        self.state, self.why, self.failing_since = "delivering", None, None
        return news

    def take_over(self, kept: dict[str, str]) -> None:
        """What was counted before, by whoever sent."""
        self.delivered_at = float(kept["delivered_at"]) if "delivered_at" in kept else None
        self.events, self.letters = int(kept.get("events", 0)), int(kept.get("letters", 0))
        if self.failing_since is None and "failing_since" in kept:
            self.failing_since = float(kept["failing_since"])


def note_path(pipeline: Pipeline, name: str) -> Path:
    """Where a webhook's note is."""
    return state_dir(pipeline) / pipeline.name / ".push" / f"{name}.json"


def write_note(pipeline: Pipeline, name: str, health: Health) -> None:
    """Say how it is.

    Raises:
        OSError, DiskFull: as ``write_atomic``.
    """
    write_atomic(note_path(pipeline, name), json.dumps({**asdict(health), "at": time.time()}))


def _noted(found: dict[str, Any]) -> tuple[float, Health]:
    return float(found.pop("at")), Health(**found)


def read_notes(pipeline: Pipeline) -> Iterator[tuple[Outlet, Health]]:
    """How each webhook and topic of the file is, as far as this state folder knows."""
    for outlet in outlets(pipeline):
        at, health = glance(note_path(pipeline, outlet.name), _noted, (0.0, Health()), withheld=True)
        if ago(at, time.time()) > STALE_SECONDS:
            health.state = "unapplied" if only_saved(pipeline, *outlet.keys) else "stopped"
        if rests(pipeline, outlet.sink):  # whatever the note says: it is ended at the next step of `run`
            health.state = "paused"
        if health.state in ("stopped", "paused", "unapplied"):  # nobody counts what comes meanwhile
            health.lag_entries = None
        yield outlet, health


def push_report(pipeline: Pipeline) -> list[dict[str, Any]]:
    """How the webhooks of a file are; the shape of ``status --json``."""
    return [
        {
            "name": outlet.name,
            "sends": outlet.sends,
            "to": outlet.to,
            "view": outlet.view,
            "sink": outlet.sink,
            **asdict(health),
        }
        for outlet, health in read_notes(pipeline)
    ]
