"""Everything is killed while applications wait for their writes: what was said to be visible is found, every time.

HEADWATER_RYW_WAITS says how many waits must be answered ``visible`` (`make test-ryw`: 10,000).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headwater_client import Headwater

from benchmarks.results import Measurement, write
from tests.support.local import ready
from tests.support.migrating import Migrating
from tests.support.serving import Server
from tests.support.waiters import Waiters

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.alone, pytest.mark.fault, pytest.mark.timeout(5400)]

ASKED = "HEADWATER_RYW_WAITS" in os.environ
COMMAND = "make test-ryw"
WAITS = int(os.environ.get("HEADWATER_RYW_WAITS", "600"))
SECONDS = 4800.0
# Between two kills: long enough that everything is at work for a while, or nothing is ever visible.
BETWEEN_SECONDS = 45.0
TARGETS = ("run", "serve", "run", "elasticsearch", "serve", "connect", "run", "kafka", "postgres", "redis-store")


class Killer(threading.Thread):
    """Kills one after the other, and starts it again."""

    def __init__(self, made: Migrating, server: Server, seed: int) -> None:
        super().__init__(daemon=True)
        self.made, self.server, self.rng = made, server, random.Random(seed)
        self.over = threading.Event()
        self.killed: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.wait(BETWEEN_SECONDS * (0.5 + self.rng.random())):
                target = TARGETS[len(self.killed) % len(TARGETS)]
                self.killed.append(target)
                self._kill(target)
        except BaseException as error:
            self.error = error

    def _kill(self, target: str) -> None:
        if target == "serve":
            self.server.kill()
            self.server.start()
        elif target == "run":
            self.made.kill()
            self.made.launch()
        else:
            self.made.stack.kill(target)
            time.sleep(self.rng.random() * 3)
            self.made.stack.up([target])
            if target in ("kafka", "postgres", "connect"):
                # A connector that has failed waits for `run` to start it again, seconds to minutes.
                with contextlib.suppress(AssertionError):
                    self.made.run("apply")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Migrating]:
    pipeline = Migrating(
        ready(),
        tmp_path,
        sinks=("search", "cache"),
        views={
            "numbered": {"root": "things", "columns": ["id", "n"]},
            "card": {
                "root": "things",
                "columns": ["id", "n"],
                "children": {"parts": {"table": "parts", "on": {"id": "thing"}, "columns": ["id", "weight"]}},
            },
        },
    )
    with pipeline.running():
        yield pipeline


def test_what_was_said_to_be_visible_is_found(made: Migrating) -> None:
    with Server(made.file, made.environment()) as server:
        headwater = Headwater(server.url, timeout=20)
        waiters = Waiters(
            made.conninfo, made.name, made.stack.endpoints.elasticsearch_url, made.view("numbered"), headwater
        )
        killer = Killer(made, server, seed=WAITS)
        killer.start()
        try:
            waiters.run(WAITS, SECONDS)
        finally:
            killer.over.set()
            killer.join()
        if ASKED:
            lies = Measurement(
                "ryw_false_visible", len(waiters.lies), "waits", waiters.states["visible"], command=COMMAND
            )
            write([lies])
        print(f"{dict(waiters.states)}; killed {killer.killed}; {len(waiters.troubles)} writes failed")
        assert killer.error is None, killer.error
        assert not waiters.lies, waiters.lies
        assert waiters.states["visible"] >= WAITS, waiters.states
        assert waiters.states["aborted"] > 0 and len(killer.killed) >= 2
