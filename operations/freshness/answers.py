"""What is answered to who waits for a write: for each sink, and for all of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

# The worst last: an answer for several sinks is the worst of theirs.
State = Literal["visible", "timeout", "rejected", "aborted", "unknown"]
STATES: tuple[State, ...] = ("visible", "timeout", "rejected", "aborted", "unknown")

# How far a write has come: its transaction, Debezium, the sink's flows, Elasticsearch's refresh.
Stage = Literal["transaction", "log", "sink", "refresh", "done"]


@dataclass(frozen=True)
class SinkAnswer:
    """Of one sink.

    Attributes:
        state: ``visible``: readers of the promoted generation find the write, by the reading that was asked for.
        stage: how far it has come.
        generation: the one that readers see; None while that was not looked at.
        behind: records that its flows have still to apply before the write is certainly applied; None if not known.
        reason: why not yet, or never; None when visible.
    """

    state: State
    stage: Stage
    generation: int | None = None
    behind: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Answer:
    """Of a wait.

    Attributes:
        state: the worst of the sinks'.
        sinks: sink -> its answer; empty if the write's own fate decides.
        reason: the fate, in words, if that decides.
        lsn: the place in the source's log that was waited for, in bytes; None while the transaction is not committed.
        seconds: how long it took.
    """

    state: State
    sinks: Mapping[str, SinkAnswer]
    reason: str | None
    lsn: int | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The shape of ``POST /v1/wait``."""
        from cdc.records.position import format_lsn

        return {
            "state": self.state,
            "reason": self.reason,
            "lsn": None if self.lsn is None else format_lsn(self.lsn),
            "waited_ms": round(self.seconds * 1000, 1),
            "sinks": {name: vars(one) for name, one in sorted(self.sinks.items())},
        }


def of_all(answers: Sequence[Answer]) -> Answer:
    """What is answered of several writes: the worst one's answer. Pure.

    Args:
        answers: of each of them; at least one.
    """
    # What was rolled back is nothing to wait for, unless it is all there is.
    counted = [one for one in answers if one.state != "aborted"] or answers
    return replace(max(counted, key=lambda one: STATES.index(one.state)), seconds=max(one.seconds for one in answers))


def worst(states: list[State]) -> State:
    """The state of several together; nothing to wait for is visible. Pure."""
    return max(states, key=STATES.index, default="visible")
