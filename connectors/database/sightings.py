"""What tells a captured table from another one of its name, and whether it was ever away.

Changes go by names: the connector's list says ``public.orders``, and Postgres sends a table's changes under the name
that it has at that moment. So a table that was renamed, swapped or taken out of the publication loses changes without
a word. Four numbers of Postgres's catalogue tell of it, also afterwards, when all looks as before:

- the table's *oid* is another after DROP and CREATE, and after a swap by rename;
- the *row of the publication's list* (``pg_publication_rel``) is another after the table left it and came back, also
  with a filter;
- the *transaction that last wrote the table's row type* (``pg_type.xmin``) is another after a rename, and after the
  rename back. Nothing else writes it but a change of the owner, which is looked at too: no ALTER of columns, no VACUUM
  FULL, no CLUSTER, no TRUNCATE, no index, no GRANT on the table;
- the *transaction that last wrote an index* (``pg_index.xmin``) is another after the replica identity named it, and
  after it does so no more. While it named one without the key, deletes came with a key of zeros. CLUSTER writes it
  too, which a flag beside it tells; a valid index is written by little else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.catalogue import Column
from cdc.same_key import KeyPart, key_from, key_part, same_key
from connectors.database.publication import Publication, read_publication
from connectors.postgres import Connection, explained
from connectors.tables.catalogue import KEYS, REPLICA_IDENTITY, key_of, unique_columns
from connectors.tables.partitions import over_trees

LOOK = """
SELECT c.oid::bigint, n.nspname || '.' || c.relname, c.relreplident, c.relowner::bigint, coalesce(t.xmin::text, ''),
       (SELECT pr.oid::bigint FROM pg_publication_rel pr JOIN pg_publication p ON p.oid = pr.prpubid
        WHERE p.pubname = %(publication)s AND pr.prrelid = c.oid),
       c.relkind = 'p'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_type t ON t.oid = c.reltype
WHERE c.relkind IN ('r', 'p') AND c.oid IN (
    SELECT found.oid FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS wanted(schema, name)
    JOIN pg_namespace ns ON ns.nspname = wanted.schema
    JOIN pg_class found ON found.relname = wanted.name AND found.relnamespace = ns.oid
    UNION ALL SELECT unnest(%(oids)s::oid[]))
"""

# Unique indexes that a replica identity may name, besides the primary key's.
INDEXES = """
SELECT i.indrelid::bigint, i.indexrelid::text, i.xmin::text || CASE WHEN i.indisclustered THEN '/clustered' ELSE '' END,
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey))
FROM pg_index i
WHERE i.indrelid = ANY(%s) AND i.indisunique AND NOT i.indisprimary AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL
"""

# Held until everyone can see what was done, which may be in the log by then. A publication that comes to send other
# operations (SET) holds none.
ALTERING = """
SELECT EXISTS (
    SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.mode = 'AccessExclusiveLock' AND l.granted
      AND (l.relation = ANY(%s::oid[]) OR l.classid IN ('pg_publication'::regclass, 'pg_publication_rel'::regclass)))
"""

# The files with a table's rows, those of all partitions.
FILES = over_trees("""
SELECT n.nspname || '.' || c.relname,
       md5(string_agg(t.oid::text || '/' || pg_relation_filenode(t.oid)::text, ',' ORDER BY t.oid))
