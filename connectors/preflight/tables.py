"""Are the tables there, and of a kind that can be captured?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cdc.sql_names import sql_table
from connectors.captured.captured import read_captured
from connectors.database.publication import GENERATED_SINCE
from connectors.postgres import SHOW_ALL
from connectors.preflight.gathered import NAMED, offered, some
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.tables.catalogue import near_misses, other_kind, schema_of
from connectors.tables.facts import TableFacts

EVERYTHING = """
SELECT n.nspname || '.' || c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
"""
# Debezium replaces every other character of a topic's name by an underscore: two tables could share a topic.
PLAIN = re.compile(r"[A-Za-z0-9_.-]+")

# Citus's, and Hydra's: its rows are not decoded.
COLUMNAR = "columnar"


def run(site: Site) -> Iterator[Finding]:
    """Every table under source.tables exists and can be replicated."""
    kinds = {str(name): str(kind) for name, kind in site.db.execute(EVERYTHING).fetchall()}
    named = [table for table in site.pipeline.source.tables if not table.endswith(".*")]
    missing = False
    for table in named:
        if what := other_kind(kinds.get(table)):
            missing = True
            yield Finding(Level.ERROR, table, f"{table} is {what[0]}", what[1])
        elif table not in kinds:
            missing = True
            near = near_misses(table, [name for name, kind in kinds.items() if kind in "rp"])
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield Finding(
                Level.ERROR, table, f"there is no table {table} in this database{hint}", "correct source.tables"
            )
    for table in site.pipeline.source.tables:
        if table.endswith(".*") and not any(
            schema_of(name) == schema_of(table) for name, kind in kinds.items() if kind in "rp"
        ):
            missing = True
            yield Finding(Level.ERROR, table, f"{table} matches no table", "correct source.tables")
    if missing:
        return
    spelt = spellings(name for name, kind in kinds.items() if kind != "S")  # Debezium lists no sequences
    columnar = any(COLUMNAR in fact.methods.values() for fact in site.facts.values())
    captured = read_captured(site.setup_or_db, site.names) if columnar and not site.anew else {}
    for fact in site.facts.values():
        yield from kind_findings(fact, site.db.info.server_version, captured=fact.name in captured)
        yield from name_findings(fact.name, spelt, set(site.facts))


def kind_findings(fact: TableFacts, server_version: int, *, captured: bool = False) -> Iterator[Finding]:
    """What keeps a table of this kind from being captured, or is good to know of it.

    Args:
        fact: the table's.
        server_version: as libpq tells it, 180001.
        captured: already: its columnar partitions were heap when their rows came.
    """
    if fact.persistence == "u":
        message = f"{fact.name} is unlogged: its changes are not in the log"
        fix = f"ALTER TABLE {sql_table(fact.name)} SET LOGGED, or leave it out"
        many = "{n} tables are unlogged ({names}): their changes are not in the log"
        yield Finding(Level.ERROR, fact.name, message, fix, many)
    yield from _partitions_not_logged(fact)
    yield from _not_in_the_log(fact, captured=captured)
    if fact.misplaced:
        yield _misplaced(fact)
    if fact.is_partition:
        message = f"{fact.name} is a partition of {fact.parent}: its changes are sent under its root's name"
        yield Finding(Level.ERROR, fact.name, message, f"name {fact.parent} in source.tables instead")
    elif fact.kind == "r" and (fact.has_children or fact.parent):
        message = f"{fact.name} is part of an inheritance tree: a snapshot would read children's rows as the parent's"
        yield Finding(
            Level.ERROR,
            fact.name,
            message,
            "use declarative partitioning; or leave the tree out: name the other tables in source.tables one by one",
            "{n} tables are part of inheritance trees ({names}): a snapshot would read children's rows as the parent's",
        )
    for twins in spellings(fact.columns).values():
        if len(twins) > 1:  # Debezium keeps columns by their names in lower case, and gives up at such a table
            message = f"{fact.name} has columns that differ only in case: {', '.join(twins)}; Debezium refuses it"
            yield Finding(Level.ERROR, fact.name, message, "rename one of them, or leave the table out")
    if fact.generated:
        message = f"generated columns are not captured: {', '.join(fact.generated)} (the connector leaves them out)"
        many = "generated columns are not captured in {n} tables ({names}): the connector leaves them out"
        yield Finding(Level.NOTE, fact.name, message, "compute them in the pipeline's views, as fields", many)
    if fact.stored and server_version >= GENERATED_SINCE:
        why = (
            ": since Postgres 18 the publication"
            " has to send it to the connector, which leaves it out, and Debezium miscounts columns when such a table is"
            " read again while it is written to (dbz#2020). Its task then fails with an"
            " IndexOutOfBoundsException, and is started again until the table is quiet for a moment; nothing is lost"
        )
        message = f"{fact.name} has a stored generated column ({', '.join(fact.stored)}){why}"
        fix = (
            "read it again (a resnapshot, a new column) in a quiet moment; or drop the column and compute it in the"
            " pipeline's views; or, for a table without large values, policy.toast: allow and REPLICA IDENTITY DEFAULT"
        )
        many = "{n} tables have a stored generated column ({names})"
        yield Finding(Level.WARNING, fact.name, message, fix, many + why)
    if fact.row_security:
        why = "the snapshot would read only what policies show the role, and views of such a table can't be verified"
        message = f"row-level security is on for {fact.name}: {why}"
        many = "row-level security is on for {n} tables ({names}): " + why
        fix = SHOW_ALL
        yield Finding(Level.WARNING, fact.name, message, fix, many)


def _partitions_not_logged(fact: TableFacts) -> Iterator[Finding]:
    """The partitions of a table whose changes nobody would be told of."""
    what, out = f"changes in partitions of {fact.name} are not in the log: ", f"leave {fact.name} out"
    if fact.unlogged:
        each = [f"ALTER TABLE {sql_table(name)} SET LOGGED" for name in fact.unlogged]
        whole = "; ".join(each)
        again = "`headwater run` then takes up by itself a partition that came while it was at work; of others, "
        again += f"if {fact.name} is captured already, `headwater resnapshot FILE {fact.name}` reads the rows"
        fix, short_fix = (f"{sql}: {again}; or {out}" for sql in (whole, offered(whole, "; ".join(each[:NAMED]))))
        message, short = (f"{what}{names} (unlogged)" for names in (", ".join(fact.unlogged), some(fact.unlogged)))
        yield Finding(Level.ERROR, fact.name, message, fix, short=short, short_fix=short_fix)
    if fact.foreign:
        message, short = (f"{what}{names} (foreign tables)" for names in (", ".join(fact.foreign), some(fact.foreign)))
        fix = f"put their rows into tables of this database; or ALTER TABLE … DETACH PARTITION …; or {out}"
        yield Finding(Level.ERROR, fact.name, message, fix, short=short)


def _not_in_the_log(fact: TableFacts, *, captured: bool) -> Iterator[Finding]:
    """Tables of extensions: a snapshot reads their rows, and nobody would be told of their changes."""
    out = f"leave {fact.name} out"
    if fact.distributed and fact.citus_sends:
        why = " are in this server's log for the shards that it has itself (citus.enable_change_data_capture is on)"
        many = f"changes of {{n}} tables ({{names}}){why}"
        fix = "let all of their shards be on this server (pg_dist_placement says where they are)"
        yield Finding(Level.WARNING, fact.name, f"changes of {fact.name}{why}", fix, many)
    elif fact.distributed:
        why = " are not in this server's log: Citus keeps the rows in other tables, most of them on its workers"
        many = f"changes of {{n}} tables ({{names}}){why}"
        fix = f"SELECT undistribute_table('{sql_table(fact.name)}'), which brings the rows back; or {out}"
        yield Finding(Level.ERROR, fact.name, f"changes of {fact.name}{why}", fix, many)
    if columnar := sorted(name for name, method in fact.methods.items() if method == COLUMNAR):
        message, short = (f"changes of {names} are not in the log ({COLUMNAR})" for names in _named(columnar))
        fix = "make heap tables of them (alter_table_set_access_method; ALTER TABLE … SET ACCESS METHOD heap)"
        if captured and fact.name not in columnar:  # most often those of a time that is over, of which no change comes
            fix = f"write to them no more; or {fix}, then `headwater resnapshot FILE {fact.name}`"
            yield Finding(Level.WARNING, fact.name, message, fix, short=short)
        else:
            yield Finding(Level.ERROR, fact.name, message, f"{fix}; or {out}", short=short)
    if others := sorted(name for name, method in fact.methods.items() if method != COLUMNAR):
        methods = ", ".join(sorted({fact.methods[name] for name in others}))
        message, short = (
            f"whether changes of {names} are in the log is up to the access method {methods}, which is not Postgres's"
            for names in _named(others)
        )
        fix = "change a row once it runs, and see whether a sink gets it; who made the method knows of logical decoding"
        yield Finding(Level.WARNING, fact.name, message, fix, short=short)


def _named(tables: Sequence[str]) -> tuple[str, str]:
    """All of them, and some."""
    return ", ".join(tables), some(tables)


def _misplaced(fact: TableFacts) -> Finding:
    """Partitions that can't be told from others: a table is known as ``schema.table``, and its schema ends at the first
    dot. `apply` would look for them elsewhere, in the middle of its work."""
    message, short = (
        f"partitions of {fact.name} are in a schema whose name has a dot: {names}"
        for names in (", ".join(fact.misplaced), some(fact.misplaced))
    )
    fix = f"ALTER SCHEMA … RENAME TO …, or ALTER TABLE … SET SCHEMA …; or leave {fact.name} out"
    return Finding(Level.ERROR, fact.name, message, fix, short=short)


def spellings(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by what they are without regard to case. Pure."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.lower(), []).append(name)
    return found


def name_findings(table: str, spelt: Mapping[str, Sequence[str]], captured: Collection[str]) -> Iterator[Finding]:
    """What is wrong with a table's name.

    Args:
        table: ``schema.table``.
        spelt: all relations of the database (``spellings``).
        captured: those that the pipeline names.
    """
    if not PLAIN.fullmatch(table) or table.count(".") > 1:
        message = f"the name {table} has characters that a topic's name can't have: topics of two tables could be one"
        yield Finding(
            Level.ERROR, table, message, "rename the table (letters a to z and A to Z, digits, underscore, hyphen)"
        )
    twins = sorted(name for name in spelt.get(table.lower(), ()) if name != table and name not in captured)
    if twins:  # Debezium compares names without regard to case
        message = f"{', '.join(twins)} differs from {table} only in case: the snapshot would read it too"
        yield Finding(Level.ERROR, table, message, "rename one of them, or capture both")


CHECK = Check("tables", "the tables exist and can be captured", run, needs=("server",))
