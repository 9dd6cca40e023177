"""What Postgres tells of the captured tables: key, replica identity, columns that matter to the capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from connectors.postgres import Connection, explained, unless_locked
from connectors.tables.partitions import over_trees
from connectors.tables.row_security import HIDES

FACTS = over_trees("""
SELECT n.nspname || '.' || c.relname, c.relkind, c.relpersistence, c.relreplident, pg_get_userbyid(c.relowner),
       {hides},
       c.reltuples,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
       c.reltoastrelid <> 0 OR EXISTS (
           SELECT FROM tree t JOIN pg_class p ON p.oid = t.oid WHERE t.root = c.oid AND p.reltoastrelid <> 0),
       (SELECT pn.nspname || '.' || pc.relname FROM pg_inherits h JOIN pg_class pc ON pc.oid = h.inhparent
        JOIN pg_namespace pn ON pn.oid = pc.relnamespace WHERE h.inhrelid = c.oid LIMIT 1),
       c.relispartition,
       EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
       coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped), '{}'),
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated = 'v' AND NOT a.attisdropped),
       (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
        AND i.indpred IS NULL AND NOT EXISTS (
            SELECT FROM unnest(i.indkey) WITH ORDINALITY AS k(attnum, nth)
            LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND a.attnotnull
            WHERE k.nth <= i.indnkeyatts AND a.attnum IS NULL)),
       coalesce((SELECT array_agg(pn.nspname || '.' || pc.relname) FROM tree t
                 JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
                 WHERE t.root = c.oid AND t.oid <> c.oid), '{}'),
       coalesce((SELECT array_agg(pn.nspname || '.' || pc.relname) FROM tree t
                 JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
                 WHERE t.root = c.oid AND t.oid <> c.oid AND pc.relreplident <> 'f'), '{}'),
       coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attgenerated = 's' AND NOT a.attisdropped), '{}'),
       coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
       coalesce((SELECT array_agg(pn.nspname || '.' || pc.relname) FROM tree t
                 JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
                 WHERE t.root = c.oid AND t.oid <> c.oid AND pc.relkind = 'r' AND pc.relpersistence = 'u'), '{}'),
       coalesce((SELECT array_agg(pn.nspname || '.' || pc.relname) FROM tree t
                 JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
                 WHERE t.root = c.oid AND t.oid <> c.oid AND pc.relkind = 'f'), '{}'),
       coalesce((SELECT array_agg(pn.nspname || '.' || pc.relname) FROM tree t
                 JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
                 WHERE t.root = c.oid AND t.oid <> c.oid AND strpos(pn.nspname, '.') > 0), '{}'),
       coalesce((SELECT jsonb_object_agg(pn.nspname || '.' || pc.relname, am.amname) FROM tree t
                 JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
                 JOIN pg_am am ON am.oid = pc.relam
                 WHERE t.root = c.oid AND pc.relkind = 'r'
                   AND am.amhandler <> 'pg_catalog.heap_tableam_handler'::regproc), '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(tables)s)
""").replace("{hides}", HIDES)

# Of those tables, and of what is below them, what Citus has spread over its workers. Only where it is installed.
DISTRIBUTED = over_trees("""
SELECT n.nspname || '.' || c.relname, array_agg(pn.nspname || '.' || pc.relname)
FROM tree t JOIN pg_class c ON c.oid = t.root JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class pc ON pc.oid = t.oid JOIN pg_namespace pn ON pn.oid = pc.relnamespace
WHERE t.oid IN (SELECT logicalrelid FROM pg_catalog.pg_dist_partition)
GROUP BY 1
""")

WRITTEN = """
SELECT n.nspname || '.' || c.relname, array_agg(a.attname::text ORDER BY a.attnum)
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
JOIN pg_class c ON c.oid = d.adrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%s) AND a.attgenerated = '' AND NOT a.attisdropped
  AND pg_get_expr(d.adbin, d.adrelid) ~* '(now|_timestamp)[(]|current_(timestamp|date)|localtimestamp'
  AND pg_get_expr(d.adbin, d.adrelid) !~ '[-+]'
