"""What was seen of a pipeline in the last hour, and the rates between two looks. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# Between two samples that are kept, and for how long they are.
EVERY_SECONDS, HOUR = 5.0, 3_600
# Rates are over this time: a flow's counts move once a batch, and a batch of a fill takes seconds.
RATE_SECONDS = 15.0


@dataclass(frozen=True)
class Sample:
    """One sink at one moment.

    Attributes:
        at: epoch seconds.
        behind: records that it has not applied; None if not known.
        age: seconds since the commit up to which its readers have everything; None if not known.
        read: offsets that it has read, over all topics.
        written: what the sink has been told to write or delete since its process started.
        ends: offsets of the log's ends of the topics that it reads; None if not known.
        state: of the sink.
    """

    at: float
    behind: int | None
    age: float | None
    read: int
    written: int
    ends: int | None
    state: str


def age_of(sink: Mapping[str, Any], promised: float | None) -> float | None:
    """How old what a sink's readers see is, in seconds; None if nobody knows. Pure.

    Args:
        sink: one of ``status --json``'s.
        promised: as who waits for a write is told it: nothing of a sink that is paused, for which nobody is to wait,
            though its readers go on to see what they saw.
    """
    return sink["age_seconds"] if promised is None and sink["paused"] else promised


def sample_of(sink: Mapping[str, Any], age: float | None, at: float) -> Sample:
    """A sample of one of ``status --json``'s sinks."""
    read = sum(end for flow in sink["flows"] for parts in flow["offsets"].values() for end in parts.values())
    written = sum(flow[name] for flow in sink["flows"] for name in ("written", "deleted", "stale"))
    behind = sink["lag_events"]
    return Sample(at, behind, age, read, written, None if behind is None else read + behind, sink["state"])


class History:
    """Samples of one sink."""

    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=int(HOUR / EVERY_SECONDS))
        self._recent: deque[Sample] = deque(maxlen=64)

    def add(self, sample: Sample) -> None:
        """One more; kept for an hour if the last one that is has grown old enough.

        Those that are still to come are forgotten: the clock was put back.
        """
        self._recent.append(sample)
        while self._kept and self._kept[-1].at > sample.at:
            self._kept.pop()
        if not self._kept or sample.at - self._kept[-1].at >= EVERY_SECONDS * 0.9:
            self._kept.append(sample)

    def __iter__(self) -> Iterator[Sample]:
        return iter(list(self._kept))

    def rates(self) -> dict[str, float | None]:
        """Records a second over the last while: ``log`` (the topics grew), ``read``, ``written``; None if not known."""
        recent = list(self._recent)
        return {
            "log": _rate(recent, "ends"),
            "read": _rate(recent, "read"),
            "written": _rate(recent, "written"),
        }

    def to_dict(self) -> dict[str, list[Any]]:
        """By columns, as a plot takes it; ``at`` in epoch seconds, ``age`` in seconds."""
        kept = list(self._kept)
        return {
            "at": [round(one.at, 1) for one in kept],
            "age": [None if one.age is None else round(one.age, 2) for one in kept],
            "behind": [one.behind for one in kept],
            "state": [one.state for one in kept],
        }


def _rate(samples: list[Sample], name: str) -> float | None:
    """What was gained over the time; what goes back (a new process, another generation) does not count."""
    if not samples:
        return None
    since, until = samples[-1].at - RATE_SECONDS, samples[-1].at
    found: list[tuple[float, int | None]] = [
        (one.at, getattr(one, name)) for one in samples if since <= one.at <= until
    ]
    known = [(at, count) for at, count in found if count is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    gained = sum(max(after - before, 0) for (_, before), (_, after) in pairwise(known))
    return round(gained / (known[-1][0] - known[0][0]), 2)
