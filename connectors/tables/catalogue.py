"""Reads the captured tables' definitions from Postgres into ``cdc.catalogue``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString, NamedTuple

from cdc.catalogue import Catalogue, Column, NotUnique, Table
from cdc.errors import SourceError
from cdc.types import taken
from connectors.postgres import Connection, explained, unless_locked

# What has a name like a table's, and no changes in the log; with what to do instead.
OTHER_KINDS = {"v": "a view", "m": "a materialised view", "f": "a foreign table", "S": "a sequence"}
OF_TABLES = "name the tables that it is made of, and join them in a view of the pipeline"
ELSEWHERE = {"f": "capture it in the database that has its rows, or leave it out", "S": "leave it out"}

REPLICA_IDENTITY = {"d": "default", "n": "nothing", "f": "full", "i": "index"}

RELATIONS = """
SELECT c.oid, n.nspname, c.relname, c.relreplident
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname = ANY(%s)
"""

# Indexes that can be a row's identity. The key is the primary key, else the one that the replica identity names, else,
# with REPLICA IDENTITY FULL, which names none, the only one there is.
KEYS = """
SELECT i.indrelid, i.indisprimary, i.indisreplident, array_agg(a.attname::text ORDER BY k.nth)
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, nth)
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND a.attnotnull
WHERE i.indrelid = ANY(%s) AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
  AND k.nth <= i.indnkeyatts
GROUP BY i.indexrelid, 1, 2, 3 HAVING count(*) = count(a.attname)
"""

# Unique indexes, the primary key's too: oid, name, whether it has a condition and is valid, its columns in order (NULL
# for an expression), and all that it names. One that is deferrable is as good: at the end of a transaction it holds.
UNIQUE = """
SELECT i.indrelid, i.indexrelid, c.relname, i.indpred IS NOT NULL, i.indisvalid,
       (SELECT array_agg(a.attname::text ORDER BY k.nth)
        FROM unnest(i.indkey) WITH ORDINALITY AS k(attnum, nth)
        LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
        WHERE k.nth <= i.indnkeyatts),
       ARRAY(SELECT DISTINCT a.attname::text
             FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
             WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
               AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid AND d.refobjsubid > 0
             ORDER BY 1)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = ANY(%s) AND i.indisunique AND NOT i.indisexclusion
ORDER BY c.relname
"""

# What Postgres says of an index in words waits for whoever has locked its table, or waits to: a long migration of one
# table would hold up what is read of all. So words are read only of indexes that make no key, and not waited for.
WORDS = """
SELECT indexrelid, pg_get_expr(indpred, indrelid), pg_get_indexdef(indexrelid) FROM pg_index WHERE indexrelid = ANY(%s)
"""

# Generated columns are left out: pgoutput sends none (since Postgres 18 the stored ones), a snapshot would read all,
# and the two must agree.
_COLUMNS_OF = """
SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid, a.atttypmod, a.attnotnull, a.attnum,
       EXISTS (SELECT FROM pg_collation co WHERE co.oid = a.attcollation AND NOT co.collisdeterministic)
