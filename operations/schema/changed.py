"""A table that has changed: how, in words, and what is left to do for it because of that."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cdc.catalogue import Table
from cdc.pipeline import Pipeline
from cdc.shapes import ColumnChange, Shape, column_changes
from cdc.types import may_be_large
from operations.schema.case import Case
from operations.schema.decide import ALL_ROWS, Verdict, combined, other_key
from operations.state.evolution import Evolution, Todo
from spark.disk.state import Generation

NOTHING_SHOWN = "nothing that documents show"


@dataclass(frozen=True)
class Changed:
    """A table that has changed.

    Attributes:
        was: the table as it was, knowing what its columns had been called before.
        known: the shape that it had.
        now: the shape that it has.
        found: what that means for each view that reads it, of each generation.
        changes: of its columns.
        what: how it has changed, in words.
    """

    was: Table
    known: Shape
    now: Shape
    found: Sequence[tuple[Generation, Case]]
    changes: tuple[ColumnChange, ...]
    what: tuple[str, ...]

    @classmethod
    def of(cls, was: Table, known: Shape, now: Shape, found: Sequence[tuple[Generation, Case]]) -> Changed:
        """The change from one shape to another."""
        changes = tuple(column_changes(known, now))
        return cls(was, known, now, found, changes, in_words(known, now, changes))

    @property
    def title(self) -> str:
        """The table, and how it has changed."""
        return f"table {self.was.qualified}: {', '.join(self.what)}"

    @property
    def concerned(self) -> list[Case]:
        """Those of what was found that have something to do."""
        return [case for _, case in self.found if case.decision.verdict > Verdict.NOTHING]

    def todo(self, evolution: Evolution) -> Todo:
        """What is under way for it already; without any, the beginning of it."""
        return evolution.todo.get(self.was.qualified) or Todo(self.what, time.time())

    def acted(self, evolution: Evolution) -> tuple[Evolution, Todo]:
        """The same, having followed it; and what is under way for it, now that it has changed once more."""
        todo = _with_partitions(_overtaken(self.todo(evolution), self.changes), *self.now.parts_since(self.known))
        return replace(evolution, acted={**evolution.acted, self.was.qualified: self.now}), todo


def in_words(known: Shape, now: Shape, changes: Sequence[ColumnChange]) -> tuple[str, ...]:
    """How a table has changed, in words; never without any. Pure."""
    what = tuple(change.words for change in changes)
    if known.table.generated != now.table.generated:
        names = ", ".join(now.table.generated)
        what += (f"generated columns are ({names})" if names else "no column is generated any more",)
    if known.table.replica_identity != now.table.replica_identity:
        what += (f"the replica identity is {now.table.replica_identity}",)
    if other_key(known, now):
        what += (f"the key is ({', '.join(now.table.primary_key)})",)
    come, gone = now.parts_since(known)
    what += tuple(f"partition {name} was added" for name in come.values())
    what += tuple(f"partition {name} is gone" for name in gone.values())
    return what or (NOTHING_SHOWN,)


def also(todo: Todo, what: tuple[str, ...]) -> tuple[str, ...]:
    """What has changed, with what was under way before it: its rows are still read, its generation is still built.
    What waits for `apply` is told whole each time. Pure."""
    words = what if todo.waits else (*todo.what, *what)
    return tuple(dict.fromkeys(word for word in words if word != NOTHING_SHOWN)) or what


def _overtaken(todo: Todo, changes: Sequence[ColumnChange]) -> Todo:
    """What is under way, now that the table has changed once more: a condition may name what is gone. Pure."""
    return replace(todo, read=ALL_ROWS) if todo.read and any(change.kind != "added" for change in changes) else todo


def _with_partitions(todo: Todo, come: Mapping[int, str], gone: Mapping[int, str]) -> Todo:
    """Rows of partitions that come were written elsewhere, before; deletes of the others' are looked for without
    reading any. Pure."""
    asked = [] if todo.read is None else [todo.read]
    asked += [f"tableoid IN ({', '.join(map(str, come))})"] if come else []
    asked += ["false"] if gone else []
    return replace(todo, read=combined(asked), sweep=todo.sweep or bool(gone))


def needs_capture(pipeline: Pipeline, known: Shape, now: Shape, changes: Sequence[ColumnChange]) -> bool:
    """Whether `apply` has something to do for the table. Pure.

    Debezium reads what it is not told to leave out, and then misses it in what is streamed; and large values that an
    UPDATE leaves alone are lacking without the identity that `apply` gives.
    """
    identity, full = now.table.replica_identity, pipeline.policy.toast == "full"
    small = not any(may_be_large(column) for column in known.table.columns)
    larger = small and any(change.new is not None and may_be_large(change.new) for change in changes)
    lost = identity not in (known.table.replica_identity, "full")
    come, _ = now.parts_since(known)  # a partition has an identity and a trigger of its own
    return (
        known.table.generated != now.table.generated or lost or bool(come) or (full and larger and identity != "full")
    )
