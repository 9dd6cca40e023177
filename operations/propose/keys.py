"""What a database's foreign keys are for documents: which make joins, and which a table between two. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.catalogue import Table
from cdc.join.comparable import not_joined
from cdc.types import supported
from connectors.survey import LeftOut
from connectors.tables.foreign_keys import ForeignKey


class Keys:
    """The foreign keys that make joins, looked up by both of their ends: some tables are named by all others.

    Args:
        found: in the database's order.
    """

    def __init__(self, found: Iterable[ForeignKey]) -> None:
        self._of: dict[str, list[ForeignKey]] = {}
        self._at: dict[str, list[ForeignKey]] = {}
        for key in found:
            self._of.setdefault(key.table, []).append(key)
            self._at.setdefault(key.target, []).append(key)

    def of(self, table: str) -> list[ForeignKey]:
        """Those by which a table's rows point."""
        return self._of.get(table, [])

    def at(self, table: str) -> list[ForeignKey]:
        """Those that point at a table's rows."""
        return self._at.get(table, [])


def not_a_join(key: ForeignKey, tables: Mapping[str, Table]) -> LeftOut | None:
    """Why a foreign key makes no join; None if it makes one. The one place where that is decided."""
    name = f"{key.table} ({', '.join(key.columns)}) → {key.target} ({', '.join(key.keys)})"
    if key.target not in tables:
        return LeftOut(name, "the table that it points at is not captured")
    if key.period:
        return LeftOut(name, "it is over periods: its rows cover, they are not equal")
    table, target = tables[key.table], tables[key.target]
    if sorted(key.keys) not in [sorted(one) for one in (target.primary_key, *target.unique_keys)]:
        wrong = f"({', '.join(key.keys)}) is none of {key.target}"
        return LeftOut(name, f"joins go along primary keys and other unique ones, and {wrong}")
    for one, other in key.forward.items():
        left, right = supported(table).by_name.get(one), supported(target).by_name.get(other)
        if left is None or right is None:
            return LeftOut(name, f"the column {one if left is None else other} is not captured")
        if (why := not_joined(left, right)) is not None:
            return LeftOut(name, why)
    return None


def sides(table: Table, mine: list[ForeignKey]) -> tuple[ForeignKey, ForeignKey] | None:
    """The two foreign keys that a table between two others is made of; None for other tables.

    They are its primary key; or they are unique and there is nothing else but a key of its own, as Django makes the
    tables of its many-to-many fields. With more columns, such a table is about something: it is shown as itself.

    Args:
        table: the table.
        mine: its foreign keys.
    """
    every, unique = sorted(table.by_name), [sorted(one) for one in table.unique_keys]
    for at, one in enumerate(mine):
        for other in mine[at + 1 :]:
            both = sorted((*one.columns, *other.columns))
            if both == sorted(table.primary_key):
                return one, other
            if both in unique and sorted((*both, *table.primary_key)) == every:
                return one, other
    return None
