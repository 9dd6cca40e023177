"""Reads the shapes of the captured tables, at one moment, and cheaply tells whether any may have changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import errors

from cdc.catalogue import Catalogue
from cdc.errors import SourceError
from cdc.shapes import MOST_LEAVES, Shape, leaf_print
from connectors.postgres import Connection, explained
from connectors.tables.catalogue import read_catalogue, schema_of
from connectors.tables.partitions import over_trees

# A partitioned table has no files of its own, its leaves have. A default leaves values in rows that nobody has written,
# also one of the column's domain, and an identity's sequence. What a constant default left when it was dropped again,
# a partitioned table has in its partitions alone.
FACTS = over_trees(""", leaf(root, oid, attached) AS (
    SELECT t.root, t.oid, i.xmin::text
    FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_inherits i ON i.inhrelid = t.oid
    WHERE c.relkind <> 'p' AND t.oid <> t.root
)
SELECT n.nspname || '.' || c.relname, c.oid::bigint, pg_relation_filenode(c.oid)::text,
       ARRAY(SELECT a.attnum::int FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
               AND (a.atthasdef OR a.atthasmissing OR a.attidentity <> '' OR t.typdefault IS NOT NULL OR EXISTS (
                   SELECT FROM leaf p JOIN pg_attribute l ON l.attrelid = p.oid AND l.attname = a.attname
                   WHERE p.root = c.oid AND l.atthasmissing))
             ORDER BY 1),
       ARRAY(SELECT ARRAY[p.oid::text, p.oid::regclass::text, p.attached,
                          coalesce(pg_relation_filenode(p.oid), 0)::text]
             FROM leaf p WHERE p.root = c.oid ORDER BY p.oid),
       ARRAY(SELECT ARRAY[a.attnum::text, a.xmin::text] FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname || '.' || c.relname = ANY(%(tables)s)
""")

# Captured tables, by a hash of their names: compared one by one, 500 of them would be looked for in each row.
CAPTURED = """n.nspname = ANY(%(schemas)s) AND (
        n.nspname || '.' || c.relname IN (SELECT unnest(%(tables)s::text[]))
        OR n.nspname = ANY(%(whole)s) AND NOT c.relispartition)"""

# All that a shape is made of, as one text: the row versions of the catalogues that hold it, of captured tables alone.
# Of a partition without its columns: what changes them changes its root's too, or attaches it, or gives it new files.
# Statistics are not among them, but ANALYZE writes pg_class now and then: a look too many, no more.
PRINT = over_trees(
    """
SELECT md5(
    coalesce((SELECT string_agg(t.root::text || '/' || c.oid::text || c.relname || n.nspname || c.relfilenode::text
                                || c.relkind::text || c.relreplident::text, ',' ORDER BY t.root, c.oid)
              FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace), '') ||
    coalesce((SELECT string_agg(a.attrelid::text || '/' || a.attnum::text || '/' || a.xmin::text, ','
                                ORDER BY a.attrelid, a.attnum)
              FROM pg_attribute a
              WHERE a.attrelid = ANY(ARRAY(SELECT DISTINCT root FROM tree)) AND a.attnum > 0), '') ||
    coalesce((SELECT string_agg(i.inhrelid::text || '/' || i.xmin::text, ',' ORDER BY i.inhrelid, i.inhparent)
              FROM tree t JOIN pg_inherits i ON i.inhrelid = t.oid), '') ||
    coalesce((SELECT string_agg(e.oid::text || e.enumlabel::text, ',' ORDER BY e.oid) FROM pg_enum e), '') ||
    coalesce((SELECT string_agg(i.indexrelid::text || i.xmin::text, ',' ORDER BY i.indexrelid)
              FROM pg_index i WHERE i.indrelid = ANY(ARRAY(SELECT DISTINCT root FROM tree)) AND i.indisunique), ''))
""",
    CAPTURED,
)

WAL = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END)
       - '0/0'::pg_lsn
"""

# Those that have a number, and whose end nobody can see yet; of each the half that the log has. In this order: one that
# is being prepared is found in one of the two. (A snapshot names none beyond the last one that has ended.)
OPEN = """
SELECT backend_xid::text::bigint FROM pg_stat_activity WHERE backend_xid IS NOT NULL
UNION ALL SELECT transaction::text::bigint FROM pg_prepared_xacts
"""

READING = "reading the captured tables' columns"


def fingerprint(connection: Connection, tables: Sequence[str]) -> str:
    """A text that is another one whenever the shape of a captured table may have changed; of some hundred tables cheap
    enough for every second.

    Args:
        connection: any role that may connect.
        tables: as in ``source.tables``, ``schema.*`` included.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    with explained("looking at the captured tables' columns"):
        row = connection.execute(PRINT, _captured(tables)).fetchone()
    assert row is not None
    return str(row[0])


def _captured(tables: Sequence[str]) -> dict[str, list[str]]:
    """The parameters of ``CAPTURED``; a whole schema is ``schema.*``. Pure."""
    whole = {schema_of(table) for table in tables if table.endswith(".*")}
    named = {table for table in tables if not table.endswith(".*")}
    return {
        "schemas": sorted({schema_of(table) for table in tables}),
        "tables": sorted(named),
        "whole": sorted(whole),
    }


def read_shapes(
    connection: Connection,
    tables: Sequence[str],
    places: Mapping[str, str] | None = None,
    absent: list[SourceError] | None = None,
) -> tuple[Catalogue, Mapping[str, Shape]]:
    """The captured tables and their shapes, all at one moment.

    Args:
        connection: any role that may connect.
        tables: as in ``source.tables``.
        places: as for ``read_catalogue``.
        absent: takes the error of each table that is not there.

    Returns:
        The catalogue, which holds for records up to its ``lsn`` but those of its ``unseen`` transactions, which may be
        changing a table; and for each table its shape, whose ``since`` is a position by which it certainly held.

    Raises:
        SourceError: as ``read_catalogue`` (SourceUnavailable: transient).
    """
    with explained(READING):
        first = _position(connection)
        # What has written before ``first``, and is not among them, is seen by who looks after this.
        unseen = frozenset(number for (number,) in connection.execute(OPEN))
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            catalogue, facts = _look(connection, tables, places, absent)
        last = _position(connection)
    return replace(catalogue, lsn=first, unseen=unseen), _shapes(catalogue, facts, last)


def read_shapes_inside(connection: Connection, tables: Sequence[str]) -> tuple[Catalogue, Mapping[str, Shape]]:
    """The same inside of a transaction of the caller's, as that one has made the tables; without those that are gone.

    Args:
        connection: in a transaction, REPEATABLE READ if all shall be of one moment.
        tables: as in ``source.tables``.

    Raises:
        SourceError: as ``read_shapes``.
    """
    with explained(READING):
        catalogue, facts = _look(connection, tables, None, [])
        position = _position(connection)
    return replace(catalogue, lsn=position), _shapes(catalogue, facts, position)


def _position(connection: Connection) -> int:
    row = connection.execute(WAL).fetchone()
    assert row is not None
    return int(row[0])


def _look(
    connection: Connection,
    tables: Sequence[str],
    places: Mapping[str, str] | None,
    absent: list[SourceError] | None,
) -> tuple[Catalogue, list[tuple[Any, ...]]]:
    catalogue = read_catalogue(connection, tables, places, absent)
    try:
        return catalogue, connection.execute(FACTS, {"tables": list(catalogue.tables)}).fetchall()
    except errors.UndefinedTable as error:  # dropped between the two
        raise SourceError(f"a captured table was dropped while it was looked at: {error}") from error


def _shapes(catalogue: Catalogue, facts: Sequence[tuple[Any, ...]], since: int) -> dict[str, Shape]:
    shapes = {}
    for name, oid, file, filled, below, rows in facts:
        parts = tuple((int(leaf), title, attached) for leaf, title, attached, _ in below)
        written = tuple((int(number), xmin) for number, xmin in rows)
        leaves = None if file else tuple((int(leaf), int(its)) for leaf, _, _, its in below)
        files = str(file or "")
        if leaves is not None and len(leaves) > MOST_LEAVES:
            files, leaves = leaf_print(leaves), None
        table = catalogue.tables[name]
        shapes[name] = Shape(table, since, int(oid), files, tuple(filled), parts, written, leaves)
    return shapes
