"""What `run` leaves in the state folder of how old everything is: read by `status`, servers and probes, who ask nobody.

    <state_dir>/<pipeline>/frontier.json            of the log: how far Debezium has brought the source's commits
                           <sink>/frontier.json     of a sink: how far each flow of each generation has applied them

When the process that writes them dies, or what it asks does not answer, the moments in them stay as they are, and
whoever reads them sees an age that grows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline
from operations.state_folder import numbered_state_dir, state_dir
from spark.files import write_somehow

FILE = "frontier.json"


@dataclass(frozen=True)
class FlowNote:
    """How far a flow is.

    Attributes:
        as_of: everything that was committed before has been applied (epoch seconds); None while that is not known.
        behind: records of the log that it has not applied, as far as the log was looked at; None when not known.
        moved_at: when it was last seen to get on, or to have nothing to do (epoch seconds).
        reason: what keeps ``as_of`` from growing, besides records that wait; None for nothing.
    """

    as_of: float | None
    behind: int | None
    moved_at: float
    reason: str | None = None


@dataclass(frozen=True)
class SinkNote:
    """How far a sink is.

    Attributes:
        at: when this was written (epoch seconds).
        since: when the process that writes it began to look.
        generations: number -> flow -> how far it is.
    """

    at: float
    since: float
    generations: Mapping[int, Mapping[str, FlowNote]] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceNote:
    """How far the log is, and what moves it.

    Attributes:
        at: when this was written (epoch seconds).
        since: when the process that writes it began to look.
        as_of: everything that was committed before is in the log (epoch seconds); None while that is not known.
        moved_at: when the slot was last seen to get on, or to have nothing to do.
        answered_at: when Postgres and, if it had to be asked, Kafka last answered; 0 for never.
        error: why they do not answer now; None if they do.
        reading: captured tables whose rows are being read.
        connector: Kafka Connect's word for the connector; ``absent``, or ``unknown`` when Connect does not answer.
        tasks: the same for each task.
        connector_error: why it has failed, or why Connect does not answer.
        slot_there: whether there is a slot; None while that is not known, as are the others of it.
        slot_active: somebody reads from it.
        slot_lost: Postgres has given it up.
        slot_retained_bytes: WAL that it makes Postgres keep.
        slot_safe_bytes: WAL that may still be written before it is lost; None when there is no limit, too.
    """

    at: float
    since: float
    as_of: float | None = None
    moved_at: float = 0.0
    answered_at: float = 0.0
    error: str | None = None
    reading: Sequence[str] = ()
    connector: str = "unknown"
    tasks: Sequence[str] = ()
    connector_error: str | None = None
    slot_there: bool | None = None
    slot_active: bool | None = None
    slot_lost: bool = False
    slot_retained_bytes: int | None = None
    slot_safe_bytes: int | None = None


def write_sink_note(pipeline: Pipeline, sink: str, note: SinkNote) -> None:
    """Leave word of a sink.

    Raises:
        DiskFull, OSError: no room for it.
    """
    _write(numbered_state_dir(pipeline) / pipeline.name / sink, asdict(note))


def write_source_note(pipeline: Pipeline, note: SourceNote) -> None:
    """Leave word of the source.

    Raises:
        DiskFull, OSError: no room for it.
    """
    _write(numbered_state_dir(pipeline) / pipeline.name, asdict(note))


def forget_source_note(pipeline: Pipeline) -> None:
    """The slot and the topics are removed: what was in them says nothing of the next ones."""
    (state_dir(pipeline) / pipeline.name / FILE).unlink(missing_ok=True)


def read_sink_note(pipeline: Pipeline, sink: str) -> SinkNote | None:
    """The newest word of a sink; None if there is none that can be read: nothing is known then."""
    found = _read(state_dir(pipeline) / pipeline.name / sink)
    try:
        generations = {
            int(number): {name: FlowNote(**_known(FlowNote, one)) for name, one in flows.items()}
            for number, flows in found["generations"].items()
        }
        return SinkNote(float(found["at"]), float(found["since"]), generations)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def read_source_note(pipeline: Pipeline) -> SourceNote | None:
    """The newest word of the source; None if there is none that can be read."""
    try:
        return SourceNote(**_known(SourceNote, _read(state_dir(pipeline) / pipeline.name)))
    except (TypeError, AttributeError):
        return None


def noted_as_of(pipeline: Pipeline, sink: str, numbers: Sequence[int], views: Sequence[str] = ()) -> float | None:
    """Up to which moment generations have all that was committed, by the newest word; None if that is not known.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        numbers: of the generations that readers may see.
        views: only flows that keep one of these; all if empty.
    """
    note = read_sink_note(pipeline, sink)
    found = [
        one.as_of
        for number in numbers
        for name, one in (note.generations.get(number) or {"": FlowNote(None, None, 0.0)} if note else {}).items()
        if not views or name in views or name in ("main", "")
    ]
    known = [as_of for as_of in found if as_of is not None]
    return min(known) if known and len(known) == len(found) else None


def _write(folder: Path, note: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_somehow(folder / FILE, json.dumps(note))


def _read(folder: Path) -> Any:
    try:
        return json.loads((folder / FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None


def _known(kind: type[Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Of what was written by a later version, what this one knows."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
