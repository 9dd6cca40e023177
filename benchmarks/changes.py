"""How a side takes changes, once its virtual machines have compiled what they run: by the clock and by the processor.

Of several rounds the median counts, for a single one differed by a factor of two on a machine that others use too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from statistics import mean, median

from benchmarks.peers.measuring import CHECK_SECONDS, PATIENCE_SECONDS, Documents, Rate
from benchmarks.peers.workload import Workload
from benchmarks.processor import Processor, since
from benchmarks.results import quantile

# Rounds of updates, and of fan-outs, of which the median counts.
ROUNDS = 5
# Rounds of updates that are not measured. After two, our rates still rose at the fifth measured round; after eight, the
# compilers of four virtual machines that had been started a few minutes before were a quarter of our processor time.
WARM_UP = 20
# No merge for so long: all of them have ended.
MERGED_SECONDS = 5.0


@dataclass(frozen=True)
class Changed:
    """What a side did: documents a second, CPU seconds of all its processes for a million, and single commits."""

    update_docs_s: float
    fanout_docs_s: float
    update_cpu_s: float
    fanout_cpu_s: float
    idle_p50_s: float
    idle_p99_s: float

    def with_after(self, later: Changed) -> Changed:
        """The means of these and of those that the same side reached later, in its second turn."""
        return Changed(*(mean(pair) for pair in zip(astuple(self), astuple(later), strict=True)))


def changed(
    documents: Documents,
    workload: Workload,
    processor: Processor,
    progress: Callable[[str], None],
    warm_up: int = WARM_UP,
    fanouts: int = ROUNDS,
) -> Changed:
    """Updates, fan-outs and single commits, in this order.

    Args:
        documents: the side's.
        workload: what changes them.
        processor: counts for the side's processes.
        progress: called with one line at a time.
        warm_up: rounds of updates before the first that counts.
        fanouts: how many count; before several, one is made that does not.
    """
    for _ in range(warm_up):  # both sides are measured at work, not while their virtual machines still compile
        workload.updates(documents)
    if fanouts > 1:
        workload.fanout(documents)
    progress(f"merges that were left over took {_merged(documents):.1f} s")
    updated = rounds("updates", lambda: workload.updates(documents), processor, progress)
    renamed = rounds("fan-out", lambda: workload.fanout(documents), processor, progress, fanouts)
    progress(f"merges that were left over took {_merged(documents):.1f} s")  # at rest is when nothing is left to do
    waits = workload.idle(documents)
    p50, p99 = quantile(waits, 0.5), quantile(waits, 0.99)
    progress(f"idle: p50 {p50:.3f} s, p99 {p99:.3f} s")
    return Changed(updated[0], renamed[0], updated[1], renamed[1], p50, p99)


def _merged(documents: Documents) -> float:
    """Wait until the index has merged what was left of the work before, which is no cost of the next; seconds of it.

    Who builds a million documents in half of the time has more of it left.
    """
    began = last = time.perf_counter()
    while time.perf_counter() - last < MERGED_SECONDS and time.perf_counter() - began < PATIENCE_SECONDS:
        if documents.merges():
            last = time.perf_counter()
        time.sleep(CHECK_SECONDS)
    return last - began


def rounds(
    what: str, work: Callable[[], Rate], processor: Processor, progress: Callable[[str], None], count: int = ROUNDS
) -> tuple[float, float]:
    """Median documents a second and median CPU seconds a million of several rounds."""
    rates = list[float]()
    millions = list[Mapping[str, float]]()
    for _ in range(count):
        before = processor.seconds()
        rate = work()
        used = since(before, processor.seconds())
        share = {name: seconds / rate.documents * 1e6 for name, seconds in used.items()}
        rates.append(rate.docs_s)
        millions.append(share)
    each = ", ".join(f"{rate:,.0f}" for rate in rates)
    total = median(sum(share.values()) for share in millions)
    progress(f"{what}: {each} documents/s; {total:,.0f} CPU seconds a million: {_by_name(millions)}")
    return median(rates), total


def _by_name(millions: list[Mapping[str, float]]) -> str:
    names = sorted(millions[0], key=lambda name: -millions[0][name])
    return ", ".join(f"{name} {median(share.get(name, 0.0) for share in millions):,.0f}" for name in names)
