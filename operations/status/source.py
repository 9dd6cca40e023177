"""How the source side of a pipeline is: its connector and its slot, as far as the servers tell in a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from connectors.changed import find_changed
from connectors.database.slot import Slot, read_slot
from connectors.debezium import connector_name
from connectors.names import Names
from connectors.postgres import connect, explained
from connectors.rest import ConnectClient, Status, failure

# `status` answers at once, whoever does not.
PATIENCE_SECONDS = 2.5
MIB = 2**20


class SourceState:
    """Asks Kafka Connect and Postgres in the background, from now on.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._until = time.monotonic() + PATIENCE_SECONDS
        self._connector = _Answer(lambda: _connector(pipeline))
        self._slot = _Answer(lambda: _slot(pipeline))
        self._tables = _Answer(lambda: _tables(pipeline))

    def report(self) -> dict[str, Any]:
        """The shape of ``--json``; waits no longer than ``PATIENCE_SECONDS`` from the beginning."""
        status, error = self._connector.wait(self._until)
        slot, other = self._slot.wait(self._until)
        # Without an answer nothing is said: Postgres is away, which the slot tells, or was applied by an older version.
        tables, _ = self._tables.wait(self._until)
        reasons = [error or _trouble(self.pipeline, status), other or _lacking(self.pipeline, slot)]
        return {
            "connector": "unknown" if error else "absent" if status is None else status.connector,
            "tasks": [] if status is None else list(status.tasks),
            "slot_active": None if slot is None else slot.active,
            "slot_lag_bytes": None if slot is None else slot.behind_bytes,
            "tables": tables or {},
            "error": "; ".join(reason for reason in reasons if reason) or None,
        }


class _Answer:
    """What a function gives, asked for in a thread that nobody has to wait for."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask, self._value, self._error = ask, None, ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._ask()
        except HeadwaterError as error:
            self._error = error.what
        except Exception as error:  # a proxy's page instead of JSON, say: a reason to show, none to crash
            self._error = f"{type(error).__name__}: {error}".split("\n")[0]

    def wait(self, until: float) -> tuple[Any, str]:
        """(value, "") or (None, why not); until a monotonic time."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            return None, f"no answer within {PATIENCE_SECONDS:g} s"
        return self._value, self._error


def _connector(pipeline: Pipeline) -> Status | None:
    client = ConnectClient(pipeline.connect, patience_seconds=0)
    try:
        return client.status(connector_name(pipeline))
    finally:
        client.close()


def _slot(pipeline: Pipeline) -> Slot | None:
    with connect(pipeline.source) as connection, explained("reading the slot"):
        return read_slot(connection, pipeline.source.slot)


def _tables(pipeline: Pipeline) -> dict[str, str]:
    with connect(pipeline.source) as connection:
        changed = find_changed(connection, Names.of(pipeline), pipeline.source.publication)
    return {table: f"{error.what}: {error.fix}" for table, error in changed.items()}


def _trouble(pipeline: Pipeline, status: Status | None) -> str:
    if status is None:
        return f"there is no connector {connector_name(pipeline)}"
    return failure(connector_name(pipeline), status).what if status.failed else ""


def _lacking(pipeline: Pipeline, slot: Slot | None) -> str:
    name = pipeline.source.slot
    if slot is None:
        return f"there is no slot {name}"
    return f"slot {name} is lost" if slot.wal_status == "lost" else ""


def line(source: dict[str, Any]) -> str:
    """``source: connector RUNNING, slot keeps 12 MiB`` and, below, what is wrong."""
    tasks = sorted({task for task in source["tasks"] if task != source["connector"]})
    connector = source["connector"] + (f" (task {', '.join(tasks)})" if tasks else "")
    lag, active = source["slot_lag_bytes"], source["slot_active"]
    slot = "slot unknown" if active is None else f"slot keeps {_mib(lag)}"
    unread = ", which nobody reads" if active is False else ""
    below = [source["error"], *source["tables"].values()]
    return f"source: connector {connector}, {slot}{unread}" + "".join(f"\n  {reason}" for reason in below if reason)


def _mib(lag: int | None) -> str:
    if lag is None:
        return "? MiB"
    return f"{lag // MIB:,} MiB" if lag >= MIB else "less than 1 MiB"


def warning(pipeline: Pipeline, source: dict[str, Any]) -> str | None:
    """What to say when the slot keeps more WAL than the policy allows."""
    kept, most = (source["slot_lag_bytes"] or 0) // MIB, pipeline.policy.replication_slot_max_lag_mb
    if kept <= most:
        return None
    return (
        f"warning: slot {pipeline.source.slot} makes Postgres keep {kept:,} MiB of WAL "
        f"(policy.replication_slot_max_lag_mb: {most:,}); `headwater apply FILE` restarts a connector that stands still"
    )
