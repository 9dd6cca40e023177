"""How the source side of a pipeline is: its connector and its slot, as far as the servers tell in a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cdc.errors import HeadwaterError, SourceChanged
from cdc.pipeline import Pipeline
from cdc.sizes import size_words, span_words
from connectors.captured.changed import find_changed
from connectors.database.history import read_moment
from connectors.database.slot import Slot
from connectors.database.timeline import noted_timeline
from connectors.debezium import connector_name
from connectors.gaps.lost_offset import READ_AGAIN
from connectors.gaps.source_gaps import refuse_unfollowed
from connectors.names import Names
from connectors.postgres import connect
from connectors.resized import in_a_line, resized
from connectors.rest import STANDS_STILL, ConnectClient, Status
from connectors.wal.budget import NONE, RANK, Budget
from connectors.wal.look import Look, look
from connectors.wal.pins import Pin
from operations.freshness.source_words import connector_words
from operations.state.wal import judged, read_release, release_words

# `status` answers at once, whoever does not.
PATIENCE_SECONDS = 2.5


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
        self._history = _Answer(lambda: _history(pipeline))
        self._tables = _Answer(lambda: _tables(pipeline))
        self._resized = _Answer(lambda: _resized(pipeline))

    def report(self) -> dict[str, Any]:
        """The shape of ``--json``; waits no longer than ``PATIENCE_SECONDS`` from the beginning."""
        status, error = self._connector.wait(self._until)
        seen, other = self._slot.wait(self._until)
        slot = seen.slot if seen else None
        # Without an answer nothing is said: Postgres is away, which the slot tells, or was applied by an older version.
        tables, _ = self._tables.wait(self._until)
        resized, _ = self._resized.wait(self._until)
        elsewhere, _ = self._history.wait(self._until)
        words = connector_words(connector_name(self.pipeline), status, error)
        reasons = [words["connector_error"], other or elsewhere or _lacking(self.pipeline, slot)]
        return {
            "connector": words["connector"],
            "tasks": list(words["tasks"]),
            "slot_there": None if seen is None else slot is not None,
            "slot_active": None if slot is None else slot.active,
            "slot_lag_bytes": None if slot is None else slot.behind_bytes,
            "wal": judged(self.pipeline, seen).to_dict(),
            "tables": {**(resized or {}), **(tables or {})},
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


def _slot(pipeline: Pipeline) -> Look:
    with connect(pipeline.source) as connection:
        return look(connection, pipeline.source.slot)


def _history(pipeline: Pipeline) -> str:
    """Why the connector reads nothing on a timeline that nobody has followed; its own status says RUNNING."""
    with connect(pipeline.source) as connection:
        try:
            refuse_unfollowed(noted_timeline(connection, Names.of(pipeline)), read_moment(connection))
        except SourceChanged as error:
            return f"{error.what}: {error.fix}"
    return ""


def _tables(pipeline: Pipeline) -> dict[str, str]:
    with connect(pipeline.source) as connection:
        changed = find_changed(connection, Names.of(pipeline), pipeline.source.publication)
    return {table: f"{error.what}: {error.fix}" for table, error in changed.items()}


def _resized(pipeline: Pipeline) -> dict[str, str]:
    return {table: in_a_line(error) for table, error in resized(pipeline, PATIENCE_SECONDS).items()}


def _lacking(pipeline: Pipeline, slot: Slot | None) -> str:
    name = pipeline.source.slot
    if slot is None:
        released = read_release(pipeline)
        return f"{release_words(released)}: {READ_AGAIN}" if released else f"there is no slot {name}"
    return f"slot {name} is lost" if slot.wal_status == "lost" else ""


def line(source: dict[str, Any]) -> str:
    """``source: connector RUNNING, slot keeps 12 MiB`` and, below, what is wrong and what holds the slot."""
    tasks = sorted({task for task in source["tasks"] if task != source["connector"]})
    connector = source["connector"] + (f" (task {', '.join(tasks)})" if tasks else "")
    lag, active, wal = source["slot_lag_bytes"], source["slot_active"], budget(source)
    slot = "slot unknown" if active is None else f"slot keeps {'? MiB' if lag is None else size_words(lag)}"
    if wal.level not in (None, NONE) or wal.seconds_to_full is not None:
        slot += f" ({100 * (wal.share or 0):.0f} % of what it may"
        slot += f", full in about {span_words(wal.seconds_to_full)})" if wal.seconds_to_full else ")"
    unread = ", which nobody reads" if active is False else ""
    below = [source["error"], *source["tables"].values(), *(f"held back by {held}" for held in wal.held)]
    return f"source: connector {connector}, {slot}{unread}" + "".join(f"\n  {reason}" for reason in below if reason)


def budget(source: dict[str, Any]) -> Budget:
    """The judgement in a report."""
    wal = source["wal"]
    return Budget(**{**wal, "pinned_by": tuple(Pin(**pin) for pin in wal["pinned_by"])})


def warning(pipeline: Pipeline, source: dict[str, Any]) -> str | None:
    """What to say when the slot keeps more WAL than half of what it may."""
    wal = budget(source)
    if RANK.get(wal.level or NONE, 0) == 0:
        return None
    kind = "warning" if wal.level == "warn" else "alarm"
    # Of what holds it back `line` says what to do; then it is not the connector.
    still = "" if wal.pinned_by else f"; if the connector stands still: {STANDS_STILL}"
    return f"{kind}: {wal.words(pipeline.source.slot)}{still}"
