"""What a cut through a history has, in plain Python: the rule that the printed SQL is held against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from cdc.records.history import DELETED


class Event(NamedTuple):
    """What a cut looks at of a row of history.

    Attributes:
        key: of the row in its table.
        op: one of ``cdc.records.history.WORDS``.
        position: packed.
        after: packed.
        offset: in the topic.
        commit_us: when its transaction was committed, µs since 1970 UTC; of a row that was read, when it was.
        row: what it holds.
    """

    key: Any
    op: str
    position: int
    after: int
    offset: int
    commit_us: int = 0
    row: Any = None


def state_at(events: Iterable[Event], cut: int) -> dict[Any, Any]:
    """A table as of a cut: what the printed SQL computes. key -> row."""
    newest: dict[Any, Event] = {}
    for event in events:
        known = newest.get(event.key)
        if event.after < cut and (known is None or (known.position, known.offset) <= (event.position, event.offset)):
            newest[event.key] = event
    return {key: event.row for key, event in newest.items() if event.op != DELETED}
