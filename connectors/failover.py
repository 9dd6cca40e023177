"""Failover slots: copied to standbys by Postgres 17 and newer, so that changes can be read on from a promoted one."""

from __future__ import annotations

from cdc.pipeline import Pipeline
from cdc.polling import poll
from connectors.actions import Action
from connectors.connector import RunningConnector
from connectors.database.slot import INACTIVE_SECONDS, Slot, read_slot
from connectors.debezium import FAILOVER
from connectors.postgres import explained, replication_command
from connectors.servers import Servers

SINCE = 170000


def wanted(pipeline: Pipeline, server_version: int) -> bool:
    """Whether the slot is to be a failover slot: where the server has them, unless ``connect.options`` says no."""
    return server_version >= SINCE and str(pipeline.connect.options.get(FAILOVER, "true")).lower() == "true"


def plan_failover(servers: Servers, slot: Slot | None, running: RunningConnector | None) -> list[Action]:
    """What makes a failover slot of one that is none, as an older version left it; the connector stops for it.

    Not while the initial snapshot is under way, which a stop would begin anew: the next ``apply`` does it.
    """
    pipeline = servers.pipeline
    lacking = slot is not None and slot.failover is False and slot.wal_status != "lost"
    if not lacking or not wanted(pipeline, servers.source.info.server_version):
        return []
    if running is None or not running.streaming:
        return []
    detail = "make it a failover slot, which standbys get a copy of; the connector is stopped for it"
    return [Action("slot", pipeline.source.slot, detail, {"failover": False}, {"failover": True}, _alter)]


def _alter(servers: Servers) -> None:
    name = servers.pipeline.source.slot
    servers.connect.stop(servers.connector)
    servers.connect.wait_stopped(servers.connector)
    try:
        # Postgres alters a slot only while nobody reads from it.
        poll(lambda: read_slot(servers.source, name), lambda now: now is None or not now.active, INACTIVE_SECONDS)
        with explained(f"making slot {name} a failover slot"):
            replication_command(servers.pipeline.source, f'ALTER_REPLICATION_SLOT "{name}" (FAILOVER true)')
    finally:
        servers.connect.resume(servers.connector)
