"""How far the generations that readers may see have applied the log: from what their flows tell as batches end.

A ``Place`` is read once for all who wait, and asks no server but the row stores of joined views. What it has read is
held against as many ledger entries as there are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc.errors import HeadwaterError
from cdc.log.ends import Offsets
from cdc.outbox import topics_of_table
from cdc.pipeline import Pipeline
from cdc.pipeline.views import SHARED_FLOW
from connectors.ledger import LedgerEntry
from operations.deferred import Deferred
from operations.opened import named_tables
from operations.state.folder import register_of
from operations.state.history import STREAM, history_folder, history_lease, keeps_history
from operations.state.losses import LossNote
from operations.state.pausing import rests
from spark.disk.applied import applied_offsets
from spark.disk.files import Stamp, stamp
from spark.disk.filling import FILL
from spark.disk.lease import Holder
from spark.disk.made_of import as_defined
from spark.disk.state import Generation
from spark.disk.status import FlowStatus, state_of
from spark.flow import flow_of

# Only of a flow at work is it known that what it has applied is of the topics, and in the target, that are there now.
_AT_WORK = ("filling", "running")


@dataclass(frozen=True)
class Reach:
    """Whether a sink's readers have everything of a ledger entry.

    Attributes:
        there: they have.
        generations: those that they may see; several in the middle of a promotion.
        behind: offsets still to be applied.
        reason: what keeps it; None if it only takes its time.
        stale: the entry itself says too little: another one may say more.
    """

    there: bool
    generations: tuple[int, ...]
    behind: int = 0
    reason: str | None = None
    stale: bool = False


class Question:
    """Why a flow has not written all that its offsets say: asked once for all who look at one moment.

    Args:
        deferred: asks; of the thread that calls this.
        generation, flow: whom it is about.
    """

    def __init__(self, deferred: Deferred, generation: Generation, flow: str) -> None:
        self._deferred, self._generation, self._flow = deferred, generation, flow
        self._answers: list[str | None] = []

    @property
    def open(self) -> bool:
        """Whether a row store is to be asked for it, which may take seconds. In any thread: asks none."""
        if not self._answers:
            said, server = self._deferred.noted(self._generation, self._flow)
            if server is not None:
                return True
            self._answers.append(said)
        return False

    def __call__(self) -> str | None:
        """Ask; waits for the row store."""
        if not self._answers:
            self._answers.append(self._deferred.why(self._generation, self._flow))
        return self._answers[0]


@dataclass(frozen=True)
class FlowSeen:
    """One flow at the moment of the look.

    Attributes:
        state: see ``spark.disk.status``.
        error: its last one.
        topics: that it reads.
        applied: through which offsets.
        deferred: why it has not written all that its offsets say; None of one that is not at work.
    """

    state: str
    error: str | None
    topics: Collection[str]
    applied: Offsets
    deferred: Question | None = None


@dataclass(frozen=True)
class Seen:
    """A sink at the moment of the look.

    Attributes:
        generations: that readers may see.
        flows: generation -> flow -> what was seen of it.
        topic_ids: generation -> topic -> Kafka's id of the topic that it was filled from.
        hold: why nothing that is there can be trusted to be all of it, or to come.
    """

    generations: tuple[int, ...]
    flows: Mapping[int, Mapping[str, FlowSeen]] = field(default_factory=dict)
    topic_ids: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    hold: str | None = None

    @property
    def topics(self) -> set[str]:
        """That the flows of these generations read."""
        return {topic for flows in self.flows.values() for flow in flows.values() for topic in flow.topics}

    def reach(self, entry: LedgerEntry, views: Collection[str] = ()) -> Reach:
        """Whether what readers see has everything of an entry.

        Args:
            entry: of the ledger.
            views: only flows that keep one of these; all if empty.
        """
        if self.hold is not None:
            return Reach(False, self.generations, 0, self.hold)
        if why := self._not_begun(views):
            return Reach(False, self.generations, 0, why)
        behind, stale, reasons = 0, False, list[str]()
        for number, name, flow in self._of(views):
            left, why, unsaid = _of(name, flow, entry, self.topic_ids[number])
            behind, stale = max(behind, left), stale or unsaid
            reasons += [why] if why else []
        there = not behind and not reasons
        return Reach(there, self.generations, behind, reasons[0] if reasons else None, stale)

    def well(self, views: Collection[str] = ()) -> bool:
        """Whether nothing but records keeps readers from what is new; ``views`` as ``reach``. Asks no row store."""
        held = self.hold or self._not_begun(views)
        return held is None and all(flow.state in _AT_WORK for _, _, flow in self._of(views))

    def open(self, views: Collection[str] = ()) -> bool:
        """Whether ``reach`` may ask a row store, which may take seconds; ``views`` as there. In any thread."""
        return any(question.open for question in self._questions(views))

    def ask(self) -> None:
        """Ask all row stores that are to be asked; of the thread that looked."""
        for question in self._questions(()):
            question()

    def _questions(self, views: Collection[str]) -> Iterator[Question]:
        if self.hold is None and not self._not_begun(views):
            at_work = (flow.deferred for _, _, flow in self._of(views) if flow.state in _AT_WORK)
            yield from (question for question in at_work if question is not None)

    def _not_begun(self, views: Collection[str]) -> str | None:
        """A generation without any flow has nothing, however little it may be behind: one of whole tables, which are
        known once it has begun."""
        begun = {number for number, _, _ in self._of(views)}
        return next((f"no flow of generation {n} has begun" for n in self.generations if n not in begun), None)

    def _of(self, views: Collection[str]) -> Iterator[tuple[int, str, FlowSeen]]:
        for number in self.generations:
            for name, flow in self.flows[number].items():
                if not views or name in views or name == SHARED_FLOW:
                    yield number, name, flow


def _of(name: str, flow: FlowSeen, entry: LedgerEntry, ids: Mapping[str, str]) -> tuple[int, str | None, bool]:
    """(offsets to go, what keeps it, whether the entry says too little) of one flow."""
    if flow.state not in _AT_WORK:
        return 0, f"flow {name} is {flow.state}" + (f": {flow.error}" if flow.error else ""), False
    for topic in sorted(flow.topics):
        if topic not in entry.offsets:
            return 0, entry.silent.get(topic, f"topic {topic} is not known to the brokers"), True
        if ids.get(topic) != entry.ids.get(topic):
            return 0, f"topic {topic} was made anew", False
    left = _part(entry, flow.topics).behind(flow.applied)
    return (left, None, False) if left or flow.deferred is None else (0, flow.deferred(), False)


@dataclass(frozen=True)
class FlowPlace:
    """How far one flow is that `run` keeps up to date, whoever reads what it writes.

    Attributes:
        topics: that it reads.
        applied: through which offsets, exclusive.
        hold: what it has still to write though it has read the log, or why nothing can be trusted; None for nothing.
        void: what it has written is gone.
        sign: something else each time that the flow was seen to get on.
        ids: topic -> Kafka's id of the one that its offsets are of.
    """

    topics: Collection[str]
    applied: Offsets
    hold: str | None
    void: bool
    sign: Any
    ids: Mapping[str, str] = field(default_factory=dict)

    def left(self, entry: LedgerEntry) -> int:
        """Records of an entry that are still to be applied."""
        return _part(entry, self.topics).behind(self.applied)

    def has(self, entry: LedgerEntry) -> bool:
        """Whether all of an entry was applied."""
        return self.left(entry) == 0 and entry.offsets.keys() >= set(self.topics) and self.other(entry) is None

    def other(self, entry: LedgerEntry) -> str | None:
        """A topic whose offsets can't be held against an entry's, because either is of one that was made anew."""
        both = sorted(set(self.topics) & self.ids.keys() & entry.ids.keys())
        return next((topic for topic in both if self.ids[topic] != entry.ids[topic]), None)


def _part(entry: LedgerEntry, topics: Collection[str]) -> LedgerEntry:
    return LedgerEntry(entry.lsn, {topic: entry.offsets[topic] for topic in topics if topic in entry.offsets})


class Place:
    """One sink, looked at again and again, by one thread.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
    """

    def __init__(self, pipeline: Pipeline, sink: str) -> None:
        self.pipeline, self.sink = pipeline, sink
        self.register = register_of(pipeline, sink)
        self._deferred = Deferred(pipeline)
        self._definitions: dict[int, tuple[Stamp | None, tuple[set[str], list[str]]]] = {}

    def close(self) -> None:
        """Close what was opened."""
        self._deferred.close()

    def look(self) -> Seen:
        """See how it stands now.

        While a promotion is under way readers may see either generation: both count. The register is read before and
        after, so that one which begins meanwhile is not missed (``promote`` lets the new generation come as far as the
        old one before it moves anybody).

        Raises:
            HeadwaterError: what is kept of the sink can't be read.
        """
        shown = self._shown()
        made = {number: self.register.generation(number) for number in shown}
        self._definitions = {number: known for number, known in self._definitions.items() if number in made}
        self._deferred.keep(made.values())
        seen = Seen(
            shown,
            {number: self._flows(generation) for number, generation in made.items()},
            {number: _ids(generation) for number, generation in made.items()},
            next((why for generation in made.values() if (why := self._hold(generation))), None),
        )
        if self._shown() != shown:
            return Seen(self._shown(), hold="readers are being sent to another generation")
        return seen

    def flows(self) -> dict[int, dict[str, FlowPlace]]:
        """How far every flow is that `run` keeps up to date: generation -> flow."""
        lost = LossNote(self.register.folder).there()
        made = [self.register.generation(number) for number in sorted({*self.register.kept(), *self._shown()})]
        self._deferred.keep(made)
        return {generation.number: self._places(generation, lost=lost) for generation in made}

    def _places(self, generation: Generation, *, lost: bool) -> dict[str, FlowPlace]:
        holder, found = generation.lease.holder(), dict[str, FlowPlace]()
        ids = _ids(generation)
        for name in generation.flows():
            folder = generation.flow_folder(name)
            status = FlowStatus.read(folder)
            if status is None or status.state == "finished":
                continue
            # In this order: what a batch leaves to be written that ends in between keeps us from promising too much.
            applied = applied_offsets(folder)
            hold = "what it kept was lost, and is made again" if lost else self._deferred.why(generation, name)
            found[name] = FlowPlace(status.topics, applied, hold, lost, _sign(folder, status, holder, applied), ids)
        return found

    def history(self, topics: Collection[str]) -> FlowPlace | None:
        """How far the sink's history is; None if it keeps none, or has never begun.

        Args:
            topics: that there are: it names others for good, of tables that the sink does not keep any more.
        """
        if not keeps_history(self.pipeline, self.sink):
            return None
        kept = history_folder(self.pipeline, self.sink)
        status = FlowStatus.read(kept / STREAM)
        if status is None:
            return None
        applied, holder = applied_offsets(kept / STREAM), history_lease(kept, self.sink).holder()
        sign = _sign(kept / STREAM, status, holder, applied)
        return FlowPlace(sorted(set(status.topics) & set(topics)), applied, None, False, sign)

    def _shown(self) -> tuple[int, ...]:
        begun = self.register.promotion()
        return tuple(sorted({self.register.living(), *((begun.number, begun.origin) if begun else ())}))

    def _hold(self, generation: Generation) -> str | None:
        if LossNote(self.register.folder).there():
            return "what it kept was lost, and is made again"
        if rests(self.pipeline, self.sink):
            return "it is paused"
        return generation.refused()

    def _flows(self, generation: Generation) -> dict[str, FlowSeen]:
        """The flows that a generation is made of; one that has told nothing yet counts as not begun."""
        holder, found = generation.lease.holder(), dict[str, FlowSeen]()
        for name in {*self._expected(generation), *generation.flows()}:
            status = FlowStatus.read(generation.flow_folder(name))
            if status is None:
                found[name] = FlowSeen("not begun", None, (), {})
            elif status.state != "finished":  # a table that the sink keeps no more
                found[name] = FlowSeen(
                    state_of(status, holder),
                    status.last_error,
                    status.topics,
                    applied_offsets(generation.flow_folder(name)),
                    Question(self._deferred, generation, name),
                )
        return found

    def _expected(self, generation: Generation) -> set[str]:
        named, tables = self._defined(generation)
        # A table that has just joined a sink of whole tables: it is captured before its flow is there.
        statuses = (FlowStatus.read(generation.flow_folder(name)) for name in generation.flows()) if tables else ()
        read = {topic for status in statuses if status is not None for topic in status.topics}
        return {*named, *(table for table in tables if not read.issuperset(topics_of_table(self.pipeline, table)))}

    def _defined(self, generation: Generation) -> tuple[set[str], list[str]]:
        """The flows that a generation's views need, or its tables; read again when its definition has changed."""
        path = generation.folder / "definition.json"
        now, kept = stamp(path), self._definitions.get(generation.number)
        if kept is None or kept[0] != now:
            defined = as_defined(self.pipeline, generation)
            part = defined.sinks[self.sink]
            named = {flow_of(defined, self.sink, view) for view in part.view_names}
            tables = [] if part.view_names else named_tables(part)
            kept = self._definitions[generation.number] = (now, (named, tables))
        return kept[1]


def _sign(folder: Path, status: FlowStatus, holder: Holder | None, applied: Offsets) -> Any:
    told = (state_of(status, holder), status.batch_id, status.records, status.deferred, status.got_on)
    return (*told, stamp(folder / FILL), json.dumps(applied, sort_keys=True))


def _ids(generation: Generation) -> Mapping[str, str]:
    known = generation.known()
    return {} if known is None else known.topic_ids


def look_at(places: Mapping[str, Place]) -> dict[str, Seen]:
    """All of them; one that can't be looked at keeps only who waits for it."""
    found = {}
    for sink, place in places.items():
        try:
            found[sink] = place.look()
        except (HeadwaterError, OSError, ValueError, KeyError) as error:
            what = error.what if isinstance(error, HeadwaterError) else str(error)
            found[sink] = Seen((), hold=f"it can't be looked at: {what}")
    return found
