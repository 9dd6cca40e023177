"""What a sink's generation keeps on disk: its identity, one checkpoint a flow, a status file, a lease.

    <state_dir>/<pipeline>/<sink>/g<generation>/identity.json
                                                /lease.json
                                                /<flow>/checkpoint/   (Spark's)
                                                /<flow>/status.json
                                                /<flow>/claim.json

Spark trusts its checkpoint folder blindly: a lost ``metadata`` file silently makes a new query (SPARK-55058), an empty
or missing offset file fails in ways that do not name the cause. So we look before Spark does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cdc.errors import SourceChanged, StateError, TopicRecreated
from spark.disk import refused
from spark.disk.files import write_atomic
from spark.disk.lease import LEAVE_IT, Lease
from spark.disk.notes import read_note
from spark.disk.status import FlowStatus, state_of

# In a flow's folder: the lease token with which its targets were claimed last (operations/generations/elsewhere.py).
CLAIM = "claim.json"
# Files of ours in a generation's folder (spark/disk/lease.py) that have the name that a view's flow may have: such a
# flow's folder has another one, with a dot, which no view's name has.
OWN = ("life", "lock")
_BESIDE = ".view"
# How old the oldest change may be that it has not read (spark/log_gaps.py): looked at before a target is made ready.
UNREAD = "unread.json"


@dataclass(frozen=True)
class Identity:
    """What a generation is bound to: if any of it changes, its offsets and versions mean nothing any more.

    Attributes:
        system_identifier: Postgres' own, from ``pg_control_system()``.
        timeline: the WAL timeline; grows at a failover or restore.
        database: the source database.
        slot: the replication slot.
        topic_ids: topic -> Kafka's id of it; a re-created topic has another.
        spec_hash: hash of the sink's view and target definition.
    """

    system_identifier: str
    timeline: int
    database: str
    slot: str
    topic_ids: Mapping[str, str]
    spec_hash: str


_CHANGED = {
    "system_identifier": "the address now leads to another Postgres cluster",
    "timeline": "the database failed over or was restored to an earlier point",
    "database": "the pipeline names another database",
    "slot": "the pipeline names another replication slot",
    "spec_hash": "the sink's views, mapping or target were changed in the pipeline file",
}


def folder_of(generation: Path, flow: str) -> Path:
    """The folder of a flow below its generation's. Pure."""
    return generation / (f"{flow}{_BESIDE}" if flow in OWN else flow)


def rebuild_command(sink: str) -> str:
    """The way out of a generation that has lost its place, for the ``fix`` of an error."""
    return f"`headwater rebuild FILE {sink} --auto` fills a new generation from offset 0 and switches to it"