FROM pg_attribute a
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
"""
COLUMNS = f"{_COLUMNS_OF}ORDER BY a.attrelid, a.attnum"

# Only those that may be a key's: they are looked at every other second.
UNIQUE_COLUMNS = f"""{_COLUMNS_OF}  AND EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY(i.indkey))
"""

# They are left out, and known by name: a record that has one all the same is no record of another shape.
GENERATED = """
SELECT attrelid, array_agg(attname::text ORDER BY attnum) FROM pg_attribute
WHERE attrelid = ANY(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated <> '' GROUP BY 1
"""

# Types that columns use, with what they are made of: a domain's base, an array's element. The schema is that of a type
# which is neither Postgres's own nor an extension's.
TYPES = """
WITH RECURSIVE used(oid) AS (
    SELECT unnest(%s::oid[])
    UNION
    SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
    FROM used u JOIN pg_type t ON t.oid = u.oid
    WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
)
SELECT t.oid, t.typname, t.typtype, t.typbasetype, t.typtypmod, t.typcategory = 'A' AND t.typelem <> 0, t.typelem,
       t.typnotnull,
       (SELECT n.nspname FROM pg_namespace n WHERE n.oid = t.typnamespace AND n.nspname <> 'pg_catalog' AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')),
       (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid)
FROM used u JOIN pg_type t ON t.oid = u.oid
"""


class _Type(NamedTuple):
    oid: int
    name: str
    kind: str
    base: int
    base_typmod: int
    is_array: bool
    element: int
    not_null: bool
    schema: str | None
    labels: list[str] | None

    @property
    def called(self) -> str:
        """Its name; one of a user's own that is called like another one has its schema before it."""
        return self.name if self.schema is None or not taken(self.name) else f"{self.schema}.{self.name}"


class _Attribute(NamedTuple):
    name: str
    type_name: str
    type_oid: int
    typmod: int
    not_null: bool
    number: int
    collated: bool


def read_catalogue(
    connection: Connection,
    tables: Sequence[str],
    places: Mapping[str, str] | None = None,
    absent: list[SourceError] | None = None,
) -> Catalogue:
    """Read the definitions of the captured tables.

    Args:
        connection: any role that may connect; catalogues are readable by all.
        tables: ``schema.table`` or ``schema.*``, unquoted, as in ``source.tables``.
        places: where each of them stands in the pipeline file (``file:line:column``), for messages.
        absent: takes the error of each table that is not there, which is then left out instead.

    Returns:
        The tables by qualified name, in the file's order, with the server's identity.

    Raises:
        SourceError: a table is not there (named, with near misses; terminal), or Postgres refused.
        SourceUnavailable: the connection broke (transient).
    """
    with explained("reading the catalogue"):
        found = {
            f"{schema}.{name}": (oid, schema, name, ident)
            for oid, schema, name, ident in connection.execute(RELATIONS, [sorted({schema_of(t) for t in tables})])
        }
        wanted: list[str] = []
        for table in tables:
            try:
                wanted += expand(connection, [table], found, places or {})
            except SourceError as error:
                if absent is None or error.transient:
                    raise
                absent.append(error)
        wanted = list(dict.fromkeys(wanted))
        oids = [found[name][0] for name in wanted]
        indexes = _by_table(connection.execute(KEYS, [oids]))
        unique = _unique(connection, oids)
        columns = _columns(connection, COLUMNS, oids)
        generated: dict[int, list[str]] = dict(connection.execute(GENERATED, [oids]).fetchall())
        out = {}
        for qualified in wanted:
            oid, schema, name, ident = found[qualified]
            identity = REPLICA_IDENTITY[ident]
            key = key_of(identity, indexes.get(oid, ()))
            keys, others = unique_keys(unique.get(oid, ()), key)
            of, left_out = tuple(columns.get(oid, ())), tuple(generated.get(oid, ()))
            out[qualified] = Table(schema, name, of, key, identity, left_out, unique_keys=keys, not_unique=others)
        return Catalogue(out, *_identity(connection))


def _unique(connection: Connection, oids: Sequence[int]) -> dict[int, list[tuple[Any, ...]]]:
    """As ``unique_keys`` takes them, by table."""
    rows = connection.execute(UNIQUE, [oids]).fetchall()
    odd = [oid for _, oid, _, partial, _, columns, _ in rows if partial or None in columns]
    words: dict[int, tuple[str | None, str]] = {}
    if odd:
        found = unless_locked(connection, WORDS, [odd])
        words = {oid: (condition, definition.partition(" USING ")[2]) for oid, condition, definition in found}
    return _by_table(
        (table, name, partial, valid, *words.get(oid, (None, "")), columns, named)
        for table, oid, name, partial, valid, columns, named in rows
    )


def unique_columns(connection: Connection, oids: Sequence[int]) -> dict[int, list[Column]]:
    """Columns of tables that are in a unique index, by the tables' oids.

    Raises:
        psycopg.Error: Postgres refused, or the connection broke.
    """
    return _columns(connection, UNIQUE_COLUMNS, oids)


def _columns(connection: Connection, query: LiteralString, oids: Sequence[int]) -> dict[int, list[Column]]:
    found = [(oid, _Attribute(*of)) for oid, *of in connection.execute(query, [oids])]
    # Of these columns alone: tables are wide, and their keys, which are looked at every other second, are not.
    used = sorted({attribute.type_oid for _, attribute in found})
    types = {row[0]: _Type(*row) for row in connection.execute(TYPES, [used])} if used else {}
    columns: dict[int, list[Column]] = {}
    for oid, attribute in found:
        columns.setdefault(oid, []).append(_column(types, attribute))
    return columns


def _by_table(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Rows by the oid that they begin with, without it."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for oid, *rest in rows:
        found.setdefault(oid, []).append(tuple(rest))
    return found


def schema_of(table: str) -> str:
    """The schema part of ``schema.table``: up to the first dot."""
    return table.partition(".")[0]


def expand(
    connection: Connection, tables: Sequence[str], found: Mapping[str, Any], places: Mapping[str, str]
) -> list[str]:
    """Resolve ``schema.*`` and refuse tables that are not there.

    Raises:
        SourceError: names the missing table and what looks like it (terminal).
    """
    wanted: dict[str, None] = {}
    for table in tables:
        where = f"{places[table]}: " if places.get(table) else ""
        if table.endswith(".*"):
            members = _captured_by_star(connection, schema_of(table))
            if not members:
                raise SourceError(
                    f"{where}source.tables: {table} matches no table", fix="name a schema that has tables"
                )
            wanted.update(dict.fromkeys(members))
        elif table in found:
            wanted[table] = None
        else:
            if what := other_kind(_kind(connection, table)):
                raise SourceError(
                    f"{where}source.tables: {table} is {what[0]}", means="nothing was read or changed", fix=what[1]
                )
            raise SourceError(
                f"{where}source.tables: there is no table {table} in this database{_near(connection, table)}",
                means="nothing was read or changed",
                fix="correct the name under source.tables (schema.table, without quotes), or create the table",
            )
    return list(wanted)


def other_kind(kind: str | None) -> tuple[str, str] | None:
    """What a relation that can't be captured is, and what to do instead; None for a table, and for none. Pure.

    Args:
        kind: ``pg_class.relkind``; None if there is no relation of that name.
    """
    if kind not in OTHER_KINDS:
        return None
    return f"{OTHER_KINDS[kind]}: its changes are not in the log", ELSEWHERE.get(kind, OF_TABLES)


def _kind(connection: Connection, table: str) -> str | None:
    row = connection.execute(
        "SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname || '.' || c.relname = %s",
        [table],
    ).fetchone()
    return str(row[0]) if row else None


def _captured_by_star(connection: Connection, schema: str) -> list[str]:
    """What ``schema.*`` stands for: no partitions (their root is there), nothing that belongs to an extension."""
    rows = connection.execute(
        """
        SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
        ORDER BY 1
        """,
        [schema],
    )
    return [row[0] for row in rows]


def _near(connection: Connection, table: str) -> str:
    rows = connection.execute(
        """
        SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
        """
    )
    close = near_misses(table, (row[0] for row in rows))
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def near_misses(table: str, names: Iterable[str]) -> list[str]:
    """Up to three names that look like ``table``; the same name in another schema or spelling comes first."""
    names = sorted(names)
    bare = table.partition(".")[2].lower()
    same = [name for name in names if name.partition(".")[2].lower() == bare]
    return list(dict.fromkeys([*same, *difflib.get_close_matches(table, names, n=3)]))[:3]


def key_of(identity: str, indexes: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    """The key's columns, of (is primary, is the replica identity, columns) of each index that could be it."""
    primary = [names for is_primary, _, names in indexes if is_primary]
    named = [names for _, is_identity, names in indexes if is_identity]
    only = [indexes[0][2]] if identity == "full" and len(indexes) == 1 else []
    return tuple(next(iter(primary + named + only), ()))


def unique_keys(
    indexes: Sequence[tuple[Any, ...]], key: Sequence[str]
) -> tuple[tuple[tuple[str, ...], ...], tuple[NotUnique, ...]]:
    """The unique keys beside the one that tells rows apart, and unique indexes that are none.

    Args:
        indexes: (name, whether it has a condition, whether it is valid, the condition and what it is over in words if
            they could be read, columns, columns that it names) of each.
        key: columns of the table's key.
    """
    keys: dict[tuple[str, ...], None] = {}
    others = []
    for name, partial, valid, condition, over, columns, named in indexes:
        if partial:
            reason = f"it is partial (WHERE {condition})" if condition else "it is partial"
        elif None in columns:
            reason = f"it is over an expression ({over})" if over else "it is over an expression"
        elif not valid:
            reason = "it is invalid: building it failed, or has not ended"
        else:
            keys[tuple(columns)] = None
            continue
        # A constraint's index names no columns by itself.
        others.append(NotUnique(name, tuple(dict.fromkeys([*(c for c in columns if c), *named])), reason))
    found: dict[frozenset[str], tuple[str, ...]] = {frozenset(key): tuple(key)}
    for columns in keys:
        found.setdefault(frozenset(columns), columns)
    return tuple(found.values())[1:], tuple(others)


def _column(types: Mapping[int, _Type], attribute: _Attribute) -> Column:
    """Look through domains and arrays to the type that the values have."""
    array, kind = False, types[attribute.type_oid]
    typmod, not_null = attribute.typmod, attribute.not_null
    while kind.kind == "d" or kind.is_array:
        if kind.kind == "d":
            not_null = not_null or (kind.not_null and not array)
            typmod, kind = kind.base_typmod, types[kind.base]
        else:
            array, kind = True, types[kind.element]
    precision, scale = numeric_typmod(typmod) if kind.called == "numeric" else (None, None)
    labels = tuple(kind.labels) if kind.labels else None
    return Column(
        attribute.name,
        attribute.type_name,
        kind.called,
        precision,
        scale,
        array,
        not not_null,
        labels,
        attribute.number,
        attribute.collated,
        kind.called == "bpchar" and typmod == -1,
    )


def numeric_typmod(typmod: int) -> tuple[int | None, int | None]:
    """Precision and scale that a numeric's typmod packs (scale may be negative since Postgres 15)."""
    if typmod < 4:
        return None, None
    return (typmod - 4) >> 16 & 0xFFFF, (((typmod - 4) & 0x7FF) ^ 1024) - 1024


def _identity(connection: Connection) -> tuple[str, int, str]:
    row = connection.execute(
        "SELECT (pg_control_system()).system_identifier::text, (pg_control_checkpoint()).timeline_id,"
        " current_database(), CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
    ).fetchone()
    assert row is not None
    # After a promotion the last checkpoint may still be of the timeline before.
    return str(row[0]), int(row[3], 16) if row[3] else int(row[1]), str(row[2])
