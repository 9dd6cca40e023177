"""The publication: which tables Postgres sends, and which operations. Ours, because Debezium's own changes fail."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from psycopg import errors, sql

from cdc.errors import SourceError
from cdc.sql_names import sql_name
from connectors.actions import MANY, Action, named, statements
from connectors.names import Names, identifier
from connectors.postgres import Connection, explained

# A TRUNCATE has no key and could not be written to a compacted topic: it is not even sent. See policy.truncate.
SENT = frozenset({"insert", "update", "delete"})
OPTIONS = sql.SQL("publish = 'insert, update, delete', publish_via_partition_root = true")
# Since 18 Postgres refuses the application's updates of a table with REPLICA IDENTITY FULL and a generated column,
# unless the publication sends generated columns too (the connector leaves them out again).
GENERATED, GENERATED_SINCE = sql.SQL("publish_generated_columns = stored"), 180000
# The minor release of each major one from which on the log is read with a publication's change in mind also behind a
# transaction that was open meanwhile. 18 does it from its first one on.
HEEDS = {14: 18, 15: 13, 16: 9, 17: 5}

ANOTHER = "name a source.publication that is not there: `headwater apply` makes it"


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
        whole_database: it holds every table of the database, also those that come: Postgres takes none into it.
        owner: whose it is.
        owned: whoever is to change it may.
        role: who is to change it.
    """

    tables: frozenset[str]
    operations: frozenset[str]
    via_root: bool
    all_tables: bool
    filtered: frozenset[str]
    generated: bool | None = None
    whole_database: bool = False
    owner: str = ""
    owned: bool = True
    role: str = ""

    def lacks(self, tables: Iterable[str]) -> list[str]:
        """Those of some tables that have to be put into it."""
        return [] if self.whole_database else sorted(set(tables) - self.tables)

    @property
    def right_options(self) -> bool:
        """It sends what is needed, and nothing that is not."""
        return self.via_root and self.operations == SENT and self.generated is not False

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


