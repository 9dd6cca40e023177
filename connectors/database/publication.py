"""The publication: which tables Postgres sends, and which operations. Ours, because Debezium's own changes fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import errors, sql

from connectors.actions import Action, statements
from connectors.names import identifier
from connectors.postgres import Connection, explained

if TYPE_CHECKING:
    from connectors.servers import Servers

# A TRUNCATE has no key and could not be written to a compacted topic: it is not even sent. See policy.truncate.
SENT = frozenset({"insert", "update", "delete"})
OPTIONS = sql.SQL("publish = 'insert, update, delete', publish_via_partition_root = true")
# Since 18 Postgres refuses the application's updates of a table with REPLICA IDENTITY FULL and a generated column,
# unless the publication sends generated columns too (the connector leaves them out again).
GENERATED, GENERATED_SINCE = sql.SQL("publish_generated_columns = stored"), 180000


@dataclass(frozen=True)
class Publication:
    """A publication as it is.

    Attributes:
        tables: that it names, as ``schema.table``.
        operations: ``insert``, ``update``, ``delete``, ``truncate``.
        via_root: changes of partitions are sent under their root's name.
        all_tables: it holds every table of the database, or of whole schemas: then ``tables`` is what that comes to.
        filtered: tables with a row filter or a column list: rows or columns would be missing in every view.
        generated: stored generated columns are sent; None where the server does not have the option.
    """

    tables: frozenset[str]
    operations: frozenset[str]
    via_root: bool
    all_tables: bool
    filtered: frozenset[str]
    generated: bool | None = None

    @property
    def right_options(self) -> bool:
        """It sends what is needed, and nothing that is not."""
        return self.via_root and self.operations == SENT and self.generated is not False

    @property
    def sends_all(self) -> bool:
        """Of the rows of its tables no change is missing."""
        return self.via_root and self.operations >= SENT

    def describe(self) -> str:
        """Its options in a few words."""
        root = "via" if self.via_root else "not via"
        without = "; without generated columns" if self.generated is False else ""
        return f"{', '.join(sorted(self.operations))}; {root} partition root{without}"


# Its right options, in the same words.
WANTED = Publication(frozenset(), SENT, True, False, frozenset()).describe()


def options(server_version: int) -> sql.Composed:
    """The options that our publication must have, as they stand after WITH or SET."""
    parts = [OPTIONS, GENERATED] if server_version >= GENERATED_SINCE else [OPTIONS]
    return sql.SQL("({})").format(sql.SQL(", ").join(parts))


def read_publication(connection: Connection, name: str) -> Publication | None:
    """Read a publication; None if there is none."""
    with explained(f"reading publication {name}"):
        row = connection.execute(
            "SELECT oid, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot"
            " FROM pg_publication WHERE pubname = %s",
            [name],
        ).fetchone()
        if row is None:
            return None
        oid, every, *sends, via_root = row
        operations = (op for op, on in zip(("insert", "update", "delete", "truncate"), sends, strict=True) if on)
        version = connection.info.server_version
        restricted = "pr.prqual IS NOT NULL OR pr.prattrs IS NOT NULL" if version >= 150000 else "false"
        named = connection.execute(
            sql.SQL(
                "SELECT n.nspname || '.' || c.relname, {} FROM pg_publication_rel pr"
                " JOIN pg_class c ON c.oid = pr.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE pr.prpubid = %s"
            ).format(sql.SQL(restricted)),
            [oid],
        ).fetchall()
        schemas = (
            version >= 150000
            and connection.execute("SELECT FROM pg_publication_namespace WHERE pnpubid = %s LIMIT 1", [oid]).fetchone()
        )
        whole = every or (schemas is not None and schemas is not False)
        tables = {table for table, _ in named}
        if whole:
            rows = connection.execute(
                "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s", [name]
            )
            tables |= {table for (table,) in rows}
        filtered = frozenset(table for table, restricted in named if restricted)
        generated = _generated(connection, oid) if version >= GENERATED_SINCE else None
        return Publication(frozenset(tables), frozenset(operations), via_root, whole, filtered, generated)


def _generated(connection: Connection, oid: int) -> bool:
    row = connection.execute("SELECT pubgencols = 's' FROM pg_publication WHERE oid = %s", [oid]).fetchone()
    return bool(row and row[0])


def plan_publication(
    actual: Publication | None, name: str, tables: Iterable[str], server_version: int, *, fresh: bool
) -> tuple[list[Action], list[Action]]:
    """What must change in the publication. Pure.

    Postgres sends a change if the publication had its table then, whenever it is committed. What a transaction wrote
    before its table came is never sent, and it is not seen by who reads the table while that transaction is open: so a
    table comes when nobody writes to it.

    Args:
        actual: the publication as it is; None if there is none.
        name: its name.
        tables: captured tables and our own, as ``schema.table``.
        server_version: as libpq tells it, 180001.
        fresh: nothing was ever captured: the slot is made after this, and that waits for every open transaction.

    Returns:
        Actions to do before the connector changes (tables that come), and after it (tables that go): a connector
        must never be told of a table that its publication does not send, or it would wait for ever, and say RUNNING.
    """
    wanted = set(tables)
    publication, right = sql.Identifier(name), options(server_version)
    written = set() if fresh else wanted
    if actual is None and fresh:
        create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH {}").format(publication, _list(wanted), right)
        after = {"tables": sorted(wanted), "options": right.as_string()}
        detail = f"create for {len(wanted)} tables"
        run = statements(f"creating publication {name}", create)
        return [Action("publication", name, detail, None, after, run)], []
    before, after_connector = [], []
    if actual is None:
        # Its tables come one by one: locks on several at once may end in a deadlock with the application.
        create = sql.SQL("CREATE PUBLICATION {} WITH {}").format(publication, right)
        run = statements(f"creating publication {name}", create)
        before.append(Action("publication", name, "create", None, {"tables": [], "options": right.as_string()}, run))
        actual = Publication(frozenset(), SENT, True, False, frozenset())
    if not actual.right_options:
        alter = sql.SQL("ALTER PUBLICATION {} SET {}").format(publication, right)
        run = _apart(f"altering publication {name}", set() if actual.sends_all else written, alter)
        before.append(Action("publication", name, "set options", actual.describe(), right.as_string(), run))
    restricted = actual.filtered & wanted
    for table in sorted(restricted):
        # There is no ALTER that only clears a filter: the table leaves and comes back in one transaction.
        parts = (
            sql.SQL("ALTER PUBLICATION {} {} TABLE {}").format(publication, sql.SQL(verb), identifier(table))
            for verb in ("DROP", "ADD")
        )
        run = _apart(f"removing the filter on {table} from publication {name}", written & {table}, *parts)
        detail, alike = f"send all rows and columns of {table}", f"{name} sends all of their rows and columns"
        before.append(Action("publication", name, detail, "filtered", "whole", run, (table,), alike))
    for table in sorted(wanted - actual.tables):
        add = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, identifier(table))
        run = _apart(f"adding {table} to publication {name}", written & {table}, add)
        alike = f"add to {name}"
        before.append(Action("publication", name, f"add table {table}", None, table, run, (table,), alike))
    for table in sorted(actual.tables - wanted) if not actual.all_tables else []:
        drop = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(publication, identifier(table))
        run = statements(f"removing {table} from publication {name}", drop)
        alike = f"remove from {name}"
        after_connector.append(Action("publication", name, f"remove table {table}", table, None, run, (table,), alike))
    return before, after_connector


def _apart(what: str, tables: Iterable[str], *composed: sql.Composed) -> Callable[[Servers], None]:
    """Run SQL as ``statements`` does, when no open transaction has written to tables or their partitions, and before
    any other does."""

    def run(servers: Servers) -> None:
        with explained(what), servers.setup.transaction():
            for table in sorted(tables):
                lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(identifier(table))
                # Each by itself: an error names it. An owner who has taken all rights to write from himself may not
                # lock: nobody is waited for then.
                denied, told = suppress(errors.InsufficientPrivilege), f"waiting until nobody writes to {table}"
                with explained(told), denied, servers.setup.transaction():
                    servers.setup.execute(lock)
            for statement in composed:
                servers.setup.execute(statement)

    return run


def _list(tables: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(identifier(table) for table in sorted(tables))
