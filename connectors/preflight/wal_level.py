"""Does the server write what logical decoding needs?"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.preflight.model import Check, Finding, Level, Site


def run(site: Site) -> Iterator[Finding]:
    """wal_level is logical."""
    level = site.setting("wal_level")
    if level != "logical":
        message = f"wal_level is {level}: the WAL does not hold what logical decoding needs"
        fix = "ALTER SYSTEM SET wal_level = 'logical', then restart the server (managed services: their own switch)"
        yield Finding(Level.ERROR, "wal_level", message, fix)


CHECK = Check("wal-level", "wal_level is logical", run, needs=("server",))
