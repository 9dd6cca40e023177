"""A promotion that is under way: a part of the register (spark/disk/register.py)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc.ages import ago


@dataclass(frozen=True)
class Promotion:
    """A promotion that was begun: readers of some views may see either generation until it has ended.

    Attributes:
        number: the generation that readers are sent to.
        origin: the one that they come from.
        moving: readers may have been moved; before that the new generation comes as far as the one that they see.
    """

    number: int
    origin: int
    moving: bool = True


def promotion_of(register: Mapping[str, Any], after: float = 0.0) -> Promotion | None:
    """The one that a register tells of, if it was begun at least ``after`` seconds ago: with 0, always.

    One whose moment is still to come is of a clock that was put back since: who passed over it could begin a second.
    """
    begun = register.get("promoting")
    if begun is None or ago(begun["at"], time.time()) < after:
        return None
    # One that was begun by an earlier version does not say from where: from the living one.
    stages = {int(e["number"]): e["stage"] for e in register["generations"]}
    living = next((number for number, stage in stages.items() if stage == "living"), 1)
    number, origin = int(begun["number"]), int(begun.get("from", living))
    return Promotion(number, origin, bool(begun.get("moving", True))) if number in stages else None


def unmoved_of(register: Mapping[str, Any], after: float) -> int | None:
    """Where one goes that was begun more than ``after`` seconds ago and has moved nobody."""
    begun = promotion_of(register, after)
    return begun.number if begun is not None and not begun.moving else None
