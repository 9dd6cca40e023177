"""The one judgement of how a sink and a flow are, for every door: `status`, probes, metrics, alarms. Pure.

What a flow says of itself is not enough: it says `running` beside a connector that is dead, and while its server
hangs. So its word counts only for bad news; good news needs a frontier that moves (operations/freshness/).

Of the source it is operations/status/source_judgement.py.

Docs: docs/operations.md, "How a sink is".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cdc.pipeline.views import SHARED_FLOW
from cdc.wording import split
from operations.freshness.hanging import hidden
from operations.state.pausing import way_on

# The worst first: a sink is as its worst flow.
Name = Literal[
    "failed",
    "stopped",
    "stalled",
    "retrying",
    "behind",
    "paused",
    "unapplied",
    "incomplete",
    "evolving",
    "filling",
    "starting",
    "well",
]
JUDGEMENTS: tuple[Name, ...] = get_args(Name)
# Somebody should know; the others are well, pass by themselves, or were asked for.
BAD: frozenset[Name] = frozenset(("failed", "stopped", "stalled", "retrying", "behind"))

# A flow that does not get on for so long, though there is something to do, hangs. Progress is seen as a batch ends, so
# that three times the newest batch is added; a slice of a fill takes a minute on a slow machine.
WATCHDOG_SECONDS, FILL_WATCHDOG_SECONDS = 120.0, 600.0
BATCHES = 3.0
# In a database at rest the heartbeat moves the slot: what was committed after one is confirmed by the next, and the
# topics are looked at a second later. Three of them, and what a busy machine adds.
HEARTBEATS, SLACK_SECONDS = 3.0, 15.0
# A trigger waits once for the next, and works until the one after.
TRIGGERS = 2.0


@dataclass(frozen=True)
class Judgement:
    """How something is.

    Attributes:
        judgement: one of ``JUDGEMENTS``.
        cause: why, in words; None if it is well.
        remedy: what to do about it; None for nothing.
    """

    judgement: Name
    cause: str | None = None
    remedy: str | None = None

    @property
    def bad(self) -> bool:
        """Somebody should know."""
        return self.judgement in BAD


@dataclass(frozen=True)
class FlowFacts:
    """What is known of a flow.

    Attributes:
        state: what its process says (spark/disk/status.py), or ``dead``, or ``never run``.
        error: the same process's last error.
        age: of what it has applied, in seconds, measured from the commits; None when not known.
        limit: above which age it is behind.
        behind: records that wait for it; None when not known.
        still: seconds since it was last seen to get on, or to have nothing to do; None when nobody looks.
        deferred: documents that it has still to write.
        watched: seconds since a process began to look at its age; None if none does.
        hold: what keeps its age from falling, besides records.
        batch_seconds: how long its newest batch took.
        trigger_seconds: between two of its batches.
        uncommitted: which topic and partition a transaction hides from it that does not end.
    """

    flow: str
    state: str
    error: str | None = None
    age: float | None = None
    limit: float = 30.0
    behind: int | None = None
    still: float | None = None
    watched: float | None = None
    deferred: int = 0
    hold: str | None = None
    batch_seconds: float = 0.0
    trigger_seconds: float = 0.0
    uncommitted: str | None = None

    @property
    def to_do(self) -> bool:
        """Whether anything waits for it."""
        return bool(self.behind) or bool(self.deferred) or self.hold is not None or self.state in _NOT_YET

    @property
    def watchdog(self) -> float:
        """After how many seconds without progress it hangs."""
        least = FILL_WATCHDOG_SECONDS if self.state == "filling" else WATCHDOG_SECONDS
        return least + BATCHES * (self.batch_seconds + self.trigger_seconds)


@dataclass(frozen=True)
class SinkFacts:
    """What is known of a sink, of the generation that readers see.

    Attributes:
        state: of the generation where it has no flow yet: ``never run`` or ``starting``.
        paused: since when, by whom and why.
        erasing: it was an erasure that paused it, which may be at work.
        left: it was one that is at work no more.
        lost: how far it is with being made again; None if nothing was lost.
        unmade: why the last attempt at that has failed; None if none has.
        unapplied: a process runs the pipeline by a file without it, and nobody has applied the one that has it.
        refused: why no process runs it.
        cut: where readers are being sent from, and to, that should be there by now; None if nobody sends them.
        away: why its server does not answer; None if it does, or nobody asks.
        astray: which view's readers see what the sink does not keep; None if none do, or nobody asks.
        evolving: what is under way because its tables were altered; None for nothing.
        waits: that waits for `headwater apply`.
        letters: that stand: rows that readers see as they were before, or not at all.
    """

    state: str = "never run"
    paused: str | None = None
    erasing: bool = False
    left: bool = False
    lost: str | None = None
    unmade: str | None = None
    unapplied: bool = False
    refused: str | None = None
    cut: str | None = None
    away: str | None = None
    astray: str | None = None
    evolving: str | None = None
    waits: bool = False
    letters: int = 0


_NOT_YET = ("starting", "filling")
# A flow that has said so knows more of it than who only knocks.
_KNOWN = ("failed", "stopped", "retrying")
RUN = "`headwater run FILE`"
APPLY = "`headwater apply FILE`"
_CUT = (
    "if whoever began it was killed: a `headwater run` that is alive ends it after two minutes, and"
    " `headwater promote FILE SINK --generation N` of either at once"
)
WELL = Judgement("well")
_GONE = {
    "dead": "its process is gone without a word, or hangs",
    "stopped": "its process has ended: it was told to, or the log has its last words",
    "never run": "no process has ever run it",
}


def limit_of(heartbeat_seconds: float, trigger_seconds: float = 0.0) -> float:
    """Above which age (seconds) something is behind.

    Args:
        heartbeat_seconds: ``source.heartbeat_seconds``.
        trigger_seconds: between two batches of the sink.
    """
    return HEARTBEATS * heartbeat_seconds + TRIGGERS * trigger_seconds + SLACK_SECONDS


def judge_flow(facts: FlowFacts, source: Judgement) -> Judgement:  # noqa: PLR0911 - one line a case, the worst first
    """How a flow is.

    Args:
        facts: of the flow.
        source: what was judged of the source: what keeps the log from growing keeps all flows.
    """
    gone = _GONE.get(facts.state)
    if gone is not None:
        return Judgement("stopped", gone + (f"; its last error: {_first(facts.error)}" if facts.error else ""), RUN)
    if facts.state == "failed":
        remedy = _way_out(facts.error) or "the log of `run` has the whole"
        return Judgement("failed", _first(facts.error), remedy)
    if facts.state == "retrying":
        return Judgement("retrying", _first(facts.error), _way_out(facts.error))
    if facts.uncommitted is not None and facts.to_do and (facts.age is None or facts.age > facts.limit):
        return Judgement("stalled", *hidden(facts.uncommitted))
    if facts.to_do and facts.still is not None and facts.still > facts.watchdog:
        what = _waiting(facts) if facts.behind else facts.hold or "there is something to do"
        cause = f"it says that it is {facts.state}, and has not got on for {facts.still:,.0f} s: {what}"
        return Judgement("stalled", cause, _STALLED[facts.state == "starting"])
    if facts.state in _NOT_YET:
        return Judgement("filling" if facts.state == "filling" else "starting", facts.hold or _BUSY[facts.state])
    if facts.age is not None and facts.age <= facts.limit:
        return WELL
    return _old(facts, source)


_STALLED = (
    "look at the sink's server; then start `headwater run` again",
    # Of many flows the last ones begin late on a small machine: nothing of a sink is known then.
    "it is being started: look at how busy this machine is, then at the sink's server",
)
_BUSY = {"filling": "what readers see is not complete yet", "starting": "it has not begun to read yet"}


def _old(facts: FlowFacts, source: Judgement) -> Judgement:
    """Why a flow that says it is running has not everything of a moment ago."""
    if source.judgement == "filling":
        return Judgement("filling", source.cause)
    if facts.age is None and facts.watched is None:
        return Judgement("behind", "the `headwater run` at work does not tell how old it is", "start it again")
    waits = _waiting(facts) if facts.behind else facts.hold or "no newer commit is known to be in the log"
    if facts.age is None and facts.behind and not source.bad and source.judgement != "paused":
        # It has never been at the log's end, and gets on, else it would be stalled: what was there once keeps its age.
        return Judgement("filling", f"{_BUSY['filling']}: {waits}")
    if facts.age is None and facts.watched is not None and facts.watched <= facts.limit and not source.bad:
        return Judgement("starting", "nobody knows yet how old what readers see is")
    # The age stands beside the cause wherever that is shown, and is the sink's: a flow's own would be another one.
    unknown = "nobody knows how old what readers see is: " if facts.age is None else ""
    if source.bad or source.judgement == "paused":
        return Judgement("behind", f"{unknown}{source.cause}", source.remedy)
    return Judgement("behind", f"{unknown}{waits}")


def _waiting(facts: FlowFacts) -> str:
    """Of one flow of several, whose sum is the sink's."""
    return f"{facts.behind:,} records wait" + ("" if facts.flow == SHARED_FLOW else f" for {facts.flow}")


