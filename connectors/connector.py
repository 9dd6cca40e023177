"""The connector as it runs, and how that differs from how it must run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.errors import ConnectError, LogGap, SlotLost, SourceError
from cdc.log.client import Topic
from cdc.pipeline import Pipeline
from cdc.polling import poll
from connectors.actions import Action
from connectors.captured.captured import mark, read_captured
from connectors.database.slot import Slot, drop_lost_slot, read_slot
from connectors.debezium import redact
from connectors.gaps.lost_offset import refuse_lost_offset
from connectors.gaps.source_gaps import refuse_gap
from connectors.offset import in_snapshot
from connectors.rest import ConnectClient, Status, failure
from connectors.servers import Servers

# What Connect adds to a configuration by itself.
ADDED = {"name"}
SLOT_SECONDS = 60.0
MAKES_SLOT = "Debezium creates the slot and reads the tables"


@dataclass(frozen=True)
class RunningConnector:
    """A connector as it is.

    Attributes:
        config: with secrets.
        status: as Connect tells it.
        offset: Debezium's source offset; None before the first.
    """

    config: Mapping[str, str]
    status: Status | None
    offset: Mapping[str, Any] | None

    @property
    def in_snapshot(self) -> bool:
        """The initial snapshot has not ended; when interrupted it begins again from nothing."""
        return self.offset is not None and in_snapshot(self.offset)

    @property
    def in_incremental_snapshot(self) -> bool:
        """An incremental snapshot is under way; it survives a restart."""
        return any(key.startswith("incremental_snapshot") for key in self.offset or {})

    @property
    def streaming(self) -> bool:
        """The initial snapshot is done."""
        return self.offset is not None and not in_snapshot(self.offset)


def read_connector(client: ConnectClient, name: str) -> RunningConnector | None:
    """Read a connector; None if there is none.

    Raises:
        ConnectUnavailable: Connect does not answer (transient).
    """
    config = client.config(name)
    if config is None:
        return None
    offset = client.offset(name)
    return RunningConnector({k: v for k, v in config.items() if k not in ADDED}, client.status(name), offset)


def plan_connector(
    name: str, wanted: dict[str, str], running: RunningConnector | None, *, slot: bool, skipped: bool
) -> list[Action]:
    """What must change in Kafka Connect. Pure.

    Args:
        name: the connector's.
        wanted: its configuration, with secrets.
        running: as it is.
        slot: whether its slot is there, as it is when somebody has deleted only the connector.
        skipped: it streams, and has not made its initial snapshot (``marker_watch.has_skipped``).
    """
    if running is None:
        then = "it goes on from what its slot and Connect have kept" if slot else MAKES_SLOT
        run, after = _create(name, wanted), redact(wanted)
        return [Action("connector", name, f"create; {then}", None, after, run, captures=not slot)]
    if skipped:
        detail = "begin anew: Debezium has skipped the initial snapshot"
        return [Action("connector", name, detail, "RUNNING", "RUNNING", _change(name, wanted, anew=True))]
    keys = sorted(k for k in {*wanted, *running.config} if wanted.get(k) != running.config.get(k))
    if keys:
        before, after = redact(dict(running.config)), redact(wanted)
        detail = "set " + ", ".join(keys)
        old, new = {k: before.get(k) for k in keys}, {k: after.get(k) for k in keys}
        return [Action("connector", name, detail, old, new, _change(name, wanted))]  # also starts it
    status = running.status
    run = lambda servers: start_again(servers.connect, name)  # noqa: E731
    if status is not None and status.connector in ("PAUSED", "STOPPED"):
        return [Action("connector", name, "resume", status.connector, "RUNNING", run)]
    if status is not None and status.failed:
        return [Action("connector", name, f"restart; it failed: {status.trace}", "FAILED", "RUNNING", run)]
    return []


def start_again(client: ConnectClient, name: str) -> None:
    """Start a connector that is paused, stopped or failed.

    Of one that failed before its first record Connect may keep an empty offset. Debezium would take that for the end of
    the initial snapshot, and read no row: it is forgotten, so that the snapshot begins.

    Raises:
        ConnectError: Connect refused, or the connector did not stop (ConnectUnavailable: transient).
    """
    status = client.status(name)
    if client.offset(name) is None:
        if status is None or status.connector != "STOPPED":
            client.stop(name)
            client.wait_stopped(name)
        client.delete_offsets(name)
        client.resume(name)
    elif status is not None and status.failed:
        client.restart(name)
    else:
        client.resume(name)


def keeping(pipeline: Pipeline) -> list[str]:
    """Sinks that keep history, of which what a topic held is lost unless they have read it."""
    return [name for name, sink in pipeline.sinks.items() if getattr(sink, "history", False)]


def plan_renewal(
    name: str, tables: Sequence[str], topics: Sequence[Topic], histories: Sequence[str], *, there: bool
) -> list[Action]:
    """Restart a connector whose tables are others than it knows; meanwhile make some topics anew. Pure.

    Args:
        name: the connector's.
        tables: that are others.
        topics: that hold records which nothing can be made of any more.
        histories: sinks that keep what those have held.
        there: there is such a connector; one that is made later reads the definitions by itself.
    """
    if not (tables if there else topics):
        return []

    def run(servers: Servers) -> None:
        if there:
            drop_lost_slot(servers.source, servers.pipeline.source.slot)  # or it can't be stopped
            servers.connect.stop(name)
            servers.connect.wait_stopped(name)
        servers.kafka.delete([topic.name for topic in topics])
        for topic in topics:
            servers.kafka.create(topic)
        if there:
            start_again(servers.connect, name)

    parts = [f"restart, to read the definition of {', '.join(tables)} anew"] if there else []
    if topics:
        anew = f"topic {', '.join(topic.name for topic in topics)} is deleted and made anew"
        kept = f"history of sink {', '.join(histories)} begins anew for it, without what it has not read by then"
        parts.append(f"{anew} ({kept})" if histories else anew)
    return [Action("connector", name, "; ".join(parts), "RUNNING", "RUNNING", run)]


def _create(name: str, wanted: dict[str, str]) -> Any:
    def run(servers: Servers) -> None:
        # Stopped at first: Connect keeps the offsets of a deleted namesake, and tells them only of one that exists.
        servers.connect.create_stopped(name, wanted)
        offset = servers.connect.offset(name)
        slot = read_slot(servers.source, servers.pipeline.source.slot)
        listed = read_captured(servers.setup, servers.names)
        captured = listed.values()
        if offset is not None and slot is None and all(one.state == "initial" for one in captured):
            # Somebody deleted the namesake before `drop` could make Connect forget it, and a first snapshot is meant.
            servers.connect.wait_stopped(name)
            servers.connect.delete_offsets(name)
            offset = None
        try:
            refuse_lost_offset(offset, listed)
            refuse_gap(servers.pipeline.source.slot, slot, offset)
        except (SlotLost, LogGap):
            # `resnapshot --all` gets well from this, and needs the offset. Who has nothing yet does not.
            if all(one.state != "done" for one in captured):
                servers.connect.delete(name)
            raise
        except SourceError:
            servers.connect.delete(name)
            raise
        servers.connect.put_config(name, wanted)
        start_again(servers.connect, name)

    return run


def _change(name: str, wanted: dict[str, str], *, anew: bool = False) -> Any:
    def run(servers: Servers) -> None:
        # Not in flight: a signal for a new table, read by the task that does not know it yet, would be used up.
        servers.connect.stop(name)
        servers.connect.wait_stopped(name)
        servers.connect.put_config(name, wanted)
        if anew:
            mark(servers.setup, servers.names, read_captured(servers.setup, servers.names), "initial")
            servers.connect.delete_offsets(name)
        start_again(servers.connect, name)

    return run


def wait_ready(servers: Servers, slot_seconds: float = SLOT_SECONDS) -> None:
    """Wait until the connector runs and its slot is there: RUNNING alone can be a lie.

    Args:
        servers: of the pipeline.
        slot_seconds: for the slot, once it says RUNNING.

    Raises:
        ConnectError: it failed, or the slot did not come.
    """
    servers.connect.wait_running(servers.connector)
    name = servers.pipeline.source.slot

    def lack() -> str | None:
        slot = read_slot(servers.source, name)
        if slot is not None and _used(servers, slot):
            return None
        status = servers.connect.status(servers.connector)
        if status is not None and status.failed:
            raise failure(servers.connector, status)
        return "is not used" if slot else "does not exist"

    if lacking := poll(lack, lambda found: found is None, slot_seconds):
        raise ConnectError(
            f"connector {servers.connector} says RUNNING, but slot {name} {lacking}",
            means="no change reaches Kafka; Debezium may be trying again and again",
            fix="read the worker's log; `headwater check FILE` may name the cause",
        )


def _used(servers: Servers, slot: Slot) -> bool:
    """Somebody streams from the slot, or the snapshot that precedes streaming is under way."""
    if slot.active:
        return True
    offset = servers.connect.offset(servers.connector)
    return offset is None or in_snapshot(offset)
