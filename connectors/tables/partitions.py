"""The tables below partitioned ones, and about how many rows each of them all has."""

from __future__ import annotations

from collections.abc import Collection
from typing import LiteralString

from connectors.postgres import Connection, explained

# The tables that were asked for.
_NAMED: LiteralString = "n.nspname || '.' || c.relname = ANY(%(tables)s)"

# Each of them, with all below it if it is partitioned. Not ``pg_partition_tree``, which waits for whoever has locked
# one of them, or waits to: a migration of one table would hold up what is asked of all.
_ROOTS: LiteralString = """
WITH RECURSIVE tree(root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND """
_BELOW: LiteralString = """
    UNION ALL
    SELECT t.root, i.inhrelid
    FROM tree t JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p' JOIN pg_inherits i ON i.inhparent = t.oid
)
"""


def over_trees(query: LiteralString, roots: LiteralString = _NAMED) -> LiteralString:
    """A query that has ``tree``: (``root``, ``oid``) of each table that was asked for, and of each table below one that
    is partitioned. Pure.

    Args:
        query: what follows ``WITH``.
        roots: which tables are asked for, a condition on ``pg_class c`` and its ``pg_namespace n``; by default those of
            the parameter ``tables``, ``schema.table``.
    """
    return _ROOTS + roots + _BELOW + query


# Of those with files of their own, a table that nobody has analysed yet has the rows that were counted as they came;
# where those were lost (a crash, a restored copy), rows of 200 bytes. Only the size of the files waits for a lock.
ROWS = over_trees("""
SELECT n.nspname || '.' || c.relname,
       sum(CASE WHEN p.reltuples > 0 THEN p.reltuples
                WHEN pg_stat_get_live_tuples(p.oid) > 0 THEN pg_stat_get_live_tuples(p.oid)
                ELSE pg_relation_size(p.oid) / 200 END)
FROM tree t JOIN pg_class c ON c.oid = t.root JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'r'
GROUP BY c.oid, 1
""")


def estimated_rows(connection: Connection, tables: Collection[str]) -> dict[str, int]:
    """About how many rows some tables have, with those of their partitions, by the server's statistics.

    Args:
        connection: any role's; catalogues are readable by all.
        tables: ``schema.table``.

    Returns:
        ``schema.table`` -> rows; one that is not there is left out.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    with explained("estimating the tables' rows"):
        found = connection.execute(ROWS, {"tables": sorted(tables)})
        return {str(name): int(count or 0) for name, count in found}
