"""Do updates carry values that are stored out of line (TOAST)? See docs/decisions/toast.md."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.types import may_be_large, never_reselected
from connectors.database.identity import TableFacts, can_be_full
from connectors.preflight.model import Check, Finding, Level, Site


def run(site: Site) -> Iterator[Finding]:
    """The replica identity of tables with large values fits policy.toast."""
    policy = site.pipeline.policy.toast
    for name, fact in site.facts.items():
        if fact.virtual and (fact.replica_identity == "f" or (policy == "full" and fact.toasted)):
            message = (
                f"{name} has a virtual generated column: with REPLICA IDENTITY FULL Postgres would refuse its updates"
            )
            fix = "make the column STORED, or drop it; or set policy.toast: reselect and REPLICA IDENTITY DEFAULT"
            yield Finding(Level.ERROR, name, message, fix)
            continue
        if not fact.not_full or not fact.toasted:
            continue
        if policy == "full" and not can_be_full(fact):
            message = f"{name} has no primary key but several unique indexes: FULL would not say which one is its key"
            yield Finding(Level.ERROR, name, message, f"ALTER TABLE {name} ADD PRIMARY KEY …")
            continue
        columns = site.catalogue.tables[name].columns
        large = [column.name for column in columns if may_be_large(column)]
        blind = [column.name for column in columns if never_reselected(column)]
        yield from _one(policy, fact, large, blind)


def _one(policy: str, fact: TableFacts, large: list[str], blind: list[str]) -> Iterator[Finding]:
    full = "; ".join(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in fact.not_full)
    columns = ", ".join(large) or "some columns"
    if policy == "full":
        message = (
            f"{fact.name} has columns that may be stored out of line ({columns}), and its old rows are not logged whole"
        )
        yield Finding(Level.WARNING, fact.name, message, f"`headwater apply` does it: {full}")
    elif policy == "reselect":
        message = (
            f"{fact.name}: large values ({columns}) that an update leaves out are asked for again; that is not exact:"
            " an update of the key keeps a placeholder if its transaction is not yet visible"
        )
        yield Finding(Level.WARNING, fact.name, message, f"set policy.toast: full, or {full}")
        if blind:
            message = (
                f"{fact.name}: unchanged values of {', '.join(blind)} can't be told from real ones, nor asked for again"
            )
            yield Finding(Level.ERROR, fact.name, message, full)
    else:
        message = f"{fact.name}: an update leaves out unchanged large values ({columns}); compaction may keep only that"
        yield Finding(
            Level.WARNING, fact.name, message, f"set policy.toast: full, or {full}, or leave them out of every view"
        )


CHECK = Check("toast", "updates carry large values", run, needs=("server", "tables"))
