"""Which roles a pipeline is proposed to use: one that replicates and owns nothing, and the tables' owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from cdc.sql_names import quoted
from connectors.database.grants import owners_right
from connectors.postgres import Connection, explained
from connectors.survey import LeftOut, Role, Survey

# What the documentation calls the role that replicates.
USUAL = "headwater"
# As `check` asks it: a superuser may act as anybody, a member as those whose rights it inherits.
ACTING = """
SELECT r.rolname, o.rolname FROM pg_roles r, pg_roles o
WHERE o.rolname = ANY(%s) AND (r.rolname = ANY(%s) OR r.rolname = current_user) AND pg_has_role(r.oid, o.oid, 'USAGE')
"""
# Of an owner's tables that are to be handed over one by one.
MAX_LINES = 20
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
        acts: what the role that sets up is to the tables, for a comment.
    """

    user: str
    setup_user: str | None
    first: tuple[str, ...] = ()
    why: str = ""
    acts: str = "owns the tables"


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


def who_sets_up(found: Survey, acting: Acting) -> str:
    """Who may add the most tables to a publication: who asked, or one of the owners.

    A superuser who asked may add them all. One who only owns some counts for these: one table of ``postgres``'s must
    not make it the role of a pipeline. Where who asks has tables only the schemas of these count: a service that runs
    beside one's own may have more tables than that, in schemas of its own.

    Args:
        found: the database, with all tables that may come into question.
        acting: of ``read_acting``.
    """
    asked = _asked(found)
    if asked.superuser:
        return asked.name
    schemas = {name: name.partition(".")[0] for name in found.facts}
    ours = {schemas[name] for name, fact in found.facts.items() if _may(asked.name, fact.owner, acting)}
    tables = Counter(fact.owner for name, fact in found.facts.items() if not ours or schemas[name] in ours)

    def reach(role: str) -> int:
        if _is_superuser(found, role):
            return tables[role]
        return sum(count for owner, count in tables.items() if _may(role, owner, acting))

    # The first of those with the most: who asked, then the owner of most.
    return max([asked.name, *(owner for owner, _ in tables.most_common())], key=reach)


def not_ours(found: Survey, setup: str, acting: Acting) -> Survey:
    """The database without tables of owners as whom the role that sets up can't act, which are told with the reason.

    Of tables that nobody has named these are most often those of a service that runs beside one's own, as Supabase's
    ``auth`` and ``storage``; and who asks is seldom allowed to grant their owners' roles.

    Args:
        found: the database.
        setup: of ``who_sets_up``.
        acting: of ``read_acting``.
    """
    owners = _foreign(found, setup, acting)
    gone = {name: fact.owner for name, fact in found.facts.items() if fact.owner in owners}
    left_out = [
        LeftOut(
            name,
            f"it belongs to {owner}, and {setup} can't add it to a publication or give it a trigger",
            f"{owners_right(name, owner, setup, superuser=_is_superuser(found, owner))}"
            ", or name it with --tables for a file that says so",
            owner,
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


def propose_roles(found: Survey, database: str, setup: str, acting: Acting = (), wanted: str | None = None) -> Roles:
    """Choose the role that replicates, and say what both need.

    Args:
        found: the tables of the pipeline.
        database: its name.
        setup: of ``who_sets_up``.
        acting: of ``read_acting``.
        wanted: a role that shall replicate, whatever there is; None to choose.
    """
    user = wanted or _replicating(found.roles, _asked(found), setup)
    role = found.roles.get(user)
    first = []
    if role is None:
        first.append(f"CREATE ROLE {quoted(user)} LOGIN REPLICATION PASSWORD '…';")
        first.append(f"GRANT CONNECT ON DATABASE {quoted(database)} TO {quoted(user)};")
    elif not (role.replicates or role.superuser):
        first.append(f"ALTER ROLE {quoted(user)} LOGIN REPLICATION;")
    if user != setup and not (setup in found.roles and found.roles[setup].creates):
        first.append(f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(setup)};")
    for owner in sorted(_foreign(found, setup, acting)):
        first += _owners_rights(found, owner, setup)
    why = "a superuser: a role with REPLICATION that owns nothing is enough" if role and role.superuser else ""
    return Roles(user, None if user == setup else setup, tuple(first), why, _acts(found, setup, acting))


def _asked(found: Survey) -> Role:
    nobody = Role(found.user, login=True, superuser=False, replicates=False, creates=False)
    return found.roles.get(found.user, nobody)


def _is_superuser(found: Survey, role: str) -> bool:
    return role in found.roles and found.roles[role].superuser


def _may(role: str, owner: str, acting: Acting) -> bool:
    """Whether a role is an owner, or may act as it."""
    return role == owner or (role, owner) in acting


def _foreign(found: Survey, setup: str, acting: Acting) -> set[str]:
    """Owners of tables as whom the role that sets up can't act."""
    if _is_superuser(found, setup):
        return set()
    return {fact.owner for fact in found.facts.values() if not _may(setup, fact.owner, acting)}


def _owners_rights(found: Survey, owner: str, setup: str) -> list[str]:
    """SQL after which the role that sets up may do with an owner's tables what it must."""
    tables = [name for name, fact in found.facts.items() if fact.owner == owner]
    superuser = _is_superuser(found, owner)
    lines = dict.fromkeys(f"{owners_right(name, owner, setup, superuser=superuser)};" for name in tables)
    more = (
        [f"-- and so the {len(lines) - MAX_LINES:,} other tables of {quoted(owner)}"] if len(lines) > MAX_LINES else []
    )
    return [*list(lines)[:MAX_LINES], *more]


def _acts(found: Survey, setup: str, acting: Acting) -> str:
    """What the role that sets up is to the tables, for a comment."""
    if all(fact.owner == setup for fact in found.facts.values()):
        return "owns the tables"
    after = ", after the SQL above" if _foreign(found, setup, acting) else ""
    return f"may do what the tables' owners may{after}"


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
