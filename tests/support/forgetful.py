"""A log that forgets deletes, a flow that reads it, and the process that runs the flow, on the test's own clock."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import KafkaUnavailable
from spark import log_gaps as gaps
from spark import runner
from spark.disk import status
from spark.disk.checkpoint import committed_offsets, planned
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.runner import Runner
from spark.unread import Look

DAY, HOUR = 86400.0, 3600.0
RETENTION = 7 * DAY
# A query may read on for as long as the runner's next look at its clock takes: a step of the clock here.
STEP = 2 * HOUR


class World:
    """Every record is a delete; it is forgotten ``RETENTION`` after it was written, and a little later."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        self.written: list[float] = []  # by offset
        self.sink, self.kafka, self.holds = True, True, False
        self.compacted = False  # whether the record that comes next is gone although it is young
        self.missed = 0
        self.flow = Flow("main", FlowSpec("s", {}, {"t": ()}, {}, {}, {}), Reading("", {}, None), folder / "main")
        for name in ("offsets", "commits"):
            (self.flow.checkpoint / name).mkdir(parents=True)
        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        for module in (status, gaps, runner):
            patch.setattr(module, "time", clock)
        patch.setattr(gaps, "LogEnds", lambda *_: self)
        self.process: Runner | None = None
        self.start()

    # -- as the log -------------------------------------------------------------------------------------------------

    def bounds(self, _topics: object) -> Any:
        if not self.kafka:
            raise KafkaUnavailable("away")
        return {"t": {0: 0}}, {"t": {0: len(self.written)}}

    def written_since(self, _ends: object, committed: Mapping[str, Mapping[int, int]]) -> float | None:
        at = committed.get("t", {}).get(0, 0)
        young = at < len(self.written) and self.now - self.written[at] < RETENTION
        return self.written[at] if young and not self.compacted else None

    def close(self) -> None:
        """Nothing."""

    # -- as the process ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process."""
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
        look = lambda _flow: Look(self.now, self.bounds(None)[1]) if self.kafka else None  # noqa: E731
        self.process = Runner(session, [(self.flow, self._start)], look)

    def end(self) -> None:
        """kill -9."""
        self.process = None

    def _start(self, _spark: object, flow: Flow) -> Any:
        gaps.check_log(flow)
        (flow.checkpoint / "metadata").touch()
        return _Query(self)

    # -- time -------------------------------------------------------------------------------------------------------

    def write(self, count: int = 1) -> None:
        self.written += [self.now] * count

    def sleep(self, seconds: float) -> None:
        """Time in which the process, if there is one, does its work."""
        until = self.now + seconds
        while self.now < until:
            self.now += min(STEP, until - self.now)
            self.work()

    def freeze(self, seconds: float) -> None:
        """Time in which the whole machine sleeps; the query wakes up before the runner looks at its clock."""
        self.now += seconds
        self.work()

    def work(self) -> None:
        if self.process is None:
            return
        for run in self.process.running:
            if isinstance(run.query, _Query):
                run.query.work()
        self.process.step()

    @property
    def refused(self) -> str:
        run = cast(Runner, self.process).running[0]
        return (run.last_error or "") if run.failed else ""

    @property
    def state(self) -> str:
        found = status.FlowStatus.read(self.flow.folder)
        return found.state if found else ""

    @property
    def behind(self) -> int:
        return len(self.written) - committed_offsets(self.flow.checkpoint)[1].get("t", {}).get(0, 0)


class _Query:
    """Plans a batch, reads it as late as it can, waits in it for the sink or fails, and commits."""

    recentProgress = ()

    def __init__(self, world: World) -> None:
        self.world, self.isActive = world, True
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False

    def work(self) -> None:
        world, checkpoint = self.world, self.world.flow.checkpoint
        batch, committed = committed_offsets(checkpoint)
        start = committed.get("t", {}).get(0, 0)
        if not self.isActive or not world.kafka or start == len(world.written):
            return
        offsets = checkpoint / "offsets" / str(batch + 1)
        if planned(checkpoint) == batch:
            offsets.write_text("v1\n{}\n" + json.dumps({"t": {"0": len(world.written)}}))
        if not world.sink:
            self.isActive = world.holds
            self.error = RuntimeError("cdc.errors.SinkUnavailable: sink 's' is not available")
            return
        end = json.loads(offsets.read_text().split("\n")[2])["t"]["0"]
        world.missed += sum(world.now - at > RETENTION + 2 * STEP for at in world.written[start:end])
        commit = checkpoint / "commits" / str(batch + 1)
        commit.write_text("v1\n{}")
        os.utime(commit, (world.now, world.now))