class Generation:
    """One generation's folder.

    Args:
        state_dir: the pipeline's ``engine.state_dir``.
        pipeline: its name.
        sink: the sink's name.
        number: the generation, from 1.
    """

    def __init__(self, state_dir: Path, pipeline: str, sink: str, number: int = 1) -> None:
        self.state_dir, self.pipeline, self.sink, self.number = state_dir, pipeline, sink, number
        self.folder = state_dir / pipeline / sink / f"g{number}"
        self.lease = Lease(self.folder, f"sink {sink}" if number == 1 else f"sink {sink}, generation {number}")

    def __reduce__(self) -> tuple[type[Generation], tuple[Path, str, str, int]]:
        """Another process gets the folder, and not the lease that this one may hold."""
        return Generation, (self.state_dir, self.pipeline, self.sink, self.number)

    def flow_folder(self, flow: str) -> Path:
        """Where a flow keeps its checkpoint and status."""
        return folder_of(self.folder, flow)

    def checkpoint(self, flow: str) -> Path:
        """A flow's Spark checkpoint."""
        return self.flow_folder(flow) / "checkpoint"

    def flows(self) -> list[str]:
        """Names of the flows that have left anything on disk."""
        return sorted(path.name.removesuffix(_BESIDE) for path in self.folder.glob("*/") if path.is_dir())

    def states(self) -> dict[str, str]:
        """The state of each flow, by its name: one that is silent while its process renews the lease is busy."""
        holder = self.lease.holder()
        return {flow: state_of(FlowStatus.read(self.flow_folder(flow)), holder) for flow in self.flows()}

    def end_others(self, flows: Sequence[str]) -> None:
        """Its flows are these now: one of a table that was let go must not stay `failed` for ever."""
        for name in set(self.flows()) - set(flows):
            left = FlowStatus.read(self.flow_folder(name))
            if left is not None and left.state != "finished":
                replace(left, state="finished", last_error=None, warning=None).write(self.flow_folder(name))

    @property
    def started(self) -> bool:
        """Whether anything of it may have been written: a flow that never came to run leaves a status and no more."""
        return any(_has_written(self.flow_folder(flow)) for flow in self.flows())

    def refuse(self, reason: str) -> None:
        """Leave word, for ``status``, of why no process runs it."""
        refused.refuse(self.folder, reason)

    def refused(self) -> str | None:
        """Why the last process that was to run it would not; None once one does."""
        return refused.refused(self.folder)

    def accepted(self) -> None:
        """Take back what ``refuse`` has said."""
        refused.accepted(self.folder)

    def note_views(self, views: Sequence[str], *, anew: bool = False) -> None:
        """Remember which views the generation has written, so that they can be removed when the file says otherwise.

        Args:
            views: their names.
            anew: nothing was written before, whatever was noted.
        """
        write_atomic(self.folder / "views.json", json.dumps(sorted({*views, *(() if anew else self.views())})))

    def note_beats(self, beats: Mapping[str, int]) -> None:
        """Remember the numbers that were left with the targets: a server that has older ones has lost writes."""
        write_atomic(self.folder / "beats.json", json.dumps(beats))

    def beats(self) -> dict[str, int]:
        """The number that was left last with each view's target."""
        try:
            return {
                str(view): int(number) for view, number in json.loads((self.folder / "beats.json").read_text()).items()
            }
        except (FileNotFoundError, ValueError, AttributeError):
            return {}  # then a loss is noticed from now on

    def views(self) -> list[str]:
        """The views this generation has ever written.

        Raises:
            StateError: the note can't be read (terminal).
        """
        fix = "remove it: the views of the file are noted anew; `drop` leaves the targets of any that were in it before"
        return read_note(self.folder / "views.json", list, fix) or []

    def known(self) -> Identity | None:
        """The identity that it was bound to; None before its first start.

        Raises:
            StateError: it can't be read.
        """
        fix = f"restore it from a copy; or {rebuild_command(self.sink)}"
        return read_note(self.folder / "identity.json", lambda note: Identity(**note), fix)

    def bind(self, identity: Identity, followed: Collection[int] = ()) -> None:
        """Remember the identity at the first start; refuse a different one later.

        Args:
            identity: as it is now.
            followed: timelines that are one history for us: a promoted standby was followed from each to the next.

        Raises:
            SourceChanged, TopicRecreated: what the generation was filled from is not there any more (terminal).
            StateError: something else that it is bound to has changed; nothing was written.
        """
        known = self.held_against(identity, followed)
        if known is None:
            write_atomic(self.folder / "identity.json", json.dumps(asdict(identity), indent=1, sort_keys=True))
            return
        before = self.known() or known
        # A table may have been added; and who has followed a promoted standby once need not know it for ever.
        ids, timeline = {**identity.topic_ids, **known.topic_ids}, max(before.timeline, known.timeline)
        now = replace(known, topic_ids=ids, timeline=timeline)
        if now != before:
            write_atomic(self.folder / "identity.json", json.dumps(asdict(now), indent=1, sort_keys=True))

    def held_against(self, identity: Identity, followed: Collection[int] = ()) -> Identity | None:
        """The identity that it was bound to, if what is there now is that; None before its first start. Arguments and
        errors as ``bind``; nothing is written."""
        known = self.known()
        if known is None:
            return None
        if known.timeline != identity.timeline and {known.timeline, identity.timeline} <= set(followed):
            known = replace(known, timeline=identity.timeline)
        for name, why in _CHANGED.items():
            before, now = getattr(known, name), getattr(identity, name)
            if before != now:
                kind = StateError if name == "spec_hash" else SourceChanged
                raise kind(
                    f"sink {self.sink}: {name.replace('_', ' ')} was {before}, is {now}: {why}",
                    means="going on would mix two histories in one target; nothing was written",
                    fix=rebuild_command(self.sink) if name == "spec_hash" else self._afresh(),
                )
        self.refuse_recreated(known.topic_ids, identity.topic_ids)
        return known

    def refuse_recreated(self, known: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Refuse topics that are others than those that it was filled from. Pure.

        Args:
            known: Kafka's ids of the topics that it was filled from.
            now: as they are.

        Raises:
            TopicRecreated: one of them is another (terminal).
        """
        for topic, before in known.items():
            if now.get(topic, before) != before:
                raise TopicRecreated(
                    f"sink {self.sink}: topic {topic} was deleted and created again",
                    means="the offsets this sink has read through belong to the old topic; nothing was written",
                    fix=f"`headwater apply FILE --wait` (its rows are read again), then {rebuild_command(self.sink)}",
                )

    def _afresh(self) -> str:
        return "if that is meant: `headwater recapture FILE`, which tells first what it costs"

    def lock(self, way_out: str = LEAVE_IT) -> int:
        """Hold the generation for this process; returns the token that its writes carry (spark/disk/lease.py).

        Args:
            way_out: as of ``Lease.take``.

        Raises:
            StateError: another process runs it.
        """
        return self.lease.take(way_out)

    def unlock(self) -> None:
        """Give the generation back."""
        self.lease.release()

    def clear(self) -> None:
        """Remove what one that this process holds has kept: whoever takes it then begins with nothing.

        Raises:
            Fenced: another process has taken over; nothing was removed (terminal).
        """
        self.lease.clear()

    def discard(self) -> None:
        """Remove the folder of one that this process holds: nobody can take it meanwhile.

        Raises:
            Fenced: another process has taken over; nothing was removed (terminal).
        """
        self.lease.discard()


def _has_written(flow: Path) -> bool:
    # What a killed writer has left of a file that it replaced (spark/disk/files.py) was not written yet.
    names = [path.name for path in flow.iterdir() if not path.name.startswith(".")]
    if any(name not in ("status.json", CLAIM, UNREAD) for name in names):
        return True
    try:
        status = json.loads((flow / "status.json").read_text())
        return bool(status["batch_id"] >= 0 or status.get("current_at"))
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        return True  # it may have said anything
