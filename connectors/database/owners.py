"""Whose the helper schema and our tables are: who owns them can have code of his run by whoever writes to them."""

from __future__ import annotations

from cdc.errors import SourceError
from cdc.sql_names import sql_name
from connectors.names import Names
from connectors.postgres import Connection, explained

# A superuser, the database's owner (by his role since 15: of `public`, say), and who may become the setup role, have
# its rights without us, or could.
_FOREIGN = """
SELECT kind, name, r.rolname, current_user::text
FROM (
    SELECT 'schema', quote_ident(nspname), nspowner FROM pg_namespace WHERE nspname = %(schema)s
    UNION ALL
    SELECT 'table', quote_ident(nspname) || '.' || quote_ident(relname), relowner
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE nspname = %(schema)s AND relname = ANY(%(tables)s)
) AS ours(kind, name, owner)
JOIN pg_roles r ON r.oid = owner
WHERE NOT pg_has_role(owner, 'USAGE') AND NOT rolsuper AND NOT pg_has_role(owner, current_user, 'MEMBER')
  AND owner <> (SELECT datdba FROM pg_database WHERE datname = current_database()) AND rolname <> 'pg_database_owner'
ORDER BY kind, name
"""


def foreign(connection: Connection, names: Names) -> SourceError | None:
    """What is to be said of a schema, or of tables in it, that somebody else has made; None where there are none.

    Args:
        connection: the setup role's.
        names: the pipeline's.
    """
    with explained(f"reading whose schema {names.schema} is"):
        rows = connection.execute(_FOREIGN, {"schema": names.schema, "tables": list(names.tables)}).fetchall()
    if not rows:
        return None
    owners, role = sorted({str(owner) for _, _, owner, _ in rows}), str(rows[0][3])
    things = ", ".join(f"{kind} {name}" for kind, name, _, _ in rows)
    grant = f"GRANT {', '.join(map(sql_name, owners))} TO {sql_name(role)}"
    over = "; ".join(f"ALTER {kind.upper()} {name} OWNER TO {sql_name(role)}" for kind, name, _, _ in rows)
    return SourceError(
        f"{things} {'belongs' if len(rows) == 1 else 'belong'} to {', '.join(owners)}, as whom {role} may not act",
        means=f"whoever owns what {role} writes to can have SQL of his run with the rights of {role}",
        fix=f"if you know the owner (an earlier source.setup_user, say): {grant}; or, as a superuser: {over}. Else name"
        " another schema in source.schema, and ask who has made this one",
    )


def refuse_foreign(connection: Connection, names: Names) -> None:
    """Raises SourceError where somebody else has made what is to be ours: before anything there is read (terminal)."""
    if (error := foreign(connection, names)) is not None:
        raise error
