"""What plan shows and apply does: one action after the other, each of which may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from cdc.errors import HeadwaterError
from connectors.postgres import explained

if TYPE_CHECKING:
    from connectors.servers import Servers

# So many actions, or tables of one, are more than a person reads one by one.
MANY = 4
# What Postgres says of a table, or a function, that it does not find.
MISSING = ("42P01", "42883")
# Those that fire in our session, with a function that finds names by the search path of whoever calls it.
EVENT_TRIGGERS = """
SELECT quote_ident(e.evtname), p.oid::regprocedure::text
FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid JOIN pg_language l ON l.oid = p.prolang
WHERE e.evtenabled IN ('O', 'A') AND l.lanname NOT IN ('c', 'internal')
  AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS setting WHERE starts_with(setting, 'search_path='))
ORDER BY 1
"""
Show = Callable[["Action"], None]
# Told what begins, which may take long: an action, or None for a wait after the last one.
Begins = Callable[["Action | None"], None]


@dataclass(frozen=True)
class Action:
    """One change to a server.

    Attributes:
        kind: ``schema``, ``table``, ``grant``, ``replica-identity``, ``trigger``, ``function``, ``publication``,
            ``topic``, ``connector``, ``snapshot``, ``slot``; and ``state``, what sinks hold, where that is a step.
        name: of the object that changes.
        detail: what is done to it, in a few words.
        before: what is there; None if nothing. Never holds a secret.
        after: what will be there; None if it is removed.
        run: does it; idempotent.
        of: the tables (of kind ``topic``: the topics) that it is about, where ``name`` is not one of them.
        alike: what is done to each of ``of``, where ``detail`` names it: so others of the same can be told with it.
        captures: it makes the connector of a pipeline that has no slot: nobody has captured it, here or elsewhere.
    """

    kind: str
    name: str
    detail: str
    before: Any = None
    after: Any = None
    run: Callable[[Servers], None] = field(default=lambda servers: None, compare=False, repr=False)
    of: tuple[str, ...] = ()
    alike: str = ""
    captures: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What it is about, one by one."""
        return self.of or (self.name,)

    def to_dict(self) -> dict[str, Any]:
        """As ``plan --json`` prints it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "detail": self.detail,
            "before": self.before,
            "after": self.after,
        }

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.detail}"


def counted(actions: Sequence[Action], others: int = 0) -> str:
    """How many changes they are, and for how many tables if those are many: ``1,503 changes for 300 tables``.

    Args:
        actions: of a plan.
        others: changes that are no actions.
    """
    named = {name for one in actions if one.kind in ("snapshot", "replica-identity") for name in one.names}
    tables = named | {name for one in actions if one.kind == "publication" for name in one.of}
    number = len(actions) + others
    return f"{number:,} change{'s' * (number != 1)}" + (f" for {len(tables):,} tables" if len(tables) >= MANY else "")


def statements(what: str, *composed: sql.Composed, fix: str = "") -> Callable[[Servers], None]:
    """Run SQL as the setup role, in one transaction, as an action's ``run``."""

    def run(servers: Servers) -> None:
        with explained(what, fix=fix), servers.setup.transaction():
            for statement in composed:
                servers.setup.execute(statement)

    return run


def run_all(servers: Servers, actions: Sequence[Action], show: Show, begins: Begins = lambda action: None) -> None:
    """Do actions in order; stop at the first that fails, and say how far it got.

    Args:
        servers: of the pipeline.
        actions: of a plan.
        show: called after each that was done.
        begins: called before each.

    Raises:
        HeadwaterError: the failed action's own error, with a note on what was done before it.
    """
    for number, action in enumerate(actions):
        begins(action)
        try:
            action.run(servers)
        except HeadwaterError as error:
            done = f"{number} of {len(actions)} steps are done" if number else "no step is done"
            error.means = "; ".join(filter(None, [error.means, f"stopped at «{action}», {done}"]))
            error.fix = error.fix or _of_event_triggers(servers, error) or "remove the cause"
            error.fix += "; running the same command again continues from there"
            raise
        show(action)


def _of_event_triggers(servers: Servers, error: HeadwaterError) -> str:
    """What to do where somebody's event trigger may have failed in our session; empty where there is none.

    Ours has no search path but the system's, so that nobody's objects are taken for others: a function that has none of
    its own does not find what it names without a schema.
    """
    if getattr(error.__cause__, "sqlstate", None) not in MISSING:
        return ""
    with suppress(HeadwaterError), explained("looking for event triggers"):
        rows = servers.setup.execute(EVENT_TRIGGERS).fetchall()
        each = "; ".join(f"ALTER FUNCTION {function} SET search_path = …" for _, function in rows)
        if rows:
            return (
                f"if that is what event trigger {', '.join(str(name) for name, _ in rows)} uses: {each}, as the"
                " function's owner, with the schemas that it needs; else remove the cause"
            )
    return ""


def named(tables: Collection[str]) -> str:
    """Tables by their names, of many the first ones and how many more. Pure."""
    names = sorted(tables)
    return ", ".join(names) if len(names) < MANY else f"{', '.join(names[:3])} and {len(names) - 3:,} other tables"
