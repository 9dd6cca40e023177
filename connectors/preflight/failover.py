"""Would the slot survive a failover, where there is a standby to fail over to?"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.database.slot import read_slot
from connectors.failover import SINCE, wanted
from connectors.preflight.model import Check, Finding, Level, Site

# Senders of the physical log have no database; backups and archivers come and go, and are promoted by nobody.
STANDBYS = """
SELECT r.application_name FROM pg_stat_replication r JOIN pg_stat_activity a ON a.pid = r.pid
WHERE a.datid IS NULL AND r.application_name NOT IN ('pg_basebackup', 'pg_receivewal') ORDER BY 1
"""
PHYSICAL = """
SELECT slot_name, active, xmin IS NOT NULL FROM pg_replication_slots WHERE slot_type = 'physical' ORDER BY 1
"""
# The worker on a standby that copies slots asks the primary over an ordinary session of this name.
WORKERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%slotsync worker'"


def run(site: Site) -> Iterator[Finding]:
    """With a standby: the slot is a failover slot, standbys copy it, and the connector does not get ahead of them."""
    standbys = [name for (name,) in site.db.execute(STANDBYS)]
    physical = site.db.execute(PHYSICAL).fetchall()
    if not standbys and not physical:
        return
    name, version = site.pipeline.source.slot, site.db.info.server_version
    if version < SINCE:
        message = f"Postgres {version // 10000} has no failover slots: after a failover every table is read again"
        yield Finding(Level.NOTE, "server version", message, "Postgres 17 has them")
        return
    slot = read_slot(site.db, name)
    if slot is not None and slot.failover is False:
        message = f"slot {name} is no failover slot: on a promoted standby it is not there"
        fix = "`headwater apply FILE` makes it one"
        if not wanted(site.pipeline, version):
            fix = "take slot.failover out of connect.options, then `headwater apply FILE`"
        yield Finding(Level.WARNING, name, message, fix)
    yield from _ahead(site, [slot_name for slot_name, _, _ in physical])
    yield from _copied(site, [slot_name for slot_name, active, holds in physical if active and not holds])


def _ahead(site: Site, physical: list[str]) -> Iterator[Finding]:
    """The setting of the primary that keeps the connector behind its standbys."""
    if site.setting("synchronized_standby_slots").strip():
        return  # whether those that are named are there, the check «transactions» tells
    message = (
        "synchronized_standby_slots is empty: the connector may read a commit before any standby has it, and a standby"
        " that is promoted without it can't be followed"
    )
    named = ", ".join(physical) or "…"
    fix = f"ALTER SYSTEM SET synchronized_standby_slots = '{named}', which are the slots of the standbys, and reload"
    if not physical:
        fix += "; a standby without a slot needs one first (primary_slot_name)"
    yield Finding(Level.WARNING, "synchronized_standby_slots", message, fix)


def _copied(site: Site, silent: list[str]) -> Iterator[Finding]:
    """What is set on the standbys, as far as the primary can see."""
    if silent:
        named = ", ".join(silent)
        message = f"the standby of slot {named} sends no feedback: a copy of the slot there can be invalidated"
        yield Finding(Level.WARNING, "hot_standby_feedback", message, "hot_standby_feedback = on, on the standby")
    found = site.db.execute(WORKERS).fetchone()
    if not (found and found[0]):
        message = "no standby copies slots: its worker would have a session here"
        fix = "on the standby: sync_replication_slots = on, hot_standby_feedback = on, dbname=… in primary_conninfo"
        yield Finding(Level.WARNING, "sync_replication_slots", message, fix)


CHECK = Check("failover", "the slot survives a failover", run, needs=("server",))
