"""How a flow fares, on disk for `headwater status` and any other process to read."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.ages import ago
from spark.disk.files import write_somehow
from spark.disk.process import is_gone, is_here

if TYPE_CHECKING:
    from spark.disk.lease import Holder

# Upper bounds of the classes in which batches are counted by how long they took; a last class has the rest.
BATCH_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class FlowStatus:
    """A flow at one moment; counts are since the flow was last opened (by a process, after a pause,
    with a table's new shape), and a fill's are among them.

    Attributes:
        state: starting, running, filling (a joined view whose target is not complete yet), retrying, failed, finished
            or stopped; docs/json-output.md says when which.
        batch_id: newest batch that has ended; -1 before the first.
        records: changelog records read.
        written, deleted, stale, rejected: answers of the sink (the warehouse counts only written and rejected).
        position: highest source position applied.
        source_ts_ms: newest source timestamp applied (epoch milliseconds).
        batch_ms: how long the newest batch took.
        topics: what the flow reads.
        at: when this was written (epoch seconds).
        current_at: when it was last running, so reading what comes (epoch seconds); 0 before the first time.
        deferred: documents that a fan-out has changed and that are still to be written.
        unread_since: nothing that it has not read was written before this (epoch seconds); 0 when not known.
        warning: what will become trouble if nobody does anything.
        restarts: how often its query ended and was started again, over all processes.
        restarted: the newest of these: ``at`` (epoch seconds) and ``reason``.
        retries: how often a task has asked its sink again, because the answer was that it should.
        sink_us: microseconds that tasks have spent in the sink's writes, all of them added up.
        phase_ms: what batches have spent their time on (``spark.disk.batches.PHASES``).
        batch_buckets: how many batches took how long, a number for each of ``BATCH_SECONDS`` and one for the rest.
        got_on: how often a batch that takes long was seen to get on (spark/pulse.py).
        host, started: which process ``pid`` is (``spark.disk.process.signature``); an older Headwater did not say.
    """

    flow: str
    state: str
    pid: int
    batch_id: int
    records: int
    written: int
    deleted: int
    stale: int
    rejected: int
    position: int
    source_ts_ms: int
    batch_ms: int
    last_error: str | None
    topics: Sequence[str]
    at: float
    current_at: float = 0.0
    deferred: int = 0
    unread_since: float = 0.0
    warning: str | None = None
    restarts: int = 0
    restarted: Sequence[Mapping[str, Any]] = ()
    retries: int = 0
    sink_us: int = 0
    phase_ms: Mapping[str, int] = field(default_factory=dict)
    batch_buckets: Sequence[int] = ()
    got_on: int = 0
    host: str = ""
    started: float = 0.0

    def write(self, folder: Path) -> None:
        """Replace the flow's status file."""
        # Not `asdict`, which copies all that is in it: each flow is written twice a second.
        write_somehow(folder / "status.json", json.dumps(vars(self)))

    @classmethod
    def read(cls, folder: Path) -> FlowStatus | None:
        """The flow's last status; None before its first."""
        try:
            found = json.loads((folder / "status.json").read_text())
            known = {one.name for one in fields(cls)}  # a later version may have written more
            return cls(**{name: value for name, value in found.items() if name in known})
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return None


# How many restarts are told of one by one; all are counted.
RESTARTS_KEPT = 20
_LINE = 300


class Restarts:
    """How often a flow's query ended and was started again, and why; earlier processes' are counted in.

    Args:
        folder: the flow's.
    """

    def __init__(self, folder: Path) -> None:
        before = FlowStatus.read(folder)
        self.count = before.restarts if before else 0
        self.newest: list[Mapping[str, Any]] = list(before.restarted) if before else []

    def add(self, reason: str) -> None:
        """One more."""
        self.count += 1
        said = (reason.strip() or "no reason was given").splitlines()[0][:_LINE]
        self.newest = [*self.newest, {"at": time.time(), "reason": said}][-RESTARTS_KEPT:]


# A runner writes its status about twice a second; older than this, it is not alive or hangs.
STALE_SECONDS = 15.0
# One that opens other flows anew (a table was altered, a file applied) stops a query, asks Postgres and Kafka and plans
# for some seconds each, and tells of nobody meanwhile: its lease, which a thread of its own renews, says that it is
# there. For so long; then whatever it does hangs.
BUSY_SECONDS = 120.0
# One that is opened anew has given its lease back, and waits for its turn behind the others of its process: on a small
# machine that is short of time for minutes. As long as that process is seen to live, nobody may call it dead.
TURN_SECONDS = 600.0


# In these a process is at work.
_ALIVE = ("starting", "filling", "running", "retrying")


def state_of(status: FlowStatus | None, holder: Holder | None = None) -> str:
    """A flow's state: what its process wrote last, unless that process is gone, or another one has its generation.

    Args:
        status: what is in the flow's folder; None if nothing.
        holder: who holds the generation's lease; None if nobody ever did.
    """
    if taken_over(status, holder):
        return "starting"
    if status is None:
        return "never run"
    if status.state in _ALIVE:
        silence, patience = ago(status.at, time.time()), _patience(status, holder)
        if silence > patience or is_gone(status.host, status.pid, status.started, silence, patience):
            return "dead"
    return str(status.state)


def _patience(status: FlowStatus, holder: Holder | None) -> float:
    """After which silence (seconds) a flow's process hangs."""
    renewed = holder is not None and _is_of(status, holder) and ago(holder.renewed, time.time()) <= STALE_SECONDS
    if status.state == "starting":
        return TURN_SECONDS if is_here(status.host) else BUSY_SECONDS
    return BUSY_SECONDS if renewed else STALE_SECONDS


def taken_over(status: FlowStatus | None, holder: Holder | None) -> bool:
    """Whether a living process holds the generation that has not said anything of this flow yet."""
    from spark.disk.lease import EXPIRES_SECONDS

    if holder is None or holder.pid == 0:
        return False
    silence = ago(holder.renewed, time.time())
    if silence > EXPIRES_SECONDS or is_gone(holder.host, holder.pid, holder.started, silence, EXPIRES_SECONDS):
        return False
    return status is None or not _is_of(status, holder)


def _is_of(status: FlowStatus, holder: Holder) -> bool:
    """Whether who holds the generation has said this; an older Headwater has left its number alone."""
    same_host = status.host in ("", holder.host)
    return same_host and status.pid == holder.pid and status.started in (0.0, holder.started)
