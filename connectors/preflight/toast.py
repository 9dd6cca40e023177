"""Do updates carry values that are stored out of line (TOAST)? See docs/decisions/toast.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc.outbox import is_outbox
from cdc.sql_names import sql_table
from cdc.types import may_be_large, never_reselected
from connectors.database.replica_identity import can_be_full
from connectors.preflight.gathered import NAMED, offered, some
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.tables.facts import TableFacts


def run(site: Site) -> Iterator[Finding]:
    """The replica identity of tables with large values fits policy.toast."""
    policy, affected = site.pipeline.policy.toast, list[Large]()
    for name, fact in site.facts.items():
        if is_outbox(site.pipeline, name):
            continue  # an event is written once, and never updated
        refused = list(identity_findings(fact, policy))
        yield from refused
        if refused or _keyless(fact) or not fact.not_full or not fact.toasted:
            continue
        columns = site.catalogue.tables[name].columns
        large = [column.name for column in columns if may_be_large(column)]
        blind = [column.name for column in columns if never_reselected(column)]
        affected.append(Large(fact, large, blind))
    if affected:
        yield from _said(policy, affected)


def identity_findings(fact: TableFacts, policy: str) -> Iterator[Finding]:
    """What keeps a table from the replica identity that a policy asks for.

    Args:
        fact: the table's.
        policy: ``policy.toast``.
    """
    name = fact.name
    if fact.virtual and (fact.replica_identity == "f" or (policy == "full" and fact.toasted)):
        message = f"{name} has a virtual generated column: with REPLICA IDENTITY FULL Postgres would refuse its updates"
        fix = "make the column STORED, or drop it; or set policy.toast: reselect and REPLICA IDENTITY DEFAULT"
        many = "{n} tables have a virtual generated column ({names}): with REPLICA IDENTITY FULL Postgres would refuse"
        yield Finding(Level.ERROR, name, message, fix, f"{many} their updates")
    elif policy == "full" and fact.toasted and fact.not_full and not _keyless(fact) and not can_be_full(fact):
        message = f"{name} has no primary key but several unique indexes: FULL would not say which one is its key"
        many = "{n} tables have no primary key but several unique indexes ({names}): FULL would not name the key"
        yield Finding(Level.ERROR, name, message, f"ALTER TABLE {sql_table(name)} ADD PRIMARY KEY …", many)


def _keyless(fact: TableFacts) -> bool:
    return not fact.has_primary_key and not fact.unique_keys  # the check of keys says what to do


@dataclass(frozen=True)
class Large:
    """A table whose updates may leave out values; one finding tells of all of them."""

    fact: TableFacts
    large: list[str]
    blind: list[str]

    @property
    def shown(self) -> str:
        """``s.t (column, column)``."""
        return f"{self.fact.name} ({', '.join(self.large) or 'some columns'})"


def _full(tables: list[Large]) -> tuple[str, str]:
    """The SQL for all of them, and in short."""
    each = [f"ALTER TABLE {sql_table(name)} REPLICA IDENTITY FULL" for table in tables for name in table.fact.not_full]
    whole = "; ".join(each)
    return whole, offered(whole, "; ".join(each[:NAMED]))


def _said(policy: str, tables: list[Large]) -> Iterator[Finding]:
    full, short = _full(tables)
    if policy == "full":
        what = "columns may be stored out of line, and old rows are not logged whole: "
        yield _found(
            Level.WARNING,
            tables,
            what,
            f"`headwater apply` does it: {full}",
            "`headwater apply` sets REPLICA IDENTITY FULL",
        )
    elif policy == "reselect":
        what = (
            "large values that an update leaves out are asked for again, which is not exact: an update of the key keeps"
            " a placeholder if its transaction is not yet visible: "
        )
        instead = "set policy.toast: full, or "
        yield _found(Level.WARNING, tables, what, instead + full, instead + short)
        blind = [Large(table.fact, table.blind, table.blind) for table in tables if table.blind]
        if blind:
            what = "unchanged values can't be told from real ones, nor asked for again: "
            yield _found(Level.ERROR, blind, what, *_full(blind))
    else:
        what = "an update leaves out unchanged large values, and compaction may keep only that: "
        fix, short_fix = (f"set policy.toast: full, or {sql}, or leave them out of every view" for sql in (full, short))
        yield _found(Level.WARNING, tables, what, fix, short_fix)


def _found(level: Level, tables: list[Large], what: str, fix: str, short_fix: str) -> Finding:
    about, shown = ", ".join(table.fact.name for table in tables), [table.shown for table in tables]
    return Finding(level, about, what + ", ".join(shown), fix, short=what + some(shown), short_fix=short_fix)


CHECK = Check("toast", "updates carry large values", run, needs=("server", "tables"))
