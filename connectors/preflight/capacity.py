"""Is there room for one more replication slot and one more sender?"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.preflight.model import Check, Finding, Level, Site


def run(site: Site) -> Iterator[Finding]:
    """max_replication_slots and max_wal_senders leave room, unless our slot is there already."""
    slots = site.db.execute("SELECT slot_name, active FROM pg_replication_slots").fetchall()
    ours = any(name == site.pipeline.source.slot for name, _ in slots)
    most = int(site.setting("max_replication_slots"))
    if not ours and len(slots) >= most:
        message = f"all {most} replication slots are taken"
        fix = "drop one that nobody needs (see pg_replication_slots), or raise max_replication_slots and restart"
        yield Finding(Level.ERROR, "max_replication_slots", message, fix)
    row = site.db.execute("SELECT count(*) FROM pg_stat_replication").fetchone()
    senders, most = int(row[0]) if row else 0, int(site.setting("max_wal_senders"))
    streaming = any(name == site.pipeline.source.slot and active for name, active in slots)
    if not streaming and senders >= most:
        message = f"all {most} WAL senders are busy: the connector could not stream"
        yield Finding(Level.ERROR, "max_wal_senders", message, "raise max_wal_senders and restart the server")


CHECK = Check("capacity", "there is room for a slot and a WAL sender", run, needs=("server",))
