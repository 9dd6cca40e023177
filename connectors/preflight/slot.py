"""Is the replication slot alive, ours, and not about to be lost?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import HeadwaterError, SourceError
from connectors.connector import RunningConnector, read_connector
from connectors.database.slot import Slot, read_slot
from connectors.debezium import connector_name
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.source_gaps import refuse_gap

MIB = 2**20


def run(site: Site) -> Iterator[Finding]:
    """It can give every change since the connector's last; somebody reads it; the WAL it keeps is within the policy."""
    name = site.pipeline.source.slot
    slot = read_slot(site.db, name)
    try:
        running = read_connector(site.connect, connector_name(site.pipeline))
    except HeadwaterError:  # the check «connect» says so
        if slot is not None:
            yield from _state(site, slot, None)
        return
    if slot is None and (running is None or running.offset is None):
        yield Finding(
            Level.NOTE,
            name,
            f"slot {name} does not exist yet",
            "Debezium creates it with its snapshot after `headwater apply`",
        )
        return
    try:
        refuse_gap(name, slot, running.offset if running else None)
    except SourceError as error:
        yield Finding(Level.ERROR, name, f"{error.what}: {error.means}", error.fix)
        return
    if slot is not None:
        yield from _state(site, slot, running)


def _state(site: Site, slot: Slot, running: RunningConnector | None) -> Iterator[Finding]:
    name, most = site.pipeline.source.slot, site.pipeline.policy.replication_slot_max_lag_mb
    if slot.plugin != "pgoutput" or slot.database != site.pipeline.source.database:
        message = f"slot {name} decodes database {slot.database} with {slot.plugin}: it belongs to something else"
        yield Finding(Level.ERROR, name, message, "choose another source.slot")
    behind = (slot.behind_bytes or 0) // MIB
    if behind > most:
        message = (
            f"slot {name} makes Postgres keep {behind:,} MiB of WAL (policy.replication_slot_max_lag_mb: {most:,})"
        )
        fix = "see that the connector runs (`headwater apply FILE` restarts it); not needed? `headwater drop FILE`"
        yield Finding(Level.ERROR, name, message, fix)
    if slot.wal_status == "unreserved":
        message = (
            f"slot {name} is about to be lost: it is past max_slot_wal_keep_size, and the next checkpoint may end it"
        )
        yield Finding(Level.ERROR, name, message, "get the connector to run now, or raise max_slot_wal_keep_size")
    if slot.active or running is None:
        return
    if running.status is not None and running.status.running and not running.in_snapshot:
        message = f"the connector says RUNNING, but nobody reads from slot {name}: it may be trying again and again"
        yield Finding(Level.WARNING, name, message, "read the worker's log, remove the cause, `headwater apply FILE`")


CHECK = Check("slot", "the slot is alive and not falling behind", run, needs=("server",))
