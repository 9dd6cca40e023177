"""A generation held against Postgres before readers see it: the comparison, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.pipeline import Pipeline
from cdc.saying import Say

# How long the new generation may stand still while verification waits for it; as long as it gets on, it is waited for.
SETTLE_SECONDS = 60


def compare(say: Say, pipeline: Pipeline, sink: str, number: int) -> dict[str, Any]:
    """Hold a generation against Postgres, the shape of `verify --json`: by a process of its own, because who keeps the
    generation up to date has no time for it.

    Raises:
        HeadwaterError: it can't be compared, or not all of it.
    """
    from operations.run.machines import alone
    from operations.verify.report import verified
    from operations.verify.verifier import Asked

    return verified(alone(pipeline, None), Asked([sink], SETTLE_SECONDS, generation=number, whole=True), say)


def judged(report: Mapping[str, Any], say: Say) -> tuple[bool, bool]:
    """What a comparison says of a generation, told a line a view.

    Args:
        report: the shape of `verify --json`.
        say: told what differs.

    Returns:
        whether it equals Postgres; whether all that differs may only be late, because the generation was not seen to
        come as far as what it was held against.
    """
    differing = [view for sink in report["sinks"] for view in sink["views"] if view["differences"]]
    for view in differing:
        late = "" if view["caught_up"] else ", and may only be late: it was not seen to catch up"
        say(f"view {view['view']}: {view['differences']:,} of {view['expected']:,} rows differ{late}")
    return bool(report["equal"]), bool(differing) and not any(view["caught_up"] for view in differing)
