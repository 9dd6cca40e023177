"""Tables that Postgres has written anew while the connector's first snapshot was being read.

That snapshot is one transaction, whose moment is that of the slot. An ``ALTER TABLE`` that writes every row anew
(another type, a default that is computed for each), ``TRUNCATE`` and pg_repack leave rows which are younger than that
moment: to the snapshot the table is empty, and the log tells of no row, because none was inserted. (Postgres's manual,
chapter "Concurrency Control", section "Caveats".) What is read afterwards, table by table, sees them: so such a table
is read again by an incremental snapshot before it counts as complete.
"""

from __future__ import annotations

from collections.abc import Collection

from connectors.captured.captured import Captured
from connectors.database.sightings import files_of
from connectors.postgres import Connection


def rewritten(connection: Connection, entries: Collection[Captured]) -> set[str]:
    """Tables whose rows lie in other files than when their capture was noted, before the slot was made. Whether the
    snapshot had read one before that or after it is not known.

    Args:
        connection: any role's.
        entries: tables that the first snapshot has read.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    then = {entry.table: entry.identity.files for entry in entries if entry.identity and entry.identity.files}
    now = files_of(connection, then) if then else {}
    return {table for table, files in then.items() if now.get(table, files) != files}