def _resumed(facts: SinkFacts) -> str:
    way = "`headwater resume FILE SINK`"
    if facts.left:
        return way_on(way)
    # Resuming beside an erasure that is alive would have both write to the same tables.
    return "nothing: it goes on when the erasure ends" if facts.erasing else way


def judge_sink(facts: SinkFacts, flows: Sequence[Judgement]) -> Judgement:  # noqa: PLR0911 - one line a case
    """How a sink is: as its worst flow, unless something is known of the whole.

    Args:
        facts: of the sink.
        flows: what was judged of its flows.
    """
    if facts.paused is not None:
        return Judgement("paused", f"paused {facts.paused}", _resumed(facts))
    if facts.unapplied:
        # What runs is as well as before: a file that was only saved is to change nothing, and so raises no alarm.
        return Judgement("unapplied", "the `headwater run` that is alive goes by a file without it", APPLY)
    if facts.lost is not None:
        return _lost(facts.lost, facts.unmade)
    if facts.refused is not None:
        return Judgement("failed", _first(facts.refused), _way_out(facts.refused))
    if not flows:
        if facts.state == "starting":
            return Judgement("starting", "a process has it, and has not begun")
        return Judgement("stopped", _GONE["never run"], RUN)
    worst = min(flows, key=lambda one: JUDGEMENTS.index(one.judgement))
    filling = next((one for one in flows if one.judgement == "filling"), None)
    if filling is not None and worst.judgement == "behind" and worst.remedy is None:
        # The others have the machine while it is filled; if that does not get on, it is stalled, which is worse.
        worst = Judgement("filling", f"{filling.cause}; meanwhile of another flow {worst.cause}")
    if facts.cut is not None and worst.judgement not in ("failed", "stopped"):
        # A cache takes no writes as long as its keys are renamed: whatever its flows say, that is why.
        return Judgement(worst.judgement if worst.bad else "evolving", facts.cut, _CUT)
    if facts.away is not None and worst.judgement not in _KNOWN:
        return Judgement("retrying", _first(facts.away), "start its server; what waits is written then by itself")
    if facts.astray is not None:
        return Judgement("failed", facts.astray, "lead the alias back; `headwater generations FILE` says what is kept")
    if facts.evolving is not None and worst.judgement in ("behind", "evolving", "filling", "starting", "well"):
        more = f"; {_lacking(facts.letters)}" if facts.letters else ""
        return Judgement("evolving", facts.evolving + more, APPLY if facts.waits else None)
    if facts.letters and worst.judgement == "well":
        return Judgement("incomplete", _lacking(facts.letters), "`headwater letters FILE list --sink SINK` says why")
    return worst


def _lost(progress: str, unmade: str | None) -> Judgement:
    """Once an attempt has failed the next ones may fail as well, for ever, and readers have nothing meanwhile."""
    if unmade is None:
        return Judgement("filling", f"what it kept was lost, and is made again: {progress}")
    cause = f"what it kept was lost, and could not be made again: {_first(unmade)}"
    return Judgement("retrying", cause, _way_out(unmade) or "remove the cause; `run` begins again and again")


def _lacking(letters: int) -> str:
    return f"{letters:,} dead letter{'s' * (letters != 1)}: rows that readers see as they were before, or not at all"


def _first(text: str | None) -> str:
    return split(text)[0] or "no reason was given"


def _way_out(text: str | None) -> str | None:
    return split(text)[1] or None