GROUP BY 1
"""


@dataclass(frozen=True)
class TableFacts:
    """One table as Postgres keeps it.

    Attributes:
        name: ``schema.table``.
        kind: ``pg_class.relkind``: r table, p partitioned, f foreign, v view, m materialised view.
        persistence: p permanent, u unlogged, t temporary.
        replica_identity: d default, f full, i index, n nothing.
        owner: the owning role.
        row_security: row-level security would hide rows from who captures them.
        rows: estimate; negative when the table was never analysed.
        has_primary_key: it has one.
        toasted: its values may be stored out of line, so that an update may leave them out.
        parent: the table it inherits from or is a partition of.
        is_partition: of ``parent``.
        has_children: other tables inherit from it or are its partitions.
        generated: its generated columns.
        virtual: one of them is not stored; then Postgres refuses updates under REPLICA IDENTITY FULL (18 and later).
        unique_keys: how many unique indexes could be a row's identity.
        partitions: all tables below a partitioned one.
        partial: those of them without REPLICA IDENTITY FULL.
        stored: those of ``generated`` whose values are kept.
        columns: all of its columns, generated ones too, in its order.
        unlogged: those of ``partitions`` whose changes are not in the log.
        foreign: those of ``partitions`` whose rows are on another server.
        misplaced: those of ``partitions`` in a schema whose name has a dot.
        methods: itself and its partitions, as far as they are kept by another access method than Postgres's own ->
            its name.
        distributed: those of itself and its partitions whose rows Citus keeps in other tables.
    """

    name: str
    kind: str
    persistence: str
    replica_identity: str
    owner: str
    row_security: bool
    rows: float
    has_primary_key: bool
    toasted: bool
    parent: str | None
    is_partition: bool
    has_children: bool
    generated: tuple[str, ...]
    virtual: bool
    unique_keys: int
    partitions: tuple[str, ...]
    partial: tuple[str, ...]
    stored: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    distributed: tuple[str, ...] = ()

    @property
    def not_full(self) -> list[str]:
        """Itself and its partitions, as far as they do not log whole old rows; a new partition does not.

        Not foreign ones: they log nothing, and Postgres refuses to give them a replica identity.
        """
        logging = [name for name in self.partial if name not in self.foreign]
        return [*([self.name] if self.replica_identity != "f" else []), *logging]


def read_facts(connection: Connection, tables: Iterable[str], reader: str | None = None) -> dict[str, TableFacts]:
    """Facts of those tables that exist, by name.

    Args:
        connection: any that may read the system's catalogue.
        tables: ``schema.table``.
        reader: the role that captures them; None while nobody knows which: then one with no rights of its own.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    with explained("reading facts of the tables"):
        out = {}
        asked = {"tables": sorted(tables), "reader": reader}
        found = connection.execute(FACTS, asked).fetchall()
        citus = connection.execute("SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL").fetchone()
        spread: dict[str, list[str]] = (
            dict(connection.execute(DISTRIBUTED, asked).fetchall()) if citus and citus[0] else {}
        )
        for *row, generated, virtual, unique, parts, partial, stored, columns, unlogged, foreign, odd, methods in found:
            below = (tuple(sorted(parts)), tuple(sorted(partial)))
            unfit = (tuple(sorted(unlogged)), tuple(sorted(foreign)), tuple(sorted(odd)))
            others = (methods, tuple(sorted(spread.get(row[0], ()))))
            first = [*row, tuple(generated), virtual, unique, *below, tuple(stored), tuple(columns)]
            fact = TableFacts(*[*first, *unfit, *others])
            out[fact.name] = fact
        return out


def read_written(connection: Connection, tables: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """``schema.table`` -> its columns that are filled with the time of an insert; none while a table is locked."""
    with explained("reading the columns' defaults"):
        found = unless_locked(connection, WRITTEN, [sorted(tables)])
    return {str(table): tuple(columns) for table, columns in found}
