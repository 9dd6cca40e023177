"""Push: how long after its commit a change reaches a subscriber, and how many a server holds who wait.

``python -m benchmarks.run push`` brings a pipeline of its own to the local stack. Subscribers are plain sockets in a
thread of this process, on the same cores as the server.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.results import Measurement, quantile
from tests.support.crowd import Crowd
from tests.support.local import ready
from tests.support.pushing import Pushing
from tests.support.serving import Server

COMMAND = "python -m benchmarks.run push"
COMMITS, WARM_UP, PAUSE_SECONDS = 150, 15, 0.3
CROWDS = (1_000, 2_000, 5_000, 10_000)
# Changes that each crowd is told, one after the other; all of it must have each of them within a second.
ROUNDS, WITHIN_SECONDS = 20, 1.0
# A crowd lies idle for so long: signs of life go out meanwhile (operations/push/streams.py).
IDLE_SECONDS = 20.0
MOST_SECONDS = 30.0


def measure() -> list[Measurement]:
    """One subscriber, then thousands, of the same pipeline and server."""
    with tempfile.TemporaryDirectory(prefix="headwater-push-") as folder:
        made = Pushing(ready(), Path(folder), sinks=("cache",), views={"thing": {"root": "things"}})
        with (
            made.running(),
            Server(made.file, made.environment()) as server,
            psycopg.connect(made.conninfo, autocommit=True) as database,
        ):
            path = f"/v1/stream/{made.view('thing')}?from=now"
            change = Changes(database)
            with Crowd(server.url, path) as one:
                one.grow(1)
                for _ in range(WARM_UP):
                    _told(one, change, PAUSE_SECONDS)
                took = [_told(one, change, PAUSE_SECONDS)[0] for _ in range(COMMITS)]
            found = [
                Measurement(
                    f"push_commit_to_event_p{share}_s", quantile(took, share / 100), "s", COMMITS, command=COMMAND
                )
                for share in (50, 99)
            ]
            return found + _crowds(server, path, change)


class Changes:
    """Changes one row, over and over."""

    def __init__(self, database: psycopg.Connection[Any]) -> None:
        self._database, self._number = database, 0

    def __call__(self) -> float:
        """Once; when it was begun."""
        self._number += 1
        began = time.monotonic()
        self._database.execute("UPDATE things SET n = %s WHERE id = 1", [1_000_000 + self._number])
        return began


def _told(crowd: Crowd, change: Callable[[], float], pause: float) -> list[float]:
    """A change: after how many seconds each of a crowd had it, in order."""
    crowd.came.clear()
    began = change()
    crowd.until(crowd.came, crowd.size, MOST_SECONDS)
    took = sorted(at - began for at in crowd.came)
    time.sleep(pause)
    return took


def _crowds(server: Server, path: str, change: Callable[[], float]) -> list[Measurement]:
    """Ever larger crowds, until one of them is too large."""
    process = psutil.Process(server.pid)
    held, kib, last = 0, 0.0, 0.0
    with Crowd(server.url, path) as crowd:
        before = process.memory_info().rss
        for size in CROWDS:
            crowd.grow(size)
            used = process.cpu_times()
            time.sleep(IDLE_SECONDS)
            idle = (sum(process.cpu_times()[:2]) - sum(used[:2])) / IDLE_SECONDS
            slowest = [_told(crowd, change, PAUSE_SECONDS)[-1] for _ in range(ROUNDS)]
            memory = (process.memory_info().rss - before) / size / 1024
            print(
                f"{size:>6,} subscribers: the last of them told after p50 {quantile(slowest, 0.5):.3f} s, at most "
                f"{max(slowest):.3f} s; idle {idle:.1%} of a core, {memory:.1f} KiB each",
                flush=True,
            )
            if max(slowest) > WITHIN_SECONDS:
                break
            held, kib, last = size, memory, quantile(slowest, 0.5)
    return [
        Measurement("push_idle_connections", held, "connections", ROUNDS, command=COMMAND),
        Measurement("push_idle_connection_kib", round(kib, 1), "KiB", held, command=COMMAND),
        Measurement("push_last_of_all_told_p50_s", round(last, 3), "s", ROUNDS, command=COMMAND),
    ]
