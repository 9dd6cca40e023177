"""What is done to each captured table, as Postgres counts it: rows inserted, updated, deleted; and how fast."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.postgres import Connection, explained
from connectors.tables.partitions import over_trees

KINDS = ("inserted", "updated", "deleted")
# As the rates on the page's arrows.
RATE_SECONDS = 15.0
# A partitioned table counts nothing by itself: its partitions do.
_COUNTED = over_trees("""
SELECT n.nspname || '.' || c.relname, sum(pg_stat_get_tuples_inserted(t.oid))::bigint,
       sum(pg_stat_get_tuples_updated(t.oid))::bigint, sum(pg_stat_get_tuples_deleted(t.oid))::bigint
FROM tree t JOIN pg_class c ON c.oid = t.root JOIN pg_namespace n ON n.oid = c.relnamespace
GROUP BY c.oid, 1
""")


def counted(connection: Connection, tables: Sequence[str]) -> dict[str, dict[str, int]]:
    """Rows inserted, updated and deleted since Postgres began to count (a crash, or ``pg_stat_reset``).

    Args:
        connection: of any role: everybody may see these.
        tables: ``schema.table``.

    Returns:
        table -> kind -> rows; those that are not there are left out.

    Raises:
        SourceError: Postgres refuses, or does not answer (transient).
    """
    with explained("counting what is done to tables"):
        rows = connection.execute(_COUNTED, {"tables": list(tables)}).fetchall()
    return {str(row[0]): dict(zip(KINDS, map(int, row[1:]), strict=True)) for row in rows}


class Rates:
    """How fast each table is changed, by what was counted at several moments."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, Mapping[str, int]]]] = deque(maxlen=64)

    def add(self, at: float, tables: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
        """Take in one look.

        Args:
            at: epoch seconds.
            tables: of ``tables_report``.

        Returns:
            table -> kind -> rows a second over the last while; None while there was one look, or the counts went back.
        """
        now = {one["table"]: {kind: one[kind] for kind in KINDS} for one in tables if one["inserted"] is not None}
        self._seen.append((at, now))
        since, before = next(one for one in self._seen if 0.0 <= at - one[0] <= RATE_SECONDS)
        return {
            table: {kind: _rate(before.get(table, {}).get(kind), count, at - since) for kind, count in counts.items()}
            for table, counts in now.items()
        }


def _rate(before: int | None, now: int, seconds: float) -> float | None:
    return None if before is None or seconds <= 0 or now < before else round((now - before) / seconds, 2)
