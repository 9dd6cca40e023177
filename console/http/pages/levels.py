"""What colour a page gives to a judgement, and which comes first. Pure.

How something *is* was judged before (operations/status/), for every door alike: here is no second opinion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from operations.status.judgement import BAD, FlowFacts, Judgement, judge_flow

Level = Literal["bad", "warn", "busy", "idle", "good"]
# The worst first.
ORDER: tuple[Level, ...] = ("bad", "warn", "busy", "idle", "good")
_LEVELS: Mapping[str, Level] = {
    **dict.fromkeys(BAD, "bad"),
    "incomplete": "warn",
    "evolving": "busy",
    "filling": "busy",
    "starting": "busy",
    "paused": "idle",
    "unapplied": "idle",
    "well": "good",
}


def level_of(judgement: str, warning: str | None = None) -> Level:
    """Of a judgement; what is well, and will be trouble if nobody does anything, is worth a look."""
    level = _LEVELS[judgement]
    return "warn" if level == "good" and warning else level


def beside(state: str, error: str | None) -> Judgement:
    """How a generation is that readers do not see, by what its flows say: how old it is disturbs nobody."""
    return judge_flow(FlowFacts("", state, error=error, age=0.0), Judgement("well"))


def worst(levels: list[Level]) -> Level:
    """The worst of some; ``idle`` of none."""
    return min(levels, key=ORDER.index, default="idle")
