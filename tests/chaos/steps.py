"""Which faults there are, and in which order a seed deals them. Pure: the same seed gives the same steps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# The parts of `headwater run`: its own Python, the JVM that it starts, and one of the JVM's Python workers.
RUNNER = ("run", "jvm", "worker")
SERVERS = ("kafka", "connect", "postgres", "elasticsearch", "redis-cache", "redis-store")
# Wires that pass the TCP proxy; Kafka's clients are told the broker's own address and go past it.
LINKS = ("elasticsearch", "redis-cache", "redis-store", "postgres")
MODES = ("closed", "deaf", "slow")
# How long a process stands still or a wire is cut. A lease expires after 20 s, a socket's patience is 30 s, Kafka's and
# Postgres's sessions end after 45 to 60 s: some are shorter, some longer.
FROZEN_SECONDS = (5, 15, 35, 90)
CUT_SECONDS = (5, 15, 40)
DOWN_SECONDS = (1, 5, 20)


@dataclass(frozen=True)
class Step:
    """One fault.

    Attributes:
        kind: see ``DECK``.
        target: a process, a server or a wire.
        detail: a wire's mode, or what is lost.
        seconds: how long it lasts.
        pause: seconds of quiet before it.
    """

    kind: str
    target: str
    detail: str = ""
    seconds: int = 0
    pause: float = 2.0

    def __str__(self) -> str:
        """As ``CHAOS_STEPS`` takes it."""
        return ":".join(part for part in (self.kind, self.target, self.detail, str(self.seconds)) if part)

    @classmethod
    def parse(cls, text: str) -> Step:
        """The step that ``str`` gave; seconds may be left out.

        Raises:
            ValueError: there is no such step.
        """
        *words, last = text.strip().split(":")
        seconds = int(last) if last.isdigit() else 0
        parts = words if last.isdigit() else [*words, last]
        kind, target, detail = (*parts, "", "", "")[:3]
        if (kind, target, detail) not in {(card.kind, card.target, card.detail) for card in DECK}:
            raise ValueError(f"no such step: {text}; there are {', '.join(sorted(map(str, DECK)))}")
        return cls(kind, target, detail, seconds)


# Every fault once. `held`: a sink's wire is deaf until the log has been compacted under the batch that waits for it,
# then `run` is killed. `compacted`: `run` is killed right after the cleaner has run. `zombie`: `run` with all its
# processes stands still, another one takes over, the first wakes up.
DECK: tuple[Step, ...] = (
    *(Step("kill", target) for target in (*RUNNER, *SERVERS)),
    *(Step("freeze", target) for target in (*RUNNER, *SERVERS)),
    *(Step("cut", link, mode) for link in LINKS for mode in MODES),
    *(Step("held", link) for link in ("elasticsearch", "redis-cache", "redis-store")),
    Step("compacted", "run"),
    Step("zombie", "run"),
    Step("lose", "redis-cache", "everything"),
    Step("lose", "redis-store", "everything"),
    Step("lose", "redis-store", "last-second"),
)
_SECONDS = {"kill": DOWN_SECONDS, "freeze": FROZEN_SECONDS, "cut": CUT_SECONDS, "held": (20, 30), "zombie": (25, 45)}


def schedule(seed: int) -> Iterator[Step]:
    """Steps without end: the whole deck in an order of the seed's, then again in another."""
    rng = random.Random(seed)
    while True:
        for card in rng.sample(DECK, len(DECK)):
            seconds = rng.choice(_SECONDS.get(card.kind, (0,)))
            yield Step(card.kind, card.target, card.detail, seconds, round(rng.uniform(1, 6), 1))


def chosen(text: str, seed: int) -> Iterator[Step]:
    """The steps that ``CHAOS_STEPS`` names, once; the seed's if it is empty."""
    return iter([Step.parse(part) for part in text.split(",")]) if text else schedule(seed)


def first(seed: int, count: int) -> Sequence[Step]:
    """The first steps of a seed."""
    return list(itertools.islice(schedule(seed), count))
