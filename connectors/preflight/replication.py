"""Does a replication session open, as Debezium needs one? Tried, because no catalogue says so of every service."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from cdc.errors import SourceError
from connectors.postgres import replication_command
from connectors.preflight.model import Check, Finding, Level, Site

# The reasons by which servers and what stands before them refuse one, and what to do about each.
GRANT = "ALTER ROLE {user} REPLICATION, or as the service grants it: GRANT rds_replication TO {user}"
WAYS_OUT = (
    ("REPLICATION attribute", GRANT),
    ("must be superuser", GRANT),
    ("max_wal_senders", "raise max_wal_senders (a restart), or end a sender that is not needed any more"),
    ("pg_hba", "a line in pg_hba.conf for {user} and this database (logical replication needs no `replication` line)"),
    ("startup parameter", "source.host must be Postgres itself, not a pooler"),
)


def run(site: Site) -> Iterator[Finding]:
    """The role opens a session in the replication protocol, and it leads to the same server."""
    source = site.pipeline.source
    row = site.db.execute("SELECT (pg_control_system()).system_identifier::text").fetchone()
    try:
        [[system, *_]] = replication_command(source, "IDENTIFY_SYSTEM")
    except (SourceError, psycopg.Error) as error:
        why = error.what if isinstance(error, SourceError) else str(error).splitlines()[0]
        fix = next((way.format(user=source.user) for part, way in WAYS_OUT if part in why), "")
        message = f"no replication session opens: {why}"
        yield Finding(Level.ERROR, f"role {source.user}", message, fix or "read the server's log")
        return
    if row is not None and str(system) != row[0]:
        message = f"replication sessions lead to another server (system identifier {system}, not {row[0]})"
        yield Finding(Level.ERROR, source.address, message, "give source.host the primary's own address")


CHECK = Check("replication", "a replication session opens", run, needs=("server", "role"))
