"""Is the WAL that slots keep bounded, and is there disk for it?"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from connectors.preflight.model import Check, Finding, Level, Site, Skipped

GIB = 2**30


def run(site: Site) -> Iterator[Finding]:
    """max_slot_wal_keep_size bounds what a forgotten slot may keep, and no time does; the WAL's size is told where it
    may be asked."""
    keep = int(site.setting("max_slot_wal_keep_size") or -1)
    if keep == -1:
        message = (
            "max_slot_wal_keep_size is not set: a connector that is away makes the WAL grow until the disk is full"
        )
        fix = "ALTER SYSTEM SET max_slot_wal_keep_size = '…GB' to what the disk can spare, and alarm on the slot's lag"
        yield Finding(Level.WARNING, "max_slot_wal_keep_size", message, fix)
    if int(site.setting("idle_replication_slot_timeout") or 0):  # since Postgres 18
        message = (
            "idle_replication_slot_timeout is set: a connector that is away for longer loses its slot at the next"
            " checkpoint, however little WAL that keeps, and every table has to be read again"
        )
        fix = "ALTER SYSTEM SET idle_replication_slot_timeout = 0; max_slot_wal_keep_size bounds what a slot keeps"
        yield Finding(Level.WARNING, "idle_replication_slot_timeout", message, fix)
    try:
        row = site.db.execute("SELECT sum(size), count(*) FROM pg_ls_waldir()").fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        if keep == -1:
            return
        raise Skipped(
            "the role may not list the WAL (GRANT pg_monitor lets it); free disk can't be asked of Postgres"
        ) from error
    size = int(row[0] or 0) if row else 0
    limit = int(site.setting("max_wal_size")) * 2**20
    if size > 4 * limit:
        message = (
            f"there are {size / GIB:.1f} GiB of WAL, over four times max_wal_size: something makes Postgres keep it"
        )
        yield Finding(
            Level.WARNING, "pg_wal", message, "SELECT slot_name, wal_status, restart_lsn FROM pg_replication_slots"
        )


CHECK = Check("disk", "the WAL that slots keep is bounded", run, needs=("server",))
