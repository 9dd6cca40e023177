"""What plan shows and apply does: one action after the other, each of which may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from cdc.errors import HeadwaterError
from connectors.postgres import explained

if TYPE_CHECKING:
    from connectors.servers import Servers

Show = Callable[["Action"], None]


@dataclass(frozen=True)
class Action:
    """One change to a server.

    Attributes:
        kind: ``schema``, ``table``, ``grant``, ``replica-identity``, ``trigger``, ``function``, ``publication``,
            ``topic``, ``connector``, ``snapshot``, ``slot``.
        name: of the object that changes.
        detail: what is done to it, in a few words.
        before: what is there; None if nothing. Never holds a secret.
        after: what will be there; None if it is removed.
        run: does it; idempotent.
    """

    kind: str
    name: str
    detail: str
    before: Any = None
    after: Any = None
    run: Callable[[Servers], None] = field(default=lambda servers: None, compare=False, repr=False)

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


def statements(what: str, *composed: sql.Composed, fix: str = "") -> Callable[[Servers], None]:
    """Run SQL as the setup role, in one transaction, as an action's ``run``."""

    def run(servers: Servers) -> None:
        with explained(what, fix=fix), servers.setup.transaction():
            for statement in composed:
                servers.setup.execute(statement)

    return run


def run_all(servers: Servers, actions: Sequence[Action], show: Show) -> None:
    """Do actions in order; stop at the first that fails, and say how far it got.

    Raises:
        HeadwaterError: the failed action's own error, with a note on what was done before it.
    """
    for number, action in enumerate(actions):
        try:
            action.run(servers)
        except HeadwaterError as error:
            done = f"{number} of {len(actions)} steps are done" if number else "no step is done"
            error.means = "; ".join(filter(None, [error.means, f"stopped at «{action}», {done}"]))
            error.fix = error.fix or "remove the cause"
            error.fix += "; running the same command again continues from there"
            raise
        show(action)
