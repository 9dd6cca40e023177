"""How long it takes until every flow applies what is written now; and what to do about those that refuse to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psycopg

from cdc.errors import HeadwaterError
from operations.state.folder import register_of
from spark.disk.status import FlowStatus, state_of
from tests.chaos.runner import Runner
from tests.chaos.world import TABLES, World

# What is promised, and how long it is waited for to see what becomes of it.
RECOVERED_SECONDS, PATIENCE_SECONDS = 180.0, 600.0
# A flow's own restart may cure what looks terminal for a moment.
REFUSED_SECONDS, REFUSED_TIMES = 10.0, 2
POLL_SECONDS = 1.0


@dataclass
class Recovery:
    """Watches the flows of every living generation."""

    world: World
    runner: Runner
    say: Callable[[str], None]
    _failed_since: dict[str, float] = field(default_factory=dict)

    def wait(self) -> float | None:
        """Seconds until every flow has applied a change made from now on; None if that never came."""
        began, since_ms = time.monotonic(), time.time() * 1000
        until, followed = began + PATIENCE_SECONDS, len(self.runner.advice)
        self._failed_since.clear()
        self.runner.refusals.clear()
        behind: list[str] = ["not looked at"]
        while time.monotonic() < until:
            self.touch()
            behind = self.behind(since_ms)
            if not behind:
                return time.monotonic() - began
            self._advise()
            if len(self.runner.advice) > followed:  # a rebuild takes what it takes, and there is one for each sink
                until, followed = time.monotonic() + PATIENCE_SECONDS, len(self.runner.advice)
            time.sleep(POLL_SECONDS)
        self.say(f"  not recovered: {'; '.join(behind)}")
        return None

    def touch(self) -> None:
        """A change in every table, so that no flow has nothing to do. The load's locks are not waited for."""
        try:
            with self.world.as_owner() as connection:
                connection.execute("SET lock_timeout = 500")
                for table in TABLES:
                    first = f"SELECT ctid FROM {table} LIMIT 1 FOR UPDATE SKIP LOCKED"
                    column = COLUMN[table]
                    try:
                        connection.execute(f"UPDATE {table} SET {column} = {column} WHERE ctid IN ({first})".encode())
                    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                        continue
        except psycopg.OperationalError:
            return

    def flows(self) -> Iterator[tuple[str, str, str, FlowStatus | None]]:
        """(sink, flow, state, status) of every living generation."""
        pipeline = self.world.pipeline()
        for sink in pipeline.sinks:
            register = register_of(pipeline, sink)
            generation = register.generation(register.living())
            holder = generation.lease.holder()
            for flow in generation.flows():
                status = FlowStatus.read(generation.flow_folder(flow))
                yield sink, flow, state_of(status, holder), status

    def restarts(self) -> dict[str, list[str]]:
        """Why flows of the living generations were started again: flow -> the newest reasons."""
        return {
            f"{sink}/{flow}, {status.restarts} times": [str(one["reason"])[:300] for one in status.restarted]
            for sink, flow, _, status in self.flows()
            if status is not None and status.restarts
        }

    def behind(self, since_ms: float) -> list[str]:
        """Flows that do not run, or have applied nothing that was written since then; a word on each."""
        found: list[str] = []
        seen = 0
        for sink, flow, state, status in self.flows():
            seen += 1
            if status is None or state != "running" or status.source_ts_ms < since_ms:
                error = (status.last_error or "").split("\n")[0][:200] if status else ""
                found.append(f"{sink}/{flow}: {state} {error}")
        return found or ([] if seen else ["no flow has a status"])

    def _advise(self) -> None:
        """Follow what failed flows, or a `run` that does not start, say."""
        now = time.monotonic()
        if len(self.runner.refusals) >= REFUSED_TIMES:
            told = self.runner.refusals[-1]
            named = re.search(r"\bsink ['\"]?(\w+)", told)
            self.say(f"  run refuses: {told[:500]}")
            self.runner.follow(named[1] if named else "", told)
            self.runner.refusals.clear()
            return
        refused = [
            (sink, flow, status.last_error)
            for sink, flow, state, status in self.flows()
            if status and state == "failed" and status.last_error
        ]
        names = {f"{sink}/{flow}" for sink, flow, _ in refused}
        self._failed_since = {name: self._failed_since.get(name, now) for name in names}
        for sink, flow, error in refused:
            # A cache that has forgotten is made again by `run` itself: advice is followed only if that takes too long.
            by_itself = getattr(self.world.pipeline().sinks[sink], "on_loss", "refuse") == "rebuild"
            itself = by_itself and ("is being made" in error or "is gone" in error)
            if now - self._failed_since[f"{sink}/{flow}"] < (RECOVERED_SECONDS if itself else REFUSED_SECONDS):
                continue
            self.say(f"  {sink}/{flow} refuses: {' '.join(error.split())[:500]}")
            if not self.runner.follow(sink, error):
                self.say("  that names no way out; run is started again")
                self.runner.end()
            self._failed_since.clear()
            return

    def settled(self) -> bool:
        """Whether every flow has applied all that is in the log, with nothing being written any more."""
        from operations.status.sinks import status_report

        try:
            report = status_report(self.world.pipeline())
        except HeadwaterError as error:
            self.say(f"  status: {error}")
            return False
        return all(sink["lag_events"] == 0 and sink["state"] == "running" for sink in report["sinks"])


# A column of each table that may be set to itself.
COLUMN = {
    "customers": "name",
    "products": "name",
    "orders": "note",
    "order_items": "quantity",
    "bank.banks": "name",
    "bank.accounts": "contract",
}
