"""Views that are folded: an aggregate's current state, made of its events one after the other.

``initial`` and ``step`` are Spark SQL; ``step`` sees the state so far as ``state`` and one event as ``event``, a struct
of the outbox table's columns. A step that gives NULL ends the aggregate: it has no document until its next event, which
begins from ``initial`` again. docs/decisions/fold.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc import types
from cdc.change import Change
from cdc.errors import ConfigError
from cdc.join.expressions import quoted
from cdc.keys import document_id
from cdc.view import View


@dataclass(frozen=True)
class FoldView(View):
    """A document for each aggregate; its key is the column with the aggregate's id.

    Attributes:
        initial: Spark SQL, a struct: the state before the first event.
        step: Spark SQL, the state after an event; of the type of ``initial``.
        state: field of the state -> Spark SQL type, in order; known once Spark has seen ``initial``.
    """

    initial: str = field(default="", kw_only=True)
    step: str = field(default="", kw_only=True)
    state: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def needs_spark(self) -> bool:
        """Always: what it shows is computed."""
        return True

    @property
    def outlives_rows(self) -> bool:
        """No: it is held against the log, which has all that it is made of."""
        return False

    def document_id(self, change: Change) -> str:
        """The id of the aggregate that an event is about.

        Raises:
            DecodeError: its value is not of the column's type (terminal).
        """
        row = change.after or {}
        try:
            return document_id(
                [row.get(name) if convert is None else convert(row[name]) for name, convert in self._key_plan]
            )
        except types.REFUSALS as error:
            raise self._not_of_type(change, row, dict(self._key_plan), error) from error

    @property
    def state_type(self) -> str:
        """Spark SQL's type of a state."""
        return f"struct<{', '.join(f'{quoted(name)}: {kind}' for name, kind in self.state.items())}>"


def refuse_folded(view: View, what: str) -> None:
    """Refuse what a folded view can't be asked for.

    Args:
        view: any view.
        what: that it can't be, in words.

    Raises:
        ConfigError: it is folded (terminal).
    """
    if isinstance(view, FoldView):
        raise ConfigError(
            f"view {view.name} is folded from events, and can't be {what}",
            means="its documents are made of all events of the log, of which Postgres may have none any more",
            fix="fill a generation beside (`headwater rebuild FILE SINK`), look at that, and promote it or drop it",
        )


def folded(said: str, initial: str, kind: str, begin: str = "held") -> str:
    """Spark SQL over ``held`` (the state so far, or NULL) and ``events`` (an array): the state after all of them.

    Args:
        said: the step.
        initial: the state before the first event.
        kind: its Spark SQL type.
        begin: what stands for ``held``.

    Returns:
        an expression. ``state`` is bound by a ``transform`` of one element: Spark SQL has no ``let``.
    """
    begun = f"coalesce(held, CAST({initial} AS {kind}))"
    stepped = f"element_at(transform(array({begun}), state -> CAST(({said}) AS {kind})), 1)"
    return f"aggregate(events, {begin}, (held, event) -> {stepped})"