FROM tree t JOIN pg_class c ON c.oid = t.root JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE pg_relation_filenode(t.oid) IS NOT NULL
GROUP BY c.oid, 1
""")


@dataclass(frozen=True)
class Sighting:
    """A table at one moment; all but ``name`` and ``lacks`` is remembered.

    Attributes:
        oid: the table's.
        key: its columns, as ``cdc.catalogue.Table.primary_key``.
        identity: its replica identity: ``default``, ``full``, ``index`` or ``nothing``.
        carried: whether a delete in the log carries the key.
        owner: the owning role's oid.
        named: the transaction that last wrote its row type.
        member: the oid of its row in the publication's list; 0 where the publication holds it with all tables, or with
            its schema; None where it does not.
        keyless: oid -> when it was last written, of each unique index that lacks the key.
        name: ``schema.table``, as it is called now.
        lacks: what of it the publication does not send, in words.
        parts: the key's columns with their numbers, types and labels; empty if an older version has remembered it.
        files: of ``files_of``, of a table that a first snapshot is to read; else empty.
    """

    oid: int
    key: tuple[str, ...]
    identity: str
    carried: bool
    owner: int
    named: str
    member: int | None
    name: str = ""
    lacks: str = ""
    keyless: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[KeyPart, ...] = ()
    files: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What is remembered, as plain data."""
        kept = ("oid", "identity", "carried", "owner", "named", "member")
        # What an older version has remembered stays equal to what it has written: it is compared in the database.
        parts = {"parts": [part.to_dict() for part in self.parts]} if self.parts else {}
        named = {name: getattr(self, name) for name in kept}
        files = {"files": self.files} if self.files else {}
        return {**named, "key": list(self.key), "keyless": dict(self.keyless), **parts, **files}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Sighting:
        """What ``to_dict`` gave, perhaps in another version of Headwater."""
        return cls(
            oid=int(raw["oid"]),
            key=tuple(raw["key"]),
            identity=str(raw["identity"]),
            carried=bool(raw["carried"]),
            owner=int(raw["owner"]),
            named=str(raw["named"]),
            member=raw["member"],
            keyless=dict(raw.get("keyless", {})),
            parts=key_from(raw.get("parts", ())),
            files=str(raw.get("files", "")),
        )

    def named_keyless(self, now: Sighting) -> bool:
        """Whether an index without the key was the replica identity for a while, between this look and ``now``."""
        both = [(self.keyless[oid], now.keyless[oid]) for oid in self.keyless.keys() & now.keyless.keys()]
        return any(then != since and _clustered(then) == _clustered(since) for then, since in both)

    def same_key(self, now: Sighting) -> bool:
        """Whether records of now have the key of those of then; by names alone where more is not known."""
        if not (self.parts and now.parts):
            return self.key == now.key
        return same_key(self.parts, now.parts, numbered=self.oid == now.oid)

    def with_key(self, now: Sighting) -> Sighting:
        """This one with the key's types of now, if it is the same key: a later one is compared with them."""
        return replace(self, parts=now.parts) if self.same_key(now) else self

    def completed(self, oid: int, parts: Sequence[KeyPart]) -> Sighting:
        """This one with what an older version has not remembered of its key, as somebody else has kept it: by names
        alone a type that was changed before the first look of this version would be taken for what it was.

        Args:
            oid: of the table that was kept: another one's key tells nothing.
            parts: its key.
        """
        if oid != self.oid or tuple(part.name for part in parts) != self.key:
            return self
        if not self.parts:
            return replace(self, parts=tuple(parts))
        alike = [(mine, kept, replace(kept, labels=()) == mine) for mine, kept in zip(self.parts, parts, strict=True)]
        return replace(self, parts=tuple(kept if same else mine for mine, kept, same in alike))

    def with_indexes(self, now: Sighting) -> Sighting:
        """This one with the indexes that there are now: those that were there stay as they were."""
        return replace(self, keyless={oid: self._written(oid, since) for oid, since in now.keyless.items()})

    def _written(self, oid: str, since: str) -> str:
        then = self.keyless.get(oid, since)
        return then if _clustered(then) == _clustered(since) else since


def _clustered(stamp: str) -> bool:
    return stamp.endswith("/clustered")


@dataclass(frozen=True)
class Seen:
    """Tables at one moment, by name and by oid."""

    by_name: Mapping[str, Sighting]
    by_oid: Mapping[int, Sighting]


