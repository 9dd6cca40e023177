"""Tables that a generation goes on with as they were, read as they are: columns by their number, whatever their names.

The table's definition has its former names and types, the database answers to those of today
(``cdc.catalogue.Table.present``). A column that is gone, or of which the text of today does not say what its former
type held, can't be compared with anything: that is said, and nothing that looks like a difference.
"""

from __future__ import annotations

from cdc.catalogue import Column, Table
from cdc.errors import StateError
from cdc.resolve.views import view_tables
from cdc.types import type_key
from cdc.used import used_columns
from cdc.view import View

# Types whose values have the same text.
_ALIKE = (frozenset(("int2", "int4", "int8")), frozenset(("text", "varchar", "name", "enum")))


def stored(table: Table, name: str) -> Column | None:
    """A column as the database has it now; None if it is gone."""
    return dict(table.present).get(name, table.by_name[name])


def refuse_altered(view: View) -> None:
    """Refuse a view that shows columns of which Postgres can't say any more what they must be.

    Raises:
        StateError: so it is; each of them is named (terminal for this generation).
    """
    found = [
        f"column {table}.{column.name} {why}"
        for table, one in sorted(view_tables(view).items())
        for column, now in ((one.by_name[name], now) for name, now in one.present if name in one.by_name)
        if column.name in used_columns(view, table) and (why := _altered(column, now))
    ]
    if found:
        raise StateError(
            f"view {view.name} is of a table as it was before it was altered: {', '.join(found)}",
            means="Postgres can't tell any more what this generation must hold: what a former type can't hold is null "
            "in it, and so is a column that is gone in rows that were changed since",
            fix="`headwater run FILE` builds and compares the next generation, which is shown then "
            "(`headwater status FILE` says how far it is)",
        )


def _altered(was: Column, now: Column | None) -> str | None:
    if now is None:
        return "has been dropped"
    keys = {type_key(was), type_key(now)}
    same = len(keys) == 1 and (keys != {"bit"} or was.type_name == now.type_name)
    # 5.0000 for the 5.00 of before: a warehouse's column has no room for it, and all rows would seem to differ.
    same = same and (keys != {"numeric"} or was.scale == now.scale)
    if was.array == now.array and (same or any(keys <= kind for kind in _ALIKE)):
        return None
    return f"was {was.type_name}, and is {now.type_name}"
