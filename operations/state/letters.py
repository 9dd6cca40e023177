"""How many letters stand, as whoever runs a sink has counted them last: for `status` and metrics, which ask often."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc.errors import StateError
from cdc.pipeline import Pipeline
from operations.state.folder import chosen_sinks, register_of, state_dir
from spark.disk.files import write_atomic
from spark.disk.notes import glance

# In <state_dir>/<pipeline>/<sink>.
NOTE = "letters.json"


@dataclass(frozen=True)
class Count:
    """Letters of one sink.

    Attributes:
        standing: of the generation that readers see.
        at: when that was counted, epoch seconds: within seconds while `run` is at work.
        more: there are more than were counted.
    """

    standing: int
    at: float
    more: bool = False

    @property
    def least(self) -> int:
        """How many there are at the least."""
        return max(self.standing, int(self.more))


def letter_counts(pipeline: Pipeline, only: Sequence[str] = ()) -> dict[str, Count | None]:
    """How many letters of each sink stand; asks no server.

    Args:
        pipeline: the loaded file.
        only: sinks; all if empty.

    Returns:
        sink -> its count; None where nobody has counted yet.
    """
    return {sink: _of(pipeline, sink, register_of(pipeline, sink).living()) for sink in chosen_sinks(pipeline, only)}


def _of(pipeline: Pipeline, sink: str, number: int) -> Count | None:
    def of(note: Any) -> Count:
        more = note["more"]  # a release before 2026-12 told of no generation, and only whether
        return Count(
            int(note["standing"].get(str(number), 0)),
            float(note["at"]),
            more if isinstance(more, bool) else number in more,
        )

    return glance(register_of(pipeline, sink).folder / NOTE, of, None, withheld=True)


def refuse_more_letters(pipeline: Pipeline, sink: str, number: int) -> None:
    """Refuse to send readers to a generation that lacks more rows than the one that they see.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        number: of the generation.

    Raises:
        StateError: more dead letters of it stand; where nobody has counted them all, nothing is refused.
    """
    living = register_of(pipeline, sink).living()
    there, now = _of(pipeline, sink, number), _of(pipeline, sink, living)
    uncounted = now is not None and now.more  # nobody knows that it has fewer
    if there is not None and there.standing > (now.standing if now else 0) and not uncounted:
        raise StateError(
            f"sink {sink}: {there.standing:,} dead letters of generation {number} stand"
            f"{f', and {now.standing:,} of generation {living}' if now else ''}",
            means="readers would miss those rows, or see them as they were before; nothing was changed",
            fix=f"`headwater letters {pipeline.file or 'FILE'} list --sink {sink} --generation {number}` says why; "
            "--force shows it to them as it is",
        )


def note_count(pipeline: Pipeline, sink: str, standing: Mapping[int, int], *, more: Collection[int] = ()) -> None:
    """Write down how many letters stand.

    Args:
        pipeline: the loaded file.
        sink: the sink's name; nothing is written where it has no folder.
        standing: by generation.
        more: generations of which there are more; see ``Count``.

    Raises:
        OSError: the disk does not take it.
    """
    folder: Path = state_dir(pipeline) / pipeline.name / sink
    if folder.exists():
        counted = {str(number): count for number, count in standing.items()}
        write_atomic(folder / NOTE, json.dumps({"at": time.time(), "standing": counted, "more": sorted(more)}))
