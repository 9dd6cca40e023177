"""Would row-level security hide rows of a table from a role?"""

from __future__ import annotations

from typing import LiteralString

from connectors.postgres import Connection

# Of a table `c`, for the role `reader`; if that is NULL, for one with no rights of its own. A permissive policy
# `USING (true)` shows all, unless a restrictive one takes some away. A policy's condition is looked at as it is stored:
# Postgres's words for it wait for whoever has locked the table.
HIDES: LiteralString = """(c.relrowsecurity AND NOT EXISTS (
    SELECT FROM pg_roles r WHERE r.rolname = %(reader)s::text AND (
        r.rolsuper OR r.rolbypassrls OR NOT c.relforcerowsecurity AND pg_has_role(r.oid, c.relowner, 'USAGE')
        OR (SELECT bool_or(p.polpermissive AND shows.it) AND bool_and(p.polpermissive OR shows.it)
            FROM pg_policy p, LATERAL (
                SELECT p.polqual::text ~ '^[{]CONST :consttype 16 .*:constisnull false .*:constvalue 1 \\[ 1 ' AS it
            ) AS shows
            WHERE p.polrelid = c.oid AND p.polcmd IN ('r', '*') AND EXISTS (
                SELECT FROM unnest(p.polroles) AS o(oid)
                WHERE CASE WHEN o.oid = 0 THEN true ELSE pg_has_role(r.oid, o.oid, 'USAGE') END)))))"""

# A partition's own policies hold for who reads the partition by its name; nobody here does.
_HIDING: LiteralString = """
SELECT EXISTS (
    SELECT FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relrowsecurity AND NOT c.relispartition
    AND has_any_column_privilege(%(reader)s::text, c.oid, 'SELECT') AND {hides})
""".replace("{hides}", HIDES)


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
