"""What a stretch of work costs, process by process: CPU seconds and memory, as the kernel counts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.support.background import Background

# A process that ends between two looks loses what it used since the last.
LOOK_SECONDS = 0.5

Group = Callable[[], Sequence[psutil.Process]]


@dataclass
class Cost:
    """CPU seconds, and the most memory at one look (MiB; shared pages divided among those that share them)."""

    cpu_s: float = 0.0
    peak_mib: float = 0.0


@dataclass
class Costs:
    """Watches groups of processes for as long as the block takes.

    Attributes:
        groups: name -> its processes now; asked at every look, because processes come and go.
        found: name -> cost, when the block has ended.
    """

    groups: Mapping[str, Group]
    found: dict[str, Cost] = field(default_factory=dict)

    def __enter__(self) -> Costs:
        self._first: dict[tuple[str, int, float], float] = {}
        self._last: dict[tuple[str, int, float], float] = {}
        self.found = {name: Cost() for name in self.groups}
        self._look(begun=True)
        self._beside = Background(self._watch)
        self._beside.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.__exit__()
        self._look()
        for (name, pid, started), cpu in self._last.items():
            self.found[name].cpu_s += cpu - self._first.get((name, pid, started), 0.0)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(LOOK_SECONDS):
            self._look()

    def _look(self, *, begun: bool = False) -> None:
        for name, processes in self.groups.items():
            held = 0
            for process in processes():
                try:
                    times = process.cpu_times()
                    key = (name, process.pid, process.create_time())
                    held += process.memory_full_info().pss
                except psutil.Error:
                    continue
                cpu = times.user + times.system
                self._last[key] = max(cpu, self._last.get(key, 0.0))
                if begun:  # what starts later has used nothing before
                    self._first[key] = cpu
            self.found[name].peak_mib = max(self.found[name].peak_mib, held / 2**20)

    def table(self, count: int) -> str:
        """Lines for a page: CPU seconds and CPU seconds for a million of ``count``, peak memory."""
        lines = [f"{'process':<34}{'CPU s':>9}{'CPU s / million':>17}{'peak MiB':>10}"]
        for name, cost in self.found.items():
            lines.append(f"{name:<34}{cost.cpu_s:>9.1f}{cost.cpu_s / count * 1e6:>17,.0f}{cost.peak_mib:>10,.0f}")
        total = sum(cost.cpu_s for cost in self.found.values())
        memory = sum(cost.peak_mib for cost in self.found.values())
        return "\n".join([*lines, f"{'together':<34}{total:>9.1f}{total / count * 1e6:>17,.0f}{memory:>10,.0f}"])


def below(pid: int | None) -> list[psutil.Process]:
    """A process and all that it has started; empty without one."""
    try:
        process = psutil.Process(pid) if pid else None
        return [process, *process.children(recursive=True)] if process else []
    except psutil.Error:
        return []


def is_java(process: psutil.Process) -> bool:
    """Whether it is a virtual machine."""
    try:
        return bool(process.name() == "java")
    except psutil.Error:
        return False


def mib_of(pid: int) -> float:
    """Memory of a process and of all below it (MiB); shared pages are divided among those that share them."""
    found = 0.0
    for process in below(pid):
        with suppress(psutil.Error):
            found += process.memory_full_info().pss / 2**20
    return found
