"""What a database has that could be captured, and what it has that can't, each with the reason: for ``init``.

The reasons are those of ``headwater check``, found by the same functions, before there is a pipeline file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError, SourceError
from cdc.pipeline.models import Policy
from cdc.resolve.names import near
from cdc.types import lossy, unsupported
from connectors.postgres import Connection, explained
from connectors.preflight.gathered import WHOLE
from connectors.preflight.model import Finding, Level
from connectors.preflight.primary_keys import key_findings
from connectors.preflight.role import SERVICE_ROLES
from connectors.preflight.tables import kind_findings, name_findings, spellings
from connectors.preflight.toast import identity_findings
from connectors.tables.catalogue import other_kind, read_catalogue
from connectors.tables.facts import TableFacts, read_facts, read_written
from connectors.tables.foreign_keys import ForeignKey, Sizes, read_foreign_keys, read_sizes
from connectors.topics import colliding

# Everything but the server's own, extensions' own and our own; partitions are captured under their root's name.
RELATIONS = """
SELECT n.nspname || '.' || c.relname, c.relkind, c.relispartition
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', %s) AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1
"""

ROLES = """
SELECT r.rolname, r.rolcanlogin, r.rolsuper, r.rolreplication OR EXISTS (
    SELECT FROM pg_roles s WHERE s.rolname = ANY(%s) AND pg_has_role(r.oid, s.oid, 'MEMBER')),
    has_database_privilege(r.oid, current_database(), 'CREATE')
FROM pg_roles r WHERE r.rolname !~ '^pg_'
"""
# A pipeline file takes no more tables than this.
MAX_TABLES = 2000


@dataclass(frozen=True)
class LeftOut:
    """What can't be captured, or not all of it.

    Attributes:
        name: ``schema.table``, or ``schema.table.column``.
        why: the reason.
        fix: what to do about it.
        owner: whose it is, where that is the reason.
    """

    name: str
    why: str
    fix: str = ""
    owner: str = ""


@dataclass(frozen=True)
class Role:
    """A role of the server: may it log in, is it a superuser, may it replicate, may it create in the database?"""

    name: str
    login: bool
    superuser: bool
    replicates: bool
    creates: bool


@dataclass(frozen=True)
class Survey:
    """What is there.

    Attributes:
        tables: ``schema.table`` -> those that can be captured.
        facts: of these.
        left_out: what can't be, in order of names; columns too.
        notes: good to know of what is captured, before the first ``check``.
        foreign_keys: of ``tables``, also to tables that are not among them.
        sizes: of ``tables``.
        written: ``schema.table`` -> columns that are filled with the time of an insert.
        roles: by name.
        user: who asked.
        wal_level: the server's setting.
        whole: schemas that were asked for as ``schema.*``, and all of whose tables can be captured.
    """

    tables: Mapping[str, Table]
    facts: Mapping[str, TableFacts]
    left_out: tuple[LeftOut, ...]
    notes: tuple[LeftOut, ...]
    foreign_keys: tuple[ForeignKey, ...]
    sizes: Sizes
    written: Mapping[str, tuple[str, ...]]
    roles: Mapping[str, Role]
    user: str
    wal_level: str
    whole: tuple[str, ...] = ()


def survey(connection: Connection, patterns: Sequence[str], own_schema: str) -> Survey:
    """Look at a database; nothing is changed, and no row is read.

    Args:
        connection: any role's; catalogues are readable by all.
        patterns: ``table``, ``schema.table`` or ``schema.*``, with * and ? as in file names; none for all tables.
        own_schema: where Headwater keeps its own tables.

    Raises:
        ConfigError: a pattern matches nothing, or there is nothing that can be captured (terminal).
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    with explained("listing the tables"):
        found = connection.execute(RELATIONS, [own_schema]).fetchall()
        roles = {str(row[0]): Role(*row) for row in connection.execute(ROLES, [list(SERVICE_ROLES)])}
        level = connection.execute("SELECT current_setting('wal_level')").fetchone()
    kinds = {str(name): str(kind) for name, kind, is_partition in found if not is_partition}
    chosen = _chosen(kinds, patterns)
    named = [name for name in chosen if kinds[name] in "rp"]
    plain, left_out = _named_well(named, kinds)
    left_out += [LeftOut(name, what[0]) for name in chosen if (what := other_kind(kinds[name]))]
    catalogue, facts = _read(connection, plain)
    tables, notes = dict[str, Table](), list[LeftOut]()
    for name in plain:
        findings = said_of(catalogue.tables[name], facts[name], connection.info.server_version)
        errors = [finding for finding in findings if finding.level is Level.ERROR]
        broken = _left_out(name, errors[0]) if errors else _unsupported_key(catalogue.tables[name])
        if broken is not None:
            left_out.append(broken)
            continue
        tables[name] = catalogue.tables[name]
        for finding in findings:  # a note tells of columns that are not captured, a warning of what is, with a danger
            (left_out if finding.level is Level.NOTE else notes).append(_left_out(name, finding))
        left_out += [LeftOut(f"{name}.{c.name}", why) for c in tables[name].columns if (why := unsupported(c))]
        notes += [LeftOut(f"{name}.{c.name}", why) for c in tables[name].columns if (why := lossy(c))]
    _some(tables, left_out, patterns)
    every = [name for name, kind in kinds.items() if kind in "rp"]
    return Survey(
        tables,
        {name: facts[name] for name in tables},
        tuple(sorted(left_out, key=lambda one: one.name)),
        tuple(notes),
        tuple(read_foreign_keys(connection, tables)),
        read_sizes(connection, tables),
        read_written(connection, tables),
        roles,
        connection.info.user,
        str(level[0]) if level else "",
        tuple(
            schema for schema in _schemas(patterns) if set(_tables_of(schema, every)) == set(_tables_of(schema, tables))
        ),
    )


