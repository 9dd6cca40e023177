"""Is the replication slot alive, ours, and not about to be lost?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import HeadwaterError, SourceChanged, SourceError
from connectors.captured.captured import read_captured
from connectors.connector import RunningConnector, read_connector
from connectors.database.history import read_moment
from connectors.database.slot import Slot
from connectors.database.timeline import noted_timeline
from connectors.debezium import connector_name
from connectors.gaps.lost_offset import read_whole, refuse_lost_offset, refuse_read_twice
from connectors.gaps.renamed import refuse_renamed
from connectors.gaps.source_gaps import (
    refuse_empty,
    refuse_future,
    refuse_gap,
    refuse_other,
    refuse_other_database,
    refuse_unfollowed,
)
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.rest import STANDS_STILL
from connectors.wal.budget import judge
from connectors.wal.look import look

READ_ON = (
    "see that the connector runs: `headwater apply FILE` starts one that has failed or was stopped, of one that says"
    f" RUNNING {STANDS_STILL}; not needed? `headwater drop FILE`"
)


def run(site: Site) -> Iterator[Finding]:
    """It can give every change since the connector's last; somebody reads it; the WAL it keeps is within the policy."""
    name = site.pipeline.source.slot
    yield from _old_name(site)
    seen = look(site.db, name)
    slot = seen.slot
    try:
        running = read_connector(site.connect, connector_name(site.pipeline))
    except HeadwaterError:  # the check «connect» says so
        if slot is not None:
            yield from _state(site, slot, seen.limit_bytes, None)
        return
    captured = read_captured(site.db, site.names)
    if slot is None and (running is None or (running.offset is None and not read_whole(captured))):
        yield Finding(
            Level.NOTE,
            name,
            f"slot {name} does not exist yet",
            "Debezium creates it with its snapshot after `headwater apply`",
        )
        return
    if running is None and slot is not None and captured:
        # Connect keeps the offsets of a deleted connector, and tells them only of one that exists: `apply` looks.
        message = f"nobody reads from slot {name}: its connector {connector_name(site.pipeline)} is gone"
        yield Finding(Level.ERROR, name, message, "`headwater apply FILE` makes it again; it goes on where it was")
        yield from _state(site, slot, seen.limit_bytes, None)
        return
    try:
        now = read_moment(site.db)
        if running is not None:
            refuse_renamed(site.pipeline, running.config)
            refuse_other(running.config, now)
            refuse_other_database(site.pipeline.name, site.pipeline.source.database, running.config, slot)
            refuse_future(now, running.offset)
        refuse_unfollowed(noted_timeline(site.db, site.names), now)
        refuse_empty(slot, running.offset if running else None, captured)
        if running is not None:
            refuse_lost_offset(running.offset, captured)
            refuse_read_twice(site.kafka, site.pipeline, site.db, captured)
        refuse_gap(name, slot, running.offset if running else None)
    except (SourceError, SourceChanged) as error:
        yield Finding(Level.ERROR, name, f"{error.what}: {error.means}", error.fix)
        return
    if slot is not None:
        yield from _state(site, slot, seen.limit_bytes, running)


def _old_name(site: Site) -> Iterator[Finding]:
    """A key that has another name now; its value counts as ever."""
    old = site.pipeline.policy.replication_slot_max_lag_mb
    if old is not None:
        key = "policy.replication_slot_max_lag_mb"
        place = str(site.pipeline.locate(("policy", "replication_slot_max_lag_mb")))
        message = f"{f'{place}: ' if place else ''}{key} is the old name of policy.wal_budget"
        yield Finding(Level.NOTE, key, message, f"write wal_budget: {old}MiB")


def _state(site: Site, slot: Slot, limit: int | None, running: RunningConnector | None) -> Iterator[Finding]:
    name = site.pipeline.source.slot
    if slot.plugin != "pgoutput" or slot.database != site.pipeline.source.database:
        message = f"slot {name} decodes database {slot.database} with {slot.plugin}: it belongs to something else"
        yield Finding(Level.ERROR, name, message, "choose another source.slot")
    kept = judge(retained=slot.behind_bytes, budget=site.pipeline.policy.wal_bytes, limit=limit)
    if kept.level not in (None, "none"):
        yield Finding(Level.WARNING if kept.level == "warn" else Level.ERROR, name, kept.words(name), READ_ON)
    if slot.wal_status == "unreserved":
        message = (
            f"slot {name} is about to be lost: it is past max_slot_wal_keep_size, and the next checkpoint may end it"
        )
        yield Finding(Level.ERROR, name, message, "get the connector to run now, or raise max_slot_wal_keep_size")
    if slot.active or running is None:
        return
    if running.status is not None and running.status.running and not running.in_snapshot:
        message = f"the connector says RUNNING, but nobody reads from slot {name}: it may be trying again and again"
        yield Finding(Level.WARNING, name, message, STANDS_STILL)


CHECK = Check("slot", "the slot is alive and not falling behind", run, needs=("server",))
