"""The WAL that the slot keeps, as data: what `status`, metrics and pages show, and what `run` remembers of it.

state_dir/<pipeline>/wal.json        what the slot kept, every few seconds of the last quarter of an hour, and how it
                                     was judged last
                    /released.json   that the slot was given up, and why, until there is one again
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cdc.ages import ago
from cdc.pipeline import Pipeline
from cdc.sizes import size_words
from connectors.wal.budget import RANK, Budget, Sample, judge
from connectors.wal.look import Look
from connectors.wal.pins import long_ones
from connectors.wal.release import Released
from operations.state.folder import numbered_state_dir, state_dir
from spark.disk.files import write_atomic
from spark.disk.notes import glance

# A quarter of an hour shows whether what is kept grows for good, and is short enough to forget a bulk load.
WINDOW_SECONDS = 900.0
# Several `run`s of one pipeline share the window: a sample that is as new as this is not taken again.
LEAST_PAUSE_SECONDS = 3.0
# `run` judges every five seconds; a server that answers late holds it up. After this nobody knows.
WEIGHED_SECONDS = 60.0


@dataclass(frozen=True)
class Window:
    """What was seen in the last minutes.

    Attributes:
        samples: in their order.
        first_seen: transactions that have written, by their id: epoch seconds when each was seen first.
    """

    samples: tuple[Sample, ...] = ()
    first_seen: Mapping[str, float] = field(default_factory=dict)

    def with_look(self, seen: Look, now: float) -> Window:
        """With what was seen now, and without what is older than the window. Pure."""
        kept = tuple(sample for sample in self.samples if now - WINDOW_SECONDS <= sample.at < now)
        if seen.retained_bytes is None:
            kept = ()  # another slot is a new beginning
        elif not kept or now - kept[-1].at >= LEAST_PAUSE_SECONDS:
            kept = (*kept, Sample(now, seen.retained_bytes))
        open_ones = {pin.xid: self.first_seen.get(pin.xid, now) for pin in seen.pins if pin.xid}
        return Window(kept, open_ones)


@dataclass(frozen=True)
class Weighed:
    """What `run` has judged last: all that a server needs that asks nobody.

    Attributes:
        at: when (epoch seconds).
        level, full_bytes, held: see ``Budget``.
        words: what is kept, of how much, and how long that will do.
    """

    at: float
    level: str
    full_bytes: int
    held: tuple[str, ...]
    words: str


def judged(pipeline: Pipeline, seen: Look | None, window: Window | None = None, before: str | None = None) -> Budget:
    """The judgement of what was seen; all but the budget is None where nothing was.

    Args:
        pipeline: the loaded file.
        seen: just now; None when Postgres did not answer.
        window: of the last minutes; None for the one that `run` keeps.
        before: the level that was told last.
    """
    budget = pipeline.policy.wal_bytes
    if seen is None:
        return Budget(None, budget)
    now = time.time()
    window = (window or read_window(pipeline)).with_look(seen, now)
    known: dict[str, Any] = {
        "retained": seen.retained_bytes,
        "budget": budget,
        "limit": seen.limit_bytes,
        "samples": window.samples,
        "wal_status": seen.slot.wal_status if seen.slot else None,
        "before": before,
    }
    tight = judge(**known).level not in (None, "none")
    return judge(**known, pins=long_ones(seen.pins, tight=tight, first_seen=window.first_seen, now=now))


# -- what is remembered ------------------------------------------------------------------------------------------------


def read_window(pipeline: Pipeline) -> Window:
    """What `run` has seen of this slot; nothing where it did not run, or nothing can be made of the file."""

    def of(raw: Any) -> Window:
        if raw["slot"] != pipeline.source.slot:
            return Window()
        samples = tuple(Sample(float(at), int(retained)) for at, retained in raw["samples"])
        return Window(samples, {str(xid): float(at) for xid, at in raw["first_seen"].items()})

    # Only the forecast is missing, for a minute.
    return glance(_folder(pipeline) / "wal.json", of, Window(), withheld=True)


def read_weighed(pipeline: Pipeline) -> Weighed | None:
    """What a `run` that is at work has judged last; None where none is, or nothing is known."""

    def of(raw: Any) -> Weighed | None:
        found = Weighed(**{**raw["weighed"], "held": tuple(raw["weighed"]["held"])})
        known = raw["slot"] == pipeline.source.slot and found.level in RANK
        return found if known and ago(found.at, time.time()) <= WEIGHED_SECONDS else None

    return glance(_folder(pipeline) / "wal.json", of, None, withheld=True)


def write_window(pipeline: Pipeline, window: Window, budget: Budget | None = None) -> None:
    """Remember it.

    Args:
        pipeline: the loaded file.
        window: of the last minutes.
        budget: how it was judged just now; None for nothing.

    Raises:
        DiskFull: there is no room (transient).
        OSError: as the system says.
    """
    raw = {
        "slot": pipeline.source.slot,
        "samples": [[round(sample.at, 1), sample.retained] for sample in window.samples],
        "first_seen": {xid: round(at, 1) for xid, at in window.first_seen.items()},
    }
    if budget is not None and budget.level is not None:
        words = budget.words(pipeline.source.slot)
        raw["weighed"] = asdict(Weighed(time.time(), budget.level, budget.full_bytes, tuple(budget.held), words))
    write_atomic(numbered_state_dir(pipeline) / pipeline.name / "wal.json", json.dumps(raw))


def note_release(pipeline: Pipeline, released: Released | None) -> None:
    """Remember that the slot is given up, and why; None: there is one again."""
    path = _folder(pipeline) / "released.json"
    if released is not None:
        numbered_state_dir(pipeline)
        write_atomic(path, json.dumps(asdict(released)))
    else:
        path.unlink(missing_ok=True)


def read_release(pipeline: Pipeline) -> Released | None:
    """What was noted, if it is of this slot."""
    found = glance(_folder(pipeline) / "released.json", lambda note: Released(**note), None, withheld=True)
    return found if found is not None and found.slot == pipeline.source.slot else None


def forget_wal(pipeline: Pipeline) -> None:
    """Forget what was seen of a slot that is dropped."""
    for name in ("wal.json", "released.json"):
        (_folder(pipeline) / name).unlink(missing_ok=True)


def release_words(released: Released) -> str:
    """Why there is no slot."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(released.at))
    kept, full = size_words(released.retained_bytes), size_words(released.full_bytes)
    return f"slot {released.slot} was given up at {at}: it made Postgres keep {kept} of WAL, and may keep {full}"


def _folder(pipeline: Pipeline) -> Path:
    return state_dir(pipeline) / pipeline.name
