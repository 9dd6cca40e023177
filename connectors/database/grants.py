"""What the replication role may do: read the captured tables, beat the heart, write watermarks. Nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import sql

from cdc.sql_names import quoted, quoted_table
from connectors.actions import Action, statements
from connectors.names import Names, identifier
from connectors.postgres import Connection, explained


@dataclass(frozen=True)
class Right:
    """A right on a schema or a table that the replication role needs."""

    privilege: str
    on: str
    is_schema: bool = False

    @property
    def target(self) -> sql.Composable:
        """As it stands after ON."""
        if self.is_schema:
            return sql.SQL("SCHEMA {}").format(sql.Identifier(self.on))
        return sql.SQL("TABLE {}").format(identifier(self.on))


def needed_rights(names: Names, tables: Iterable[str]) -> list[Right]:
    """Every right that the replication role needs.

    INSERT and DELETE on the signal table open and close the window of an incremental snapshot's chunk; SELECT there and
    on the heartbeat serves their WHERE; SELECT on the captured tables serves snapshots and re-selected columns. Runners
    leave their numbers in the witness table, put a new number into the table of the server's life, and
    note in the list of captured tables that one is not what it was.
    """
    tables = sorted(tables)
    schemas = sorted({table.partition(".")[0] for table in tables} | {names.schema})
    heartbeat, signal = names.qualified(names.heartbeat), names.qualified(names.signal)
    witness, captured = names.qualified(names.witness), names.qualified(names.captured)
    tables.append(names.qualified(names.marker))
    return [
        *(Right("USAGE", schema, is_schema=True) for schema in schemas),
        *(Right("SELECT", table) for table in tables),
        *(Right(privilege, heartbeat) for privilege in ("SELECT", "UPDATE")),
        *(Right(privilege, signal) for privilege in ("SELECT", "INSERT", "DELETE")),
        *(Right(privilege, witness) for privilege in ("SELECT", "INSERT", "UPDATE")),
        *(Right(privilege, names.qualified(names.life)) for privilege in ("SELECT", "INSERT")),
        *(Right(privilege, captured) for privilege in ("SELECT", "UPDATE")),
    ]


def missing_rights(connection: Connection, role: str, rights: Iterable[Right]) -> list[Right]:
    """Those rights that the role does not have now, itself or through another role; all, for an object not there yet.

    Raises:
        SourceError: there is no such role.
    """
    with explained(
        f"reading the rights of role {role}", fix=f"create it: CREATE ROLE {role} LOGIN REPLICATION PASSWORD …"
    ):
        rights = list(rights)
        places = [(right.on, None) if right.is_schema else _split(right.on) for right in rights]
        asked = {
            "role": role,
            "rights": [right.privilege for right in rights],
            "schemas": [schema for schema, _ in places],
            "names": [name for _, name in places],
        }
        held = connection.execute(_HELD, asked)
        return [right for right, (has,) in zip(rights, held, strict=True) if not has]


def _split(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name


# All at once: a pipeline of 500 tables has some 500 of them.
_HELD = """
SELECT CASE WHEN asked.name IS NULL THEN has_schema_privilege(%(role)s, n.oid, asked.privilege)
            ELSE has_table_privilege(%(role)s, c.oid, asked.privilege) END
  FROM unnest(%(rights)s::text[], %(schemas)s::text[], %(names)s::text[])
       WITH ORDINALITY AS asked (privilege, schema, name, place)
  LEFT JOIN pg_namespace n ON n.nspname = asked.schema
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
 ORDER BY asked.place"""


def plan_grants(connection: Connection, role: str, names: Names, tables: Iterable[str]) -> list[Action]:
    """One GRANT for each right that is missing."""
    actions = []
    for right in missing_rights(connection, role, needed_rights(names, tables)):
        grant = sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(right.privilege), right.target, sql.Identifier(role))
        what = f"granting {right.privilege} on {right.on} to {role}"
        fix = f"as the owner of {right.on}: {grant.as_string(connection)}"
        detail = f"GRANT {right.privilege} to {role}"
        actions.append(Action("grant", right.on, detail, None, right.privilege, statements(what, grant, fix=fix)))
    return actions


def owners_right(table: str, owner: str, role: str, *, superuser: bool) -> str:
    """SQL after which a role may add another's table to a publication and give it a trigger. Pure.

    Args:
        table: ``schema.table``.
        owner: whose it is.
        role: that shall.
        superuser: the owner is one, whose members may become superusers: the table is handed over.
    """
    if superuser:
        return f"ALTER TABLE {quoted_table(*table.split('.', 1))} OWNER TO {quoted(role)}"
    return f"GRANT {quoted(owner)} TO {quoted(role)}"
