"""Judges the WAL that a slot keeps: how near the limit it is, and when it gets there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from typing import Any

from cdc.sizes import size_words, span_words
from connectors.wal.pins import MOST, Pin

# From which share of the limit on, the worst first. An hour's outage of a connector must not wake anybody, and who is
# woken must have time to do something.
LEVELS = (("over", 1.0), ("alarm", 0.8), ("warn", 0.5))
NONE = "none"
RANK = {NONE: 0, "warn": 1, "alarm": 2, "over": 3}
# A level is left only below this part of its share, or a slot that moves in steps would alarm again and again.
LEAVES_AT = 0.9
# Shorter than this nothing can be said: a slot that is well moves every 15 s or so, and WAL comes in bursts.
LEAST_SECONDS = 60.0
# What a quarter of an hour tells of a day, it does not tell of a month.
LONGEST_FORECAST_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class Sample:
    """How much WAL the slot made Postgres keep at one moment.

    Attributes:
        at: epoch seconds.
        retained: bytes.
    """

    at: float
    retained: int


@dataclass(frozen=True)
class Budget:
    """How the WAL that the slot keeps stands to what it may keep; the shape of ``source.wal`` in ``status --json``.

    Attributes:
        retained_bytes: WAL that the slot makes Postgres keep; None when that is not known, or there is no slot.
        budget_bytes: ``policy.wal_budget``.
        limit_bytes: the server's ``max_slot_wal_keep_size``; None when it has none, or does not answer.
        growth_bytes_per_second: of what is kept; 0 when it does not grow, None when that is not known.
        seconds_to_full: until the lesser of budget and limit, if it goes on like this; None when that is not known.
        level: ``none``, ``warn`` (from 50 % on), ``alarm`` (from 80 %) or ``over``; None when nothing is known.
        pinned_by: what keeps the slot from moving, the oldest first.
    """

    retained_bytes: int | None
    budget_bytes: int
    limit_bytes: int | None = None
    growth_bytes_per_second: float | None = None
    seconds_to_full: float | None = None
    level: str | None = None
    pinned_by: tuple[Pin, ...] = ()

    @property
    def full_bytes(self) -> int:
        """The lesser of budget and limit."""
        return self.budget_bytes if self.limit_bytes is None else min(self.budget_bytes, self.limit_bytes)

    @property
    def share(self) -> float | None:
        """Of what may be kept, how much is; 1 is full."""
        return None if self.retained_bytes is None else self.retained_bytes / self.full_bytes

    @property
    def held(self) -> list[str]:
        """What holds the slot, and what to do about it, a line each; of many the first ones, and how many more."""
        more = len(self.pinned_by) - MOST
        told = [f"{pin.words}: {pin.fix}" for pin in self.pinned_by[:MOST]]
        return told if more <= 0 else [*told, f"{more:,} more: `headwater status FILE --json` names them"]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "pinned_by": [asdict(pin) for pin in self.pinned_by]}

    def words(self, slot: str) -> str:
        """What is kept, of how much, and how long that will do."""
        name = "policy.wal_budget" if self.full_bytes == self.budget_bytes else "max_slot_wal_keep_size"
        kept = size_words(self.retained_bytes or 0)
        text = f"slot {slot} makes Postgres keep {kept} of WAL, {100 * (self.share or 0):.0f} % of {name}"
        text += f" ({size_words(self.full_bytes)})"
        if self.growth_bytes_per_second is not None and self.seconds_to_full:
            rate = size_words(self.growth_bytes_per_second * 60)
            text += f"; full in about {span_words(self.seconds_to_full)}, at {rate} a minute"
        return text


def judge(
    *,
    retained: int | None,
    budget: int,
    limit: int | None,
    samples: Sequence[Sample] = (),
    wal_status: str | None = None,
    pins: Sequence[Pin] = (),
    before: str | None = None,
) -> Budget:
    """The judgement that ``status``, ``check``, ``run`` and metrics share.

    Args:
        retained: bytes that the slot keeps now; None when not known.
        budget: bytes, of the policy.
        limit: bytes, of the server; None without one.
        samples: of the last minutes, in their order, the one of now among them.
        wal_status: the slot's, as Postgres says.
        pins: what holds the slot, the oldest first.
        before: the level that was told last, which is left a little later than it was reached.
    """
    if retained is None and wal_status != "lost":
        return Budget(None, budget, limit, pinned_by=tuple(pins))
    made = Budget(retained, budget, limit, pinned_by=tuple(pins))
    share = made.share or 0.0
    level = next((name for name, least in LEVELS if share >= least * (LEAVES_AT if name == before else 1)), NONE)
    if wal_status in ("unreserved", "lost"):  # the server's limit is passed: the next checkpoint may end the slot
        level = "over"
    rate = growth(samples)
    left = max(0, made.full_bytes - (retained or 0))
    seconds = 0.0 if level == "over" else left / rate if rate else None
    if seconds is not None and seconds > LONGEST_FORECAST_SECONDS:
        seconds = None
    return Budget(retained, budget, limit, rate, seconds, level, tuple(pins))


def growth(samples: Sequence[Sample]) -> float | None:
    """Bytes a second by which what is kept grows; 0 when it does not, None when that can't be told.

    What a slot keeps is a saw: it grows with every write and falls whenever the slot moves. Only what came after the
    last fall by half counts: a slot that is well falls so all the time, and nothing is said of it; one that moves, but
    too slowly, does not, and its teeth disappear in the median of the slopes between all pairs of samples (Theil-Sen).
    """
    start = 0
    for at in range(1, len(samples)):
        if samples[at].retained < samples[at - 1].retained / 2:
            start = at
    rising = samples[start:]
    if len(rising) < 3 or rising[-1].at - rising[0].at < LEAST_SECONDS:
        # It has moved a moment ago: it does not grow as long as it keeps less than it did before that.
        seen = samples[-1].at - samples[0].at if samples else 0.0
        return 0.0 if start and seen >= LEAST_SECONDS and rising[-1].retained <= samples[start - 1].retained else None
    slopes = [(b.retained - a.retained) / (b.at - a.at) for a, b in combinations(rising, 2) if b.at > a.at]
    return max(median(slopes), 0.0)
