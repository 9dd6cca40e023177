"""What was seen of a pipeline in the last hour, and the rates between two looks. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from operations.status.sinks import read_offsets

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
        read: offsets that it has read, over all topics; while a joined view is filled, of that.
        written: what the sink has been told to write or delete since its process started.
        ends: offsets of the log's ends of the topics that it reads; None if not known.
        state: of the sink.
        counters: whose counts these are: generation, and of each flow its process, its topics and whether it is filled.
            From one to another they jump, and nothing was read or written for it.
    """

    at: float
    behind: int | None
    age: float | None
    read: int
    written: int
    ends: int | None
    state: str
    counters: tuple[Any, ...] = ()


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
    flows = sink["flows"]
    read = sum(read_offsets(flow) for flow in flows)
    filled = sum(flow["fill"]["done"] for flow in flows if flow["fill"])
    written = sum(flow[name] for flow in flows for name in ("written", "deleted", "stale"))
    of = [(flow["flow"], flow["pid"], sorted(flow["offsets"]), bool(flow["fill"])) for flow in flows]
    behind = sink["lag_events"]
    ends = None if behind is None else read + behind
    return Sample(at, behind, age, read + filled, written, ends, sink["state"], (sink["generation"], of))


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
            # Rates are of the newest samples alone; of hundreds of flows it would be 100 MB an hour for each sink.
            self._kept.append(replace(sample, counters=()))

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
    """What was gained over the time in which the same counted; what goes back (a flow began anew) does not count."""
    if not samples:
        return None
    since, until = samples[-1].at - RATE_SECONDS, samples[-1].at
    known = [one for one in samples if since <= one.at <= until and getattr(one, name) is not None]
    pairs = [(before, after) for before, after in pairwise(known) if before.counters == after.counters]
    seconds = sum(after.at - before.at for before, after in pairs)
    if seconds <= 0:
        return None
    gained: int = sum(max(getattr(after, name) - getattr(before, name), 0) for before, after in pairs)
    return round(gained / seconds, 2)
