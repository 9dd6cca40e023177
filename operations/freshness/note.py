"""What `run` leaves in the state folder of how old everything is: read by `status`, servers and probes, who ask nobody.

    <state_dir>/<pipeline>/frontier.json            of the log: how far Debezium has brought the source's commits
                           <sink>/frontier.json     of a sink: how far each flow of each generation has applied them

When the process that writes them dies, or what it asks does not answer, the moments in them stay as they are, and
whoever reads them sees an age that grows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cdc.ages import ago
from cdc.pipeline import Pipeline
from cdc.pipeline.views import SHARED_FLOW
from operations.freshness.source_words import SourceWords
from operations.state.folder import numbered_state_dir, state_dir
from spark.disk.files import write_somehow
from spark.disk.notes import glance

FILE = "frontier.json"
# A note is written each second; one that is older has nobody who writes it, and so has one that is still to come: the
# clock was put back.
STALE_SECONDS = 15.0


def oldest(moments: Iterable[float | None]) -> float | None:
    """The oldest of several moments, if all are known; None of none. Pure."""
    found = list(moments)
    known = [moment for moment in found if moment is not None]
    return min(known) if known and len(known) == len(found) else None


@dataclass(frozen=True)
class FlowNote:
    """How far a flow is.

    Attributes:
        as_of: everything that was committed before has been applied (epoch seconds); None while that is not known.
        behind: records of the log that it has not applied, as far as the log was looked at; None when not known.
        moved_at: when it was last seen to get on, or to have nothing to do (epoch seconds).
        reason: what keeps ``as_of`` from growing, besides records that wait; None for nothing.
        uncommitted: which topic and partition a transaction hides from it that does not end; None for none.
    """

    as_of: float | None
    behind: int | None
    moved_at: float
    reason: str | None = None
    uncommitted: str | None = None

    def by(self, now: float) -> FlowNote:
        """The same without moments after ``now``: a clock that was ahead has told of them."""
        as_of = None if self.as_of is None or self.as_of > now else self.as_of
        return replace(self, as_of=as_of, moved_at=min(self.moved_at, now))


NOTHING = FlowNote(None, None, 0.0)


@dataclass(frozen=True)
class SinkNote:
    """How far a sink is.

    Attributes:
        at: when this was written (epoch seconds).
        since: when the process that writes it began to look.
        generations: number -> flow -> how far it is.
        away: why its server does not answer now; None if it does.
        astray: which view's readers see what the sink does not keep; None if all see what it keeps.
        history: how far its history is, which is of no generation; None if it has none.
    """

    at: float
    since: float
    generations: Mapping[int, Mapping[str, FlowNote]] = field(default_factory=dict)
    away: str | None = None
    astray: str | None = None
    history: FlowNote | None = None

    def fresh(self, now: float) -> bool:
        """Whether somebody writes it now (epoch seconds)."""
        return ago(self.at, now) <= STALE_SECONDS

    def of(self, numbers: Sequence[int], views: Collection[str] = ()) -> FlowNote:
        """How far generations are together: as their worst flow, with the records that wait for all of them.

        Args:
            numbers: of the generations that readers may see.
            views: only flows that keep one of these; all if empty.
        """
        found = [
            one
            for number in numbers
            for name, one in (self.generations.get(number) or {SHARED_FLOW: NOTHING}).items()
            if not views or name in views or name == SHARED_FLOW
        ] or [NOTHING]
        waiting = [one.behind for one in found if one.behind is not None]
        return FlowNote(
            oldest(one.as_of for one in found),
            sum(waiting) if len(waiting) == len(found) else None,
            min(one.moved_at for one in found),
            next((one.reason for one in found if one.reason is not None), None),
        )


@dataclass(frozen=True)
class SourceNote(SourceWords):
    """How far the log is, and what moves it.

    Attributes:
        at: when this was written (epoch seconds).
        since: when the process that writes it began to look.
        as_of: everything that was committed before is in the log (epoch seconds); None while that is not known.
        moved_at: when the slot was last seen to get on, or to have nothing to do.
        answered_at: when Postgres and, of tables that are being read, Kafka last answered; 0 for never.
        connect_answered_at: when Kafka Connect last answered; 0 for never.
        failed_at: when the connector was last seen to have failed (epoch seconds); None for never.
        failed_why: why; it may have been started again meanwhile, and fail again.
        written_at: when records were last seen to come into the log while the slot stood still; 0 for never.
        slot_retained_bytes: WAL that the slot makes Postgres keep; None while that is not known.
        slot_safe_bytes: WAL that may still be written before it is lost; None when there is no limit, too.
        row_store: node of the row store -> ``used_bytes`` and ``limit_bytes`` (0 for none); empty when not known.
    """

    at: float
    since: float
    as_of: float | None = None
    moved_at: float = 0.0
    answered_at: float = 0.0
    connect_answered_at: float = 0.0
    failed_at: float | None = None
    failed_why: str | None = None
    written_at: float = 0.0
    slot_retained_bytes: int | None = None
    slot_safe_bytes: int | None = None
    row_store: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def fresh(self, now: float) -> bool:
        """Whether somebody writes it now (epoch seconds)."""
        return ago(self.at, now) <= STALE_SECONDS

    def by(self, now: float) -> SourceNote:
        """The same without moments after ``now``, as ``FlowNote.by``."""
        as_of = None if self.as_of is None or self.as_of > now else self.as_of
        since, moved, answered = (min(one, now) for one in (self.since, self.moved_at, self.answered_at))
        written = min(self.written_at, now)
        return replace(self, since=since, as_of=as_of, moved_at=moved, answered_at=answered, written_at=written)


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
    return glance(state_dir(pipeline) / pipeline.name / sink / FILE, _sink_note, None)


def _sink_note(found: Mapping[str, Any]) -> SinkNote:
    generations = {
        int(number): {name: FlowNote(**_known(FlowNote, one)) for name, one in flows.items()}
        for number, flows in found["generations"].items()
    }
    told = found.get("history")
    history = None if told is None else FlowNote(**_known(FlowNote, told))
    words = found.get("away"), found.get("astray"), history
    return SinkNote(float(found["at"]), float(found["since"]), generations, *words)


def read_source_note(pipeline: Pipeline) -> SourceNote | None:
    """The newest word of the source; None if there is none that can be read."""
    path = state_dir(pipeline) / pipeline.name / FILE
    return glance(path, lambda found: SourceNote(**_known(SourceNote, found)), None)


def _write(folder: Path, note: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_somehow(folder / FILE, json.dumps(note))


def _known(kind: type[Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Of what was written by a later version, what this one knows."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
