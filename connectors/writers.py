"""Transactions that had written to a table before the publication had it: they end before the table is read.

Postgres sends a change if the publication had its table when it was written, whenever it is committed. What a
transaction wrote before its table came is never sent, and who reads the table while it is open does not see it.

So when the publication has the table, those that are open and hold the lock of who writes rows are waited for, as
CREATE INDEX CONCURRENTLY does. Nobody is held up meanwhile. Whoever begins to write later is sent. It is asked for what
there is and not for what was done: killed in between, the next ``apply`` waits again, for the table is not noted as one
to be read before.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from cdc.errors import SourceUnavailable
from cdc.polling import poll
from cdc.waits import waiting_for
from connectors.actions import Action, named
from connectors.captured.captured import Gap
from connectors.database.publication import heeds_changes, publish_again
from connectors.postgres import Connection, explained
from connectors.servers import Servers
from connectors.tables.partitions import over_trees
from connectors.wal.pins import Pin, read_pins

# Waiting does no harm. Of a longer transaction somebody at a terminal wants to know.
WRITERS_SECONDS = 60.0
LOOK_SECONDS = 0.2

# The lock of INSERT, UPDATE, DELETE, MERGE and COPY, held until the transaction has ended and everybody sees what it
# did; of a partition, too. VACUUM, ANALYZE and CREATE INDEX CONCURRENTLY hold others. Whose it is tells the lock that
# each transaction holds of its own number: one that is prepared has no process, and keeps its session's virtual number
# until the server restarts. All are of one look, for a transaction may be prepared between two; amid that some of its
# locks have a process and others have none, so they are not compared by it.
HOLDERS = over_trees("""
, held AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
SELECT DISTINCT x.transactionid::text
FROM held l JOIN pg_database d ON d.oid = l.database JOIN held x ON x.virtualtransaction = l.virtualtransaction
WHERE l.mode = 'RowExclusiveLock' AND d.datname = current_database() AND l.relation IN (SELECT t.oid FROM tree t)
  AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock'
""")


def plan_writers(
    publication: str, tables: Iterable[str], captured: Collection[str], gaps: Mapping[str, Gap]
) -> list[Action]:
    """Wait for who has written to tables before the publication had them, or had them whole. Pure.

    Args:
        publication: its name.
        tables: that are captured, as ``schema.table``.
        captured: those of the list as it is.
        gaps: tables that are to be read again because changes of theirs are missing, and why.

    Returns:
        An action to do when the publication has them, and before they are noted as to be read.
    """
    of = tuple(sorted(t for t in tables if t not in captured or (t in gaps and gaps[t].unsent)))
    if not of:
        return []

    def run(servers: Servers) -> None:
        until = time.monotonic() + WRITERS_SECONDS
        wait_for_writers(servers.source, of, until)
        if not heeds_changes(servers.setup.info.server_version):
            # What was written behind them may be taken for theirs up to this change, and is seen by who reads the table
            # once those who wrote it have ended.
            publish_again(servers.setup, publication, of)
            wait_for_writers(servers.source, of, until)

    detail = "wait for transactions that have written before it was published"
    return [Action("publication", ", ".join(of), detail, "open", "ended", run, of)]


def wait_for_writers(connection: Connection, tables: Collection[str], until: float | None = None) -> None:
    """Wait until those transactions have ended that are open now and have written to tables or their partitions.

    Args:
        connection: any role's, in autocommit.
        tables: ``schema.table``.
        until: when to give up, monotonic seconds; None for WRITERS_SECONDS from now.

    Raises:
        SourceUnavailable: one of them is open then, or there was no answer (transient).
    """
    until = time.monotonic() + WRITERS_SECONDS if until is None else until
    left = read_writers(connection, tables)
    while left:
        seconds = until - time.monotonic()
        if seconds <= 0:
            raise _too_long(left, tables)
        with waiting_for(f"Postgres: {_words(left)}, which has written to {named(tables)}"):
            left = _fewer(connection, left, seconds)


def read_writers(connection: Connection, tables: Collection[str]) -> list[Pin]:
    """The open transactions that have written to tables or their partitions, the oldest first.

    One that has written elsewhere only, and has touched a table without a change, may be among them.

    Args:
        connection: any role's, in autocommit.
        tables: ``schema.table``.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    # In this order: who has written by now, and holds no lock afterwards, has ended.
    pins = read_pins(connection, standbys=False)
    with explained("looking for who writes to tables"):
        holders = connection.execute(HOLDERS, {"tables": sorted(tables)}).fetchall() if pins else []
    holding = {xid for (xid,) in holders}
    return [pin for pin in pins if pin.xid in holding]


def _fewer(connection: Connection, left: Sequence[Pin], seconds: float) -> list[Pin]:
    """Wait until one of them has ended, or time is up; those that are left."""
    return poll(lambda: _open(connection, left), lambda now: len(now) < len(left), seconds, LOOK_SECONDS)


def _open(connection: Connection, seen: Sequence[Pin]) -> list[Pin]:
    """Those of them that are open still, as they are now: one that was prepared meanwhile has not ended."""
    numbers = {pin.xid for pin in seen}
    return [pin for pin in read_pins(connection, standbys=False) if pin.xid in numbers]


def _too_long(left: Sequence[Pin], tables: Collection[str]) -> SourceUnavailable:
    return SourceUnavailable(
        f"{named(tables)}: not read yet, after {WRITERS_SECONDS:.0f} s of waiting for who has written before it was"
        f" published: {_words(left)}",
        means="what was written then is not sent, and not seen before it is committed; what was done before stays",
        fix=f"wait for its end, or {left[0].fix}",
    )


def _words(left: Sequence[Pin]) -> str:
    more = f", and {len(left) - 1:,} more" if len(left) > 1 else ""
    return f"{left[0].words}{more}"
