"""Does the source answer, both roles, and is it new enough?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import SourceError
from connectors.preflight.model import Check, Finding, Level, Site

# 13 is the oldest release that the features used here (publish_via_partition_root, wal_status) exist in.
OLDEST = 130000


def run(site: Site) -> Iterator[Finding]:
    """Both roles can log in; the version is supported; it is a primary."""
    source = site.pipeline.source
    for role, connection in ((source.user, site.source), (source.setup_user, site.setup)):
        if isinstance(connection, SourceError) and role:
            yield Finding(Level.ERROR, f"role {role}", connection.what, connection.fix)
    if isinstance(site.source, SourceError):
        return
    version = site.db.info.server_version
    if version < OLDEST:
        message = f"Postgres {version // 10000} is too old: 13 is the oldest that can be captured"
        yield Finding(Level.ERROR, "server version", message, "upgrade the server")
    row = site.db.execute("SELECT pg_is_in_recovery()").fetchone()
    if row and row[0]:
        message = "this server is a standby: publication and slot can't be created here"
        yield Finding(Level.ERROR, "server", message, "point source.host at the primary")


CHECK = Check("server", "Postgres answers and is new enough", run)
