"""One who waits for a write, and how far it has come for him."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from cdc.token import History, WriteToken, differs
from connectors.ledger import LedgerEntry
from operations.freshness.answers import Answer, SinkAnswer, Stage, State, worst
from operations.freshness.log import Look
from operations.freshness.place import Reach
from operations.freshness.refresh import Refresher


@dataclass
class Target:
    """One sink of one wait.

    Attributes:
        stage: how far the write has come there.
        tickets: generation -> number of the refresh that is waited for; of all generations that readers may see.
        verdict: what ends it otherwise than by being visible, and why.
    """

    stage: Stage = "sink"
    generation: int | None = None
    behind: int | None = None
    reason: str | None = None
    tickets: dict[int, int] = field(default_factory=dict)
    verdict: tuple[State, str] | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.stage == "done" or self.verdict is not None

    def follow(self, reach: Reach, refresher: Refresher, sink: str, *, search: bool) -> bool:
        """Take in a look; whether the write has just been applied by all generations that readers may see."""
        if self.ended:
            return False
        self.generation = reach.generations[-1] if reach.generations else None
        self.behind, self.reason = reach.behind, reach.reason
        if not reach.there:
            self.stage, self.tickets = "sink", {}
            return False
        if self.tickets.keys() != set(reach.generations):
            self.stage = "refresh"
            self.tickets = {number: refresher.ask(sink, number, search=search) for number in reach.generations}
            return True
        if all(refresher.done(sink, number, ticket, search=search) for number, ticket in self.tickets.items()):
            self.stage = "done"
        else:
            errors = (refresher.error(sink, number, search=search) for number in self.tickets)
            self.reason = next((error for error in errors if error), None)
        return False

    def answer(self) -> SinkAnswer:
        """As far as it has come."""
        if self.verdict is not None:
            return SinkAnswer(self.verdict[0], "done", self.generation, 0, self.verdict[1])
        state: State = "visible" if self.stage == "done" else "timeout"
        return SinkAnswer(state, self.stage, self.generation, self.behind, None if state == "visible" else self.reason)


@dataclass
class Wait:
    """Somebody who waits.

    Attributes:
        token: of the write; None for who waits for what was committed before ``lsn``.
        views: only these; all if empty.
        search: whether a search must find it; a look-up by its id finds it earlier.
        lsn: where in the source's log the write is, at the latest; None while that is not known.
        history: of the database, in which that place is; None where a token says it, or nobody has looked.
        entry: the topics' ends that bound it; None while the slot has not confirmed it.
        ended: gets the answer.
        known: done once it is known whether readers see it now: it is answered, or something other than the moment that
            all takes is in its way.
        trouble: why it goes no further, of all sinks.
    """

    token: WriteToken | None
    sinks: Sequence[str]
    views: Collection[str] = ()
    search: bool = True
    since: float = field(default_factory=time.monotonic)
    lsn: int | None = None
    entry: LedgerEntry | None = None
    ended: Future[Answer] = field(default_factory=Future)
    known: Future[None] = field(default_factory=Future)
    targets: dict[str, Target] = field(default_factory=dict)
    trouble: str | None = None
    history: History | None = None

    def __post_init__(self) -> None:
        self.targets = {sink: Target() for sink in self.sinks}

    def anew(self) -> None:
        """Wait from the beginning: the place that was waited for is of another history of the log."""
        self.lsn = self.entry = None
        self.targets = {sink: Target() for sink in self.sinks}

    def renew(self) -> None:
        """Look at the topics' ends again: a table was still being read, or a generation reads more of them now."""
        self.entry = None

    def stop_at(self, trouble: str) -> None:
        """It goes no further for now, in any sink."""
        self.trouble = trouble
        self._know()

    def so_far(self) -> Answer:
        """The answer if its time is over now."""
        early: Stage = "transaction" if self.lsn is None else "log"
        answers = {
            sink: target.answer()
            if target.ended or target.stage != "sink" or target.reason or self.entry is not None
            else SinkAnswer("timeout", early, None, None, self.trouble)
            for sink, target in self.targets.items()
        }
        return self._answer(worst([one.state for one in answers.values()]), answers, self.trouble)

    def end(self, state: State, reason: str) -> None:
        """Answer for all sinks."""
        self.finish(self._answer(state, {}, reason))

    def end_if_done(self) -> None:
        """Answer once each sink has it, or never will."""
        if all(one.ended for one in self.targets.values()):
            self.finish(self.so_far())
        elif all(one.reason is not None for one in self.targets.values() if not one.ended):
            self._know()

    def _answer(self, state: State, sinks: dict[str, SinkAnswer], reason: str | None) -> Answer:
        return Answer(state, sinks, reason, self.lsn, time.monotonic() - self.since)

    def finish(self, answer: Answer) -> None:
        """Answer, unless that was done."""
        with suppress(InvalidStateError):  # its time was over at this very moment, or it was answered
            self.ended.set_result(answer)
        self._know()

    def _know(self) -> None:
        with suppress(InvalidStateError):
            self.known.set_result(None)


def judge(wait: Wait, look: Look) -> None:
    """What the database says of the write itself; where it can't know, nothing is promised."""
    if look.history is None:
        return wait.end("unknown", "the database is a standby, or `headwater apply` has not been run")
    if wait.token is None:
        if wait.history is not None and differs(wait.history, look.history):
            wait.anew()
        wait.history = look.history
        wait.lsn = look.standing.insert_lsn if wait.lsn is None else wait.lsn
        return None
    why = differs(wait.token.history, look.history)
    if why is not None:
        wait.end("unknown", why)
    elif wait.token.kind == "lsn":
        if wait.token.value > look.standing.insert_lsn:
            wait.end(
                "unknown", "the source's log does not go as far: it was put back, or the write was lost in a crash"
            )
        wait.lsn = wait.token.value
    elif wait.lsn is None:
        _judge_transaction(wait, look, wait.token.value)
    return None


def _judge_transaction(wait: Wait, look: Look, number: int) -> None:
    match look.standing.fates.get(number):
        case "committed":
            wait.lsn = look.standing.insert_lsn
        case "aborted":
            wait.end("aborted", "the transaction was rolled back")
        case "unknown":
            wait.end("unknown", "the database does not know what became of the transaction")
        case _:
            wait.stop_at("the transaction is in progress")