def read_publication(connection: Connection, name: str, role: str | None = None) -> Publication | None:
    """Read a publication; None if there is none.

    Args:
        connection: any role's.
        name: the publication's.
        role: who is to change it; None for whoever reads it.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    with explained(f"reading publication {name}"):
        row = connection.execute(
            "SELECT oid, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,"
            " pg_get_userbyid(pubowner), coalesce((SELECT pg_has_role(r.oid, pubowner, 'USAGE') FROM pg_roles r"
            " WHERE r.rolname = coalesce(%s::name, current_user)), false), coalesce(%s::name, current_user)"
            " FROM pg_publication WHERE pubname = %s",
            [role, role, name],
        ).fetchone()
        if row is None:
            return None
        oid, every, *sends, via_root, owner, owned, who = row
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
        sent = frozenset(operations)
        return Publication(frozenset(tables), sent, via_root, whole, filtered, generated, every, owner, owned, who)


def _generated(connection: Connection, oid: int) -> bool:
    row = connection.execute("SELECT pubgencols = 's' FROM pg_publication WHERE oid = %s", [oid]).fetchone()
    return bool(row and row[0])


def made_here(actual: Publication, name: str, names: Names) -> bool:
    """Whether a publication is what ``apply`` makes, or has taken over: by its name, or by our own tables in it. Pure.

    Args:
        actual: as it is.
        name: its name.
        names: the pipeline's.
    """
    return name == names.publication or (not actual.all_tables and bool(actual.tables & set(names.published)))


def used_elsewhere(actual: Publication | None, name: str, names: Names, captured: Iterable[str]) -> SourceError | None:
    """What is to be said before the first ``apply`` of a publication that somebody else seems to use. Pure.

    Args:
        actual: as it is; None if there is none.
        name: its name.
        names: the pipeline's.
        captured: the pipeline's tables, as ``schema.table``.
    """
    if actual is None or actual.all_tables or made_here(actual, name, names):
        return None
    others = sorted(actual.tables - set(captured))
    if not others:
        return None
    return SourceError(
        f"publication {name} holds {named(others)}, which this pipeline does not capture: somebody else made it",
        means="`apply` would take them, and TRUNCATE, out of it: its readers would miss changes; nothing was changed",
        fix=f"{ANOTHER}; or, if nobody else reads from this one, DROP PUBLICATION {sql_name(name)}",
    )


def by_owner(actual: Publication, name: str, server_version: int) -> str:
    """What to do about a publication that must change, and is another role's. Pure.

    Tables of ours that are to come into it are made after it was looked at: nobody can put them in before.
    """
    if actual.whole_database:  # a superuser's, as whom nobody else may act
        right = options(server_version).as_string()
        return f"as {actual.owner}: ALTER PUBLICATION {sql_name(name)} SET {right}; or {ANOTHER}"
    if actual.all_tables:  # one of whole schemas, which Postgres gives to superusers only
        return ANOTHER
    # Not a GRANT of the owner, which may be a superuser.
    give = f"ALTER PUBLICATION {sql_name(name)} OWNER TO {sql_name(actual.role)}"
    return f"as {actual.owner}, or as a superuser: {give}; or {ANOTHER}"


def plan_publication(
    actual: Publication | None, name: str, tables: Iterable[str], server_version: int, *, adds_only: bool = False
) -> tuple[list[Action], list[Action]]:
    """What must change in the publication. Pure.

    A table that comes is read once those have ended who wrote to it before: ``connectors/writers.py``.

    Args:
        actual: the publication as it is; None if there is none.
        name: its name.
        tables: captured tables and our own, as ``schema.table``.
        server_version: as libpq tells it, 180001.
        adds_only: other tables that it has stay in it.

    Returns:
        Actions to do before the connector changes (tables that come), and after it (tables that go): a connector
        must never be told of a table that its publication does not send, or it would wait for ever, and say RUNNING.

    Raises:
        SourceError: it must change, and is another role's (terminal).
    """
    wanted = set(tables)
    publication, right = sql.Identifier(name), options(server_version)
    if actual is None:
        create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH {}").format(publication, _list(wanted), right)
        after = {"tables": sorted(wanted), "options": right.as_string()}
        detail = f"create for {len(wanted)} tables"
        run = statements(f"creating publication {name}", create)
        return [Action("publication", name, detail, None, after, run)], []
    before, after_connector = [], []
    if not actual.right_options:
        alter = sql.SQL("ALTER PUBLICATION {} SET {}").format(publication, right)
        run = statements(f"altering publication {name}", alter)
        before.append(Action("publication", name, "set options", actual.describe(), right.as_string(), run))
    restricted = actual.filtered & wanted
    for table in sorted(restricted):
        # There is no ALTER that only clears a filter: the table leaves and comes back in one transaction.
        parts = _anew(name, table)
        run = statements(f"removing the filter on {table} from publication {name}", *parts)
        detail, alike = f"send all rows and columns of {table}", f"{name} sends all of their rows and columns"
        before.append(Action("publication", name, detail, "filtered", "whole", run, (table,), alike))
    for table in actual.lacks(wanted):
        add = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, identifier(table))
        run = statements(f"adding {table} to publication {name}", add)
        alike = f"add to {name}"
        before.append(Action("publication", name, f"add table {table}", None, table, run, (table,), alike))
    for table in sorted(actual.tables - wanted) if not (actual.all_tables or adds_only) else []:
        drop = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(publication, identifier(table))
        run = statements(f"removing {table} from publication {name}", drop)
        alike = f"remove from {name}"
        after_connector.append(Action("publication", name, f"remove table {table}", table, None, run, (table,), alike))
    if not actual.owned and (before or after_connector):
        todo = ", ".join(action.detail for action in (*before, *after_connector)[:MANY])
        raise SourceError(
            f"publication {name} must change ({todo}), and belongs to {actual.owner}",
            means="nothing was changed",
            fix=by_owner(actual, name, server_version),
        )
    return before, after_connector


def heeds_changes(server_version: int) -> bool:
    """Whether a publication's change holds for all that is written behind it. Pure.

    Older releases read a transaction that was open meanwhile by what the publication was when it began, and go on so
    with the tables that it has written to, until the publication is changed once more.

    Args:
        server_version: as libpq tells it, 180001.
    """
    major, minor = divmod(server_version, 10000)
    return major >= 18 or (major in HEEDS and minor >= HEEDS[major])


def publish_again(connection: Connection, name: str, tables: Iterable[str]) -> None:
    """Change a publication into what it is.

    Args:
        connection: as the publication's owner; of somebody else's nothing is changed.
        name: of a publication with the right options.
        tables: of its, as ``schema.table``.

    Raises:
        SourceError: Postgres refused (SourceUnavailable: transient).
    """
    actual = read_publication(connection, name)
    named = () if actual is None or actual.all_tables else sorted(tables)
    alter = sql.SQL("ALTER PUBLICATION {} SET {}").format(sql.Identifier(name), options(connection.info.server_version))
    denied = suppress(errors.InsufficientPrivilege)
    with explained(f"publishing again what publication {name} has"), denied, connection.transaction():
        for statement in (alter, *(part for table in named for part in _anew(name, table))):
            connection.execute(statement)


def _anew(name: str, table: str) -> list[sql.Composed]:
    """Take a table out of a publication and put it back, whole."""
    return [
        sql.SQL("ALTER PUBLICATION {} {} TABLE {}").format(sql.Identifier(name), sql.SQL(verb), identifier(table))
        for verb in ("DROP", "ADD")
    ]


def _list(tables: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(identifier(table) for table in sorted(tables))
