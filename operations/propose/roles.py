"""Which roles a pipeline is proposed to use: one that replicates and owns nothing, and the tables' owner. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cdc.sql_names import quoted
from connectors.survey import Role, Survey

# What the documentation calls the role that replicates.
USUAL = "headwater"


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


def propose_roles(found: Survey, database: str, wanted: str | None = None) -> Roles:
    """Choose the roles.

    Args:
        found: the database.
        database: its name.
        wanted: a role that shall replicate, whatever there is; None to choose.
    """
    asked = found.roles.get(found.user, Role(found.user, login=True, superuser=False, replicates=False, creates=False))
    owner = _owner(found, asked)
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
    why = "a superuser: a role with REPLICATION that owns nothing is enough" if role and role.superuser else ""
    return Roles(user, setup, tuple(first), why)


def _owner(found: Survey, asked: Role) -> str:
    """Who may add the tables to a publication: who asked, if that is the owner or a superuser; else who owns most."""
    owners = Counter(fact.owner for fact in found.facts.values())
    if asked.name in owners or asked.superuser or not owners:
        return asked.name
    return owners.most_common(1)[0][0]


def _replicating(roles: Mapping[str, Role], asked: Role, owner: str) -> str:
    usual = roles.get(USUAL)
    if usual is not None and usual.login and usual.replicates:
        return USUAL
    if asked.replicates and asked.name != owner and not asked.superuser:
        return asked.name
    # On a machine of one's own everything is done as one superuser, and works.
    return asked.name if asked.superuser else USUAL
