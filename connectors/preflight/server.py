"""Does the source answer, both roles, is it new enough, Postgres itself rather than a pooler before it, and does it
know what its texts are?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import SourceError
from connectors.postgres import is_pooled, pooler_error
from connectors.preflight.model import Check, Finding, Level, Site

# 13 is the oldest release that the features used here (publish_via_partition_root, wal_status) exist in.
OLDEST = 130000


def run(site: Site) -> Iterator[Finding]:
    """Both roles can log in; no pooler stands between; the version is supported; it is a primary."""
    source = site.pipeline.source
    for role, connection in ((source.user, site.source), (source.setup_user, site.setup)):
        if isinstance(connection, SourceError) and role:
            yield Finding(Level.ERROR, f"role {role}", connection.what, connection.fix)
    if isinstance(site.source, SourceError):
        return
    if is_pooled(site.db):
        error = pooler_error(source)
        yield Finding(Level.ERROR, source.address, error.what, error.fix)
        return
    version = site.db.info.server_version
    if version < OLDEST:
        message = f"Postgres {version // 10000} is too old: 13 is the oldest that can be captured"
        yield Finding(Level.ERROR, "server version", message, "upgrade the server")
    row = site.db.execute("SELECT pg_is_in_recovery()").fetchone()
    if row and row[0]:
        message = "this server is a standby: publication and slot can't be created here"
        yield Finding(Level.ERROR, "server", message, "point source.host at the primary")
    if site.setting("server_encoding") == "SQL_ASCII":
        message = (
            "the database's encoding is SQL_ASCII, so Postgres takes any bytes for text: the first change with a text"
            " that is not UTF-8 stops the connector for good, while Kafka Connect says RUNNING"
        )
        fix = "let all applications write UTF-8; better, move the data to a database with ENCODING 'UTF8' (pg_dump)"
        yield Finding(Level.WARNING, f"database {source.database}", message, fix)


CHECK = Check("server", "Postgres answers and is new enough", run)
