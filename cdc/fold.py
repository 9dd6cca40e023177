"""Views that are folded: an aggregate's current state, made of its events one after the other.

``initial`` and ``step`` are Spark SQL; ``step`` sees the state so far as ``state`` and one event as ``event``, a struct
of the outbox table's columns. A step that gives NULL ends the aggregate: it has no document until its next event, which
begins from ``initial`` again. docs/decisions/fold.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cdc import types
from cdc.join.expressions import quoted
from cdc.keys import document_id
from cdc.records.change import Change
from cdc.stateful import StatefulView
from cdc.utf8 import has_text, whole


@dataclass(frozen=True)
class FoldView(StatefulView):
    """A document for each aggregate; its key is the column with the aggregate's id.

    Attributes:
        initial: Spark SQL, a struct: the state before the first event.
        step: Spark SQL, the state after an event; of the type of ``initial``.
    """

    initial: str = field(default="", kw_only=True)
    step: str = field(default="", kw_only=True)

    made = "folded from events"
    said = "fold"

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


def folded(said: str, initial: str, kind: str, shape: Any, begin: str = "held") -> str:
    """Spark SQL over ``held`` (the state so far, or NULL) and ``events`` (an array): the state after all of them.

    Args:
        said: the step.
        initial: the state before the first event.
        kind: its Spark SQL type.
        shape: the same, as ``cdc.utf8.whole`` takes it: a state of which a text is not UTF-8 is a failure of the event
            that made it, whichever events come in one batch with it.
        begin: what stands for ``held`` where there is no such column.

    Returns:
        an expression. ``state`` is bound by a ``transform`` of one element: Spark SQL has no ``let``. So is what the
        step has made. (Step.java replaces what has to be, as ``validate_utf8``: no plan of a fold goes through Spark's
        optimizer.)
    """
    begun = f"coalesce(held, CAST({initial} AS {kind}))"
    stepped = f"element_at(transform(array({begun}), state -> CAST(({said}) AS {kind})), 1)"
    if has_text(shape):
        stepped = f"element_at(transform(array({stepped}), made -> {whole('made', shape)}), 1)"
    return f"aggregate(events, {begin}, (held, event) -> {stepped})"
