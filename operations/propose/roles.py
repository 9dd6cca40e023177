"""Which roles a pipeline is proposed to use: one that replicates and owns nothing, and the tables' owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from cdc.sql_names import quoted
from connectors.postgres import Connection, explained
from connectors.survey import LeftOut, Role, Survey

# What the documentation calls the role that replicates.
USUAL = "headwater"
# As `check` asks it: a superuser may act as anybody, a member as those whose rights it inherits.
ACTING = """
SELECT r.rolname, o.rolname FROM pg_roles r, pg_roles o
WHERE o.rolname = ANY(%s) AND (r.rolname = ANY(%s) OR r.rolname = current_user) AND pg_has_role(r.oid, o.oid, 'USAGE')
"""
# (role, owner as whom it may act)
Acting = Collection[tuple[str, str]]


@dataclass(frozen=True)
class Roles:
    """Who replicates and who sets up.

    Attributes:
        user: ``source.user``.
        setup_user: ``source.setup_user``; None if ``user`` does that too.
        first: SQL that somebody has to run before, a line each; empty when the roles are as they must be.
        why: of the choice, for a comment.
    """

    user: str
    setup_user: str | None
    first: tuple[str, ...] = ()
    why: str = ""


def read_acting(connection: Connection, found: Survey) -> frozenset[tuple[str, str]]:
    """Who, of the tables' owners and the role that asks, may act as which owner.

    Args:
        connection: any role's.
        found: the database.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    owners = sorted({fact.owner for fact in found.facts.values()})
    with explained("reading who may act as the tables' owners"):
        rows = connection.execute(ACTING, [owners, owners]).fetchall()
    return frozenset((str(role), str(owner)) for role, owner in rows)


def not_ours(found: Survey, acting: Acting) -> Survey:
    """The database without tables of owners as whom the role that sets up can't act, which are told with the reason.

    Of tables that nobody has named these are most often those of a service that runs beside one's own, as Supabase's
    ``auth`` and ``storage``; and who asks is seldom allowed to grant their owners' roles.

    Args:
        found: the database.
        acting: of ``read_acting``.
    """
    setup = _owner(found, _asked(found), acting)
    owners = _foreign(found, setup, acting)
    gone = {name: fact.owner for name, fact in found.facts.items() if fact.owner in owners}
    left_out = [
        LeftOut(
            name,
            f"it belongs to {owner}, and {setup} can't add it to a publication or give it a trigger",
            f"GRANT {quoted(owner)} TO {quoted(setup)}, or name it with --tables for a file that says so",
        )
        for name, owner in gone.items()
        if name in found.tables
    ]
    return replace(
        found,
        tables={name: table for name, table in found.tables.items() if name not in gone},
        facts={name: fact for name, fact in found.facts.items() if name not in gone},
        foreign_keys=tuple(key for key in found.foreign_keys if key.table not in gone),
        left_out=(*(one for one in found.left_out if _table_of(one.name) not in gone), *left_out),
        notes=tuple(one for one in found.notes if _table_of(one.name) not in gone),
    )


def propose_roles(found: Survey, database: str, wanted: str | None = None, acting: Acting = ()) -> Roles:
    """Choose the roles.

    Args:
        found: the database.
        database: its name.
        wanted: a role that shall replicate, whatever there is; None to choose.
        acting: of ``read_acting``.
    """
    asked = _asked(found)
    owner = _owner(found, asked, acting)
    user = wanted or _replicating(found.roles, asked, owner)
    role = found.roles.get(user)
    first = []
    if role is None:
        first.append(f"CREATE ROLE {quoted(user)} LOGIN REPLICATION PASSWORD '…';")
        first.append(f"GRANT CONNECT ON DATABASE {quoted(database)} TO {quoted(user)};")
    elif not (role.replicates or role.superuser):
        first.append(f"ALTER ROLE {quoted(user)} LOGIN REPLICATION;")
    setup = None if user == owner else owner
    if setup is not None and not (setup in found.roles and found.roles[setup].creates):
        first.append(f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(setup)};")
    first += [f"GRANT {quoted(other)} TO {quoted(owner)};" for other in sorted(_foreign(found, owner, acting))]
    why = "a superuser: a role with REPLICATION that owns nothing is enough" if role and role.superuser else ""
    return Roles(user, setup, tuple(first), why)


def _asked(found: Survey) -> Role:
    nobody = Role(found.user, login=True, superuser=False, replicates=False, creates=False)
    return found.roles.get(found.user, nobody)


def _owner(found: Survey, asked: Role, acting: Acting) -> str:
    """Who may add the tables to a publication: who asked, if that is an owner, or may act as all of them; else who owns
    most."""
    owners = Counter(fact.owner for fact in found.facts.values())
    if asked.name in owners or asked.superuser or all((asked.name, owner) in acting for owner in owners):
        return asked.name
    return owners.most_common(1)[0][0]


def _foreign(found: Survey, setup: str, acting: Acting) -> set[str]:
    """Owners of tables as whom the role that sets up can't act."""
    role = found.roles.get(setup)
    owners = {fact.owner for fact in found.facts.values()}
    if role is not None and role.superuser:
        return set()
    return {owner for owner in owners if owner != setup and (setup, owner) not in acting}


def _table_of(name: str) -> str:
    """The table of a thing that is left out, which may be a column of it."""
    return ".".join(name.split(".")[:2])


def _replicating(roles: Mapping[str, Role], asked: Role, owner: str) -> str:
    usual = roles.get(USUAL)
    if usual is not None and usual.login and usual.replicates:
        return USUAL
    if asked.replicates and asked.name != owner and not asked.superuser:
        return asked.name
    # On a machine of one's own everything is done as one superuser, and works.
    return asked.name if asked.superuser else USUAL
