"""What a query is answered: rows, as of when they are, and of which tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc.view import View
from operations.query.complete import AsOf
from operations.query.duck import Rows
from operations.query.histories import Past
from operations.query.tables import Held
from operations.query.tail import Tail


@dataclass(frozen=True)
class Told:
    """What is said of a table.

    Attributes:
        held: the table.
        as_of: as of when what was asked of it is.
        tail: what the log had besides; None if that was not asked.
        view: whose the tail is.
        past: what the name stands for, of a history.
    """

    held: Held
    as_of: AsOf
    tail: Tail | None = None
    view: View | None = None
    past: Past | None = None

    def to_dict(self) -> dict[str, Any]:
        """For a report."""
        one, tail = self.held, self.tail
        counts = tail and {"records": tail.records, "rows": tail.rows.num_rows, "letters": tail.letters}
        return {
            "name": one.name.shown,
            "sink": one.name.sink,
            "view": one.name.view,
            "generation": one.generation,
            "snapshot": None if one.snapshot is None else str(one.snapshot),
            "committed_at": None if one.at_ms is None else one.at_ms / 1000,
            "as_of": self.as_of.to_dict(),
            "tail": counts,
        }


@dataclass(frozen=True)
class Answer:
    """Of a query.

    Attributes:
        found: columns and rows.
        fresh: whether the log was read as well.
        tables: those that were asked.
        as_of: of all of them together.
        seconds: how long it took.
    """

    found: Rows
    fresh: bool
    tables: Sequence[Told]
    as_of: AsOf
    seconds: float

    def to_dict(self, pipeline: str) -> dict[str, Any]:
        """The shape of ``--json``."""
        return {
            "pipeline": pipeline,
            "at": time.time(),
            "fresh": self.fresh,
            "as_of": self.as_of.to_dict(),
            "tables": [one.to_dict() for one in self.tables],
            "columns": [{"name": name, "type": kind} for name, kind in self.found.columns],
            "rows": self.found.rows,
            "truncated": self.found.truncated,
            "seconds": round(self.seconds, 3),
        }
