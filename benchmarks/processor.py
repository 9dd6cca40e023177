"""Processor time of one side of a comparison, as the kernel counts it: of its servers, and of all that they started.

It does not depend on who else uses the machine, as seconds by the clock do.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import psutil

from benchmarks.costs import below, is_java
from deploy.local.stack import LocalStack

# What keeps our documents, of the local stack's servers.
SERVERS = ("postgres", "connect", "kafka", "redis-store", "elasticsearch")


class Processor:
    """Counts for the processes with these numbers and for those below them.

    Args:
        pids: name -> the number of a process; None for one that is not there.
    """

    def __init__(self, pids: Mapping[str, int | None]) -> None:
        self._pids = pids

    def seconds(self) -> dict[str, float]:
        """CPU seconds since each began, ended children included; a virtual machine apart from who started it."""
        found: dict[str, float] = {}
        for name, top in self._pids.items():
            for process in below(top):
                java = is_java(process) and process.pid != top
                try:
                    times = process.cpu_times()
                except psutil.Error:
                    continue
                title = f"{name}: JVM" if java else name
                found[title] = found.get(title, 0.0) + sum(times[:4])
        return found


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """What was used in between."""
    return {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}


def servers_of(stack: LocalStack) -> dict[str, int | None]:
    """The numbers of the local stack's processes, by name."""
    return {one.name: one.pid for one in stack.ps()}


def ours_of(stack: LocalStack, runner: int) -> Processor:
    """The processes that keep our documents: those of the local stack, and `headwater run` with all below it."""
    servers = servers_of(stack)
    return Processor({**{name: servers.get(name) for name in SERVERS}, "headwater": runner})


def theirs_of(stack: LocalStack, elasticsearch: str, daemon: int | None) -> Processor:
    """The processes that keep pgsync's documents: Postgres, its queue's Redis, its own Elasticsearch, its daemon."""
    servers = servers_of(stack)
    shared = {name: servers.get(name) for name in ("postgres", "redis-store")}
    return Processor({**shared, "elasticsearch": listener(elasticsearch), "pgsync": daemon})


def listener(url: str) -> int | None:
    """The number of the process that listens at an address of this machine; None without one."""
    port = urlsplit(url).port
    there = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    found = [one for one in there if one.laddr and one.laddr.port == port]
    return found[0].pid if found else None