def look(connection: Connection, publication: str, names: Sequence[str], oids: Collection[int] = ()) -> Seen:
    """Look at tables, all at the same moment; cheap enough for every few seconds.

    Args:
        connection: any role that may connect.
        publication: its name.
        names: ``schema.table`` of those that are looked for.
        oids: of tables that are looked for under whatever name they have.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    with explained("looking at the captured tables"), connection.transaction():
        # One moment for all of it, or a swap in between would look like something else.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = connection.execute(
            LOOK,
            {
                "publication": publication,
                "schemas": [name.partition(".")[0] for name in names],
                "names": [name.partition(".")[2] for name in names],
                "oids": list(oids),
            },
        ).fetchall()
        sent = read_publication(connection, publication)
        tables = [row[0] for row in found]
        indexes, others = _by_table(connection, KEYS, tables), _by_table(connection, INDEXES, tables)
        columns = unique_columns(connection, tables)
    sightings = [
        _sighting(row, indexes.get(row[0], []), others.get(row[0], []), columns.get(row[0], []), sent) for row in found
    ]
    wanted = set(names)
    return Seen({s.name: s for s in sightings if s.name in wanted}, {s.oid: s for s in sightings})


def altering(connection: Connection, oids: Collection[int]) -> bool:
    """Whether somebody alters tables, or a publication: a look may not see what of it is in the log already.

    Args:
        connection: any role's.
        oids: of the tables.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    with explained("looking at the captured tables' locks"):
        row = connection.execute(ALTERING, [list(oids)]).fetchone()
    return bool(row and row[0])


def files_of(connection: Connection, tables: Collection[str]) -> dict[str, str]:
    """A text of each table that is another one when its rows, or those of a partition, were written anew into others.

    Args:
        connection: any role's.
        tables: ``schema.table``; one that is not there, or has no rows of its own, is left out.

    Raises:
        SourceUnavailable: the connection broke (transient).
    """
    with explained("looking at the captured tables' files"):
        return {str(name): str(files) for name, files in connection.execute(FILES, {"tables": sorted(tables)})}


class Files:
    """The files of tables that a first snapshot is about to read; asked for once, of all.

    Args:
        tables: ``schema.table``.
    """

    def __init__(self, tables: Collection[str]) -> None:
        self._tables = tables
        self._found: Mapping[str, str] | None = None

    def of(self, connection: Connection, table: str) -> str:
        """As ``files_of``; empty of one that is left out there."""
        if self._found is None:
            self._found = files_of(connection, self._tables)
        return self._found.get(table, "")


def _by_table(connection: Connection, query: str, tables: list[int]) -> dict[int, list[tuple[Any, ...]]]:
    """What a query tells of tables' indexes, by the tables' oids, which are its first column."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for oid, *index in connection.execute(query, [tables]):
        found.setdefault(int(oid), []).append(tuple(index))
    return found


def _sighting(
    row: Sequence[Any],
    indexes: Sequence[tuple[Any, ...]],
    others: Sequence[tuple[Any, ...]],
    columns: Sequence[Column],
    sent: Publication | None,
) -> Sighting:
    oid, name, replica, owner, named, member, partitioned = row
    identity = REPLICA_IDENTITY[replica]
    key = key_of(identity, indexes)
    # NOTHING carries no key either, but Postgres then refuses updates and deletes: none is lost.
    carried = identity != "index" or any(named_one and set(key) <= set(names) for _, named_one, names in indexes)
    if member is None and sent is not None and sent.all_tables and name in sent.tables:
        member = 0
    lacks = _lacks(sent, name, partitioned=partitioned) if sent is not None and member is not None else ""
    keyless = {index: stamp for index, stamp, names in others if not set(key) <= set(names)}
    of = {column.name: key_part(column) for column in columns}
    parts = tuple(of.get(name, KeyPart(name)) for name in key)
    return Sighting(int(oid), key, identity, carried, int(owner), named, member, name, lacks, keyless, parts)


def _lacks(sent: Publication, table: str, *, partitioned: bool) -> str:
    missing = sorted({"insert", "update", "delete"} - sent.operations)
    if missing:
        return f"its {', '.join(f'{operation}s' for operation in missing)}"
    if table in sent.filtered:
        return "some of its rows or columns"
    return "its changes under its own name" if partitioned and not sent.via_root else ""
