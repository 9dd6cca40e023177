"""Which tables log their whole old rows: ``policy.toast: full``."""

from __future__ import annotations

from collections.abc import Collection

from psycopg import sql

from connectors.actions import Action, statements
from connectors.names import identifier
from connectors.tables.facts import TableFacts


def can_be_full(fact: TableFacts) -> bool:
    """Whether REPLICA IDENTITY FULL does no harm: no virtual column, and the key is known without it."""
    return not fact.virtual and (fact.has_primary_key or fact.unique_keys == 1)


def plan_replica_identity(facts: Collection[TableFacts], policy: str) -> list[Action]:
    """With ``policy.toast: full``, tables whose values may be stored out of line log the whole old row. Pure."""
    actions = []
    for fact in facts:
        if policy != "full" or not fact.toasted or not fact.not_full or not can_be_full(fact):
            continue  # preflight says what to do about a table that can't be
        # A partition logs by its own identity, not by its root's.
        alter = [sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(identifier(name)) for name in fact.not_full]
        run = statements(f"setting the replica identity of {fact.name}", *alter)
        detail = "REPLICA IDENTITY FULL, so that updates carry unchanged large values (policy.toast: full)"
        if fact.replica_identity == "i":  # `drop` leaves it, and nobody else would remember
            detail += ", in place of an index (USING INDEX …)"
        actions.append(Action("replica-identity", fact.name, detail, fact.replica_identity, "f", run))
    return actions
