"""What a proposed view is: its root, and what is joined to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.catalogue import Table
from connectors.survey import LeftOut
from operations.propose.hidden import Pick


@dataclass(frozen=True)
class Join:
    """A row, rows or a count at its place in a view.

    Attributes:
        name: in the document.
        kind: refs, children or aggregates.
        table: the table's name as the file writes it.
        on: {column of the row above: column of this table}.
        columns: those that are shown; none for all of them.
        order_by: of children.
        limit: of children.
        refs: below children of a table between two.
        one: of children: no more than one row points here.
        hide: of children of a table between two: only what is below them is shown.
    """

    name: str
    kind: str
    table: str
    on: Mapping[str, str]
    columns: tuple[Pick, ...] = ()
    order_by: str = ""
    limit: int | None = None
    refs: tuple[Join, ...] = ()
    one: bool = False
    hide: bool = False

    @property
    def shown(self) -> tuple[str, ...]:
        """The names that stand in the document."""
        return tuple(ref.name for ref in self.refs) if self.hide else (self.name,)


@dataclass(frozen=True)
class Proposed:
    """One view.

    Attributes:
        name: the view's.
        table: its root.
        root: as the file writes it.
        kind: ``joined`` or ``plain``.
        columns: those that are shown; none for all of them.
        joins: in the order of a document.
        hidden: columns that are left out because of their names.
    """

    name: str
    table: Table
    root: str
    kind: str
    columns: tuple[Pick, ...]
    joins: tuple[Join, ...]
    hidden: tuple[str, ...] = ()


@dataclass
class Proposal:
    """All views, and what is not in them.

    Attributes:
        views: in order of their tables.
        between: tables that only tell which rows of two others belong together.
        details: tables whose rows are parts of another's documents, with that table.
        left_out: foreign keys that make no join.
    """

    views: list[Proposed] = field(default_factory=list)
    between: list[str] = field(default_factory=list)
    details: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
