"""How far a table's snapshot is, in rows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql
from psycopg.errors import LockNotAvailable, QueryCanceled

from connectors.captured.captured import Captured
from connectors.names import identifier
from connectors.postgres import Connection, explained
from connectors.servers import Servers
from connectors.snapshots.signals import Heard
from connectors.tables.partitions import over_trees

# Tables up to this estimated size are counted; larger ones show the planner's estimate, which costs nothing.
COUNT_ROWS = 2_000_000
# And up to so many bytes: few rows can lie in a large file, behind all that were there before them.
ROW_BYTES = 100
# Of a table and its partitions: rows of those that were analysed, as the planner reckons them (in a page there are as
# many as there were then), bytes of those that nobody knows anything of, and of all. Before Postgres 14 a table that
# was never analysed has no rows and no pages; one that was empty when it was has so ever since.
ESTIMATE = over_trees("""
SELECT coalesce(sum(reltuples * bytes / (relpages * current_setting('block_size')::float8)) FILTER (WHERE known), 0),
       coalesce(sum(bytes) FILTER (WHERE NOT known), 0), sum(bytes)
FROM (SELECT p.reltuples::float8, p.relpages, p.reltuples >= 0 AND p.relpages > 0 AS known,
             pg_relation_size(p.oid) AS bytes
      FROM tree t JOIN pg_class p ON p.oid = t.oid WHERE p.relkind = 'r') AS files
""")


@dataclass(frozen=True)
class TableProgress:
    """One table's snapshot.

    Attributes:
        table: ``schema.table``.
        rows: records in its topic so far; rows scanned, once it is done. While missed deletes are looked for, records
            looked at.
        total: rows in the table when the wait began, or an estimate; None if not known, or if there are more than were
            estimated.
        done: all of its rows are in the topic.
        sweeping: missed deletes are looked for now.
        swept: rows that were in the topic and not in the table, and are deleted now; None if nobody looked.
        read: Debezium has read it; it is ``done`` once streaming has begun, or missed deletes are made up for.
    """

    table: str
    rows: int
    total: int | None
    done: bool
    sweeping: bool = False
    swept: int | None = None
    read: bool = False


@dataclass(frozen=True)
class Progress:
    """All snapshots of a pipeline that are not finished, and those that finished during this wait.

    Attributes:
        tables: each of them.
        done: all are.
        chunks: how many chunks were read since the topic of notifications begins: it grows as long as reading goes on.
        sweeps: tables whose missed deletes are looked for, one after the other; 0 while that is not under way.
    """

    tables: tuple[TableProgress, ...]
    done: bool
    chunks: int = 0
    sweeps: int = 0


class Total(NamedTuple):
    """How many rows a table has; counted one by one, or estimated."""

    rows: int
    counted: bool


class SnapshotMeter:
    """Measures one table's snapshot by its topic's growth.

    Args:
        servers: of the pipeline.
        entry: of the table, as it is at the beginning.
    """

    def __init__(self, servers: Servers, entry: Captured) -> None:
        self.table, self.again = entry.table, entry.sweep or entry.condition is not None
        # Under a condition nobody knows before: Postgres would have to read the table for it.
        self.total = total_rows(servers.setup, entry.table) if entry.condition is None else None
        self.before: int | None = None

    def measure(
        self, ends: Iterable[int], heard: Heard, *, done: bool, swept: int | None, read: bool = False
    ) -> TableProgress:
        """The progress, from its topics' end offsets. A table that is read again counts from where the wait began."""
        records = sum(ends)
        if self.before is None:
            self.before = records if self.again else 0
        if done and self.table in heard.rows:
            return TableProgress(self.table, heard.rows[self.table], heard.rows[self.table], done=True, swept=swept)
        rows, total = records - self.before, self.total
        if total is None:
            return TableProgress(self.table, rows, None, done=done, swept=swept, read=read)
        if rows > total.rows and not total.counted:  # it was too low: it would be 100 % to the end, or told as the rows
            return TableProgress(self.table, rows, None, done=done, swept=swept, read=read)
        # More records than were counted are changes that came meanwhile, as are those after its end.
        return TableProgress(self.table, min(rows, total.rows), total.rows, done=done, swept=swept, read=read)


def total_rows(connection: Connection, table: str) -> Total | None:
    """Rows of a table and its partitions: counted when few, else estimated; None if only counting tells, or if that
    takes too long, or somebody has locked the table: nothing depends on it."""
    with explained(f"counting rows of {table}"), suppress(QueryCanceled, LockNotAvailable):
        row = connection.execute(ESTIMATE, {"tables": [table]}).fetchone()
        if row is None or row[2] is None:
            return None
        rows, unknown_bytes, all_bytes = row
        if unknown_bytes > COUNT_ROWS * ROW_BYTES:
            return None
        if rows > COUNT_ROWS or all_bytes > COUNT_ROWS * ROW_BYTES:
            return Total(int(rows), counted=False) if int(rows) else None
        counted = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(identifier(table))).fetchone()
        return Total(int(counted[0]), counted=True) if counted else None
    return None