def few_enough(tables: Collection[str]) -> None:
    """Refuse more tables than a pipeline file takes.

    Args:
        tables: those that would be in it.

    Raises:
        SourceError: there are more (terminal).
    """
    if len(tables) > MAX_TABLES:
        raise SourceError(
            f"{len(tables):,} tables can be captured; a pipeline file takes {MAX_TABLES:,}",
            fix="choose some with --tables, like --tables 'public.*'",
        )


def said_of(table: Table, fact: TableFacts, server_version: int) -> list[Finding]:
    """What ``headwater check`` would say of a table by itself, in a pipeline whose file sets no policy. Pure.

    Args:
        table, fact: the table.
        server_version: as libpq tells it, 180001.
    """
    identity = identity_findings(fact, Policy().toast)
    return [*kind_findings(fact, server_version), *key_findings(table, fact), *identity]


def _chosen(kinds: Collection[str], patterns: Sequence[str]) -> list[str]:
    """The relations that patterns name, in order of names."""
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = [name for name in kinds if _matches(name, pattern)]
        if not found:
            names = [*kinds, *(name.partition(".")[2] for name in kinds)]
            raise ConfigError(
                f"--tables {pattern}: there is no such table in this database",
                means="nothing was written",
                fix=near(pattern, names) or "name tables as schema.table, schema.* or with * and ? as in file names",
            )
        chosen |= dict.fromkeys(found)
    return [name for name in kinds if not patterns or name in chosen]


def _schemas(patterns: Sequence[str]) -> list[str]:
    """The schemas that are asked for as a whole, by their names."""
    named = [pattern.removesuffix(".*") for pattern in dict.fromkeys(patterns) if pattern.endswith(".*")]
    return [schema for schema in named if not set("*?[.") & set(schema)]


def _tables_of(schema: str, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if name.startswith(f"{schema}."))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name if "." in pattern else name.partition(".")[2], pattern)


def _named_well(names: Sequence[str], kinds: Collection[str]) -> tuple[list[str], list[LeftOut]]:
    """Those whose names a topic can have, and the others."""
    spelt = spellings(kinds)
    findings = {name: list(name_findings(name, spelt, names)) for name in names}
    bad = [_left_out(name, found[0]) for name, found in findings.items() if found]
    plain = [name for name in names if not findings[name]]
    one = colliding(plain)
    why, fix = "its topic and that of {} would be one to Kafka", "rename one of them, or capture them by two pipelines"
    bad += [LeftOut(name, why.format(other), fix) for name, other in one.items()]
    return [name for name in plain if name not in one], bad


def _read(connection: Connection, names: Sequence[str]) -> tuple[Catalogue, dict[str, TableFacts]]:
    if not names:
        return Catalogue(), {}
    # Who will replicate is not known yet; who asks need not be that, and may own the tables, or be a superuser.
    return read_catalogue(connection, names), read_facts(connection, names)


def _unsupported_key(table: Table) -> LeftOut | None:
    for name in table.primary_key:
        if (reason := unsupported(table.by_name[name])) is not None:
            return LeftOut(table.qualified, f"its key column {name} can't be captured: {reason}", "use another key")
    return None


def _left_out(name: str, finding: Finding) -> LeftOut:
    """A finding that names its table need not name it again; in short, as it may have hundreds of partitions."""
    # `check` has nothing of a table that the file leaves out.
    fix = (finding.short_fix or finding.fix).replace(WHOLE, "")
    return LeftOut(name, (finding.short or finding.message).removeprefix(f"{name} "), fix)


def _some(tables: Collection[str], left_out: Sequence[LeftOut], patterns: Sequence[str]) -> None:
    if not tables:
        shown = "; ".join(f"{one.name}: {one.why}" for one in left_out[:5])
        raise ConfigError(
            "there is no table that can be captured" + (f" ({shown})" if shown else " in this database"),
            means="nothing was written",
            fix=next((one.fix for one in left_out if one.fix), "create tables first, or name another database")
            if not patterns
            else "name other tables, or mend these",
        )
