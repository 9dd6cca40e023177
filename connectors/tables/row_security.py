"""Would row-level security hide rows of a table from a role?"""

from __future__ import annotations

from collections.abc import Collection
from typing import LiteralString

from psycopg import sql

from connectors.names import identifier
from connectors.postgres import Connection

# Of a table `c`, for the role `reader`; if that is NULL, for one with no rights of its own. A permissive policy
# `USING (true)` shows all, unless a restrictive one takes some away. A policy's condition is looked at as it is stored:
# Postgres's words for it wait for whoever has locked the table. No backslash: it also stands in a function, which is
# called by sessions in which that escapes.
HIDES: LiteralString = """(c.relrowsecurity AND NOT EXISTS (
    SELECT FROM pg_roles r WHERE r.rolname = %(reader)s::text AND (
        r.rolsuper OR r.rolbypassrls OR NOT c.relforcerowsecurity AND pg_has_role(r.oid, c.relowner, 'USAGE')
        OR (SELECT bool_or(p.polpermissive AND shows.it) AND bool_and(p.polpermissive OR shows.it)
            FROM pg_policy p, LATERAL (
                SELECT p.polqual::text ~ '^[{]CONST :consttype 16 .*:constisnull false .*:constvalue 1 [[] 1 ' AS it
            ) AS shows
            WHERE p.polrelid = c.oid AND p.polcmd IN ('r', '*') AND EXISTS (
                SELECT FROM unnest(p.polroles) AS o(oid)
                WHERE CASE WHEN o.oid = 0 THEN true ELSE pg_has_role(r.oid, o.oid, 'USAGE') END)))))"""

# The same of whoever asks.
HIDES_FROM_ME: LiteralString = HIDES.replace("%(reader)s", "current_user")

# A partition's own policies hold for who reads the partition by its name; nobody here does.
_HIDING: LiteralString = """
SELECT EXISTS (
    SELECT FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relrowsecurity AND NOT c.relispartition
    AND has_any_column_privilege(%(reader)s::text, c.oid, 'SELECT') AND {hides})
""".replace("{hides}", HIDES)

_HIDDEN: LiteralString = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(tables)s) AND {hides} ORDER BY 1
""".replace("{hides}", HIDES)

# Postgres that is set to refuse where rows may be hidden refuses also where all policies show all.
_ALL_OR_NONE: LiteralString = """
SELECT set_config('row_security', CASE WHEN row_security_active(c.oid) AND NOT {hides} THEN 'on' ELSE 'off' END, true)
FROM pg_class c WHERE c.oid = to_regclass(%(table)s)
""".replace("{hides}", HIDES_FROM_ME)


def hides_rows(connection: Connection, reader: str) -> bool:
    """Whether policies would hide rows from a role, of any table that it may read.

    Args:
        connection: any role's; catalogues are readable by all.
        reader: the role.

    Raises:
        psycopg.Error: Postgres refused, or the connection broke.
    """
    row = connection.execute(_HIDING, {"reader": reader}).fetchone()
    return row is not None and bool(row[0])


def hidden_tables(connection: Connection, tables: Collection[str], reader: str) -> list[str]:
    """Those of some tables of which policies would hide rows from a role.

    Args:
        connection: any role's.
        tables: ``schema.table``.
        reader: the role, which is there.

    Raises:
        psycopg.Error: Postgres refused, or the connection broke.
    """
    rows = connection.execute(_HIDDEN, {"tables": sorted(tables), "reader": reader}).fetchall()
    return [str(name) for (name,) in rows]


def see_all_rows(connection: Connection, table: str) -> None:
    """From now on to the transaction's end a query of a table sees all of its rows, or is refused (``is_policy``).

    Args:
        connection: in a transaction; as the role that reads.
        table: ``schema.table``.

    Raises:
        psycopg.Error: Postgres refused, or the connection broke.
    """
    name = identifier(table)
    # Whoever changes a table's policies locks it: they stay as they are looked at.
    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(name))
    connection.execute(_ALL_OR_NONE, {"table": name.as_string(connection)})
