"""Of a view of events of some types alone, which rows of the outbox are its own. Pure."""

from __future__ import annotations

from psycopg import sql

from cdc.view import View
from truth.altered import stored

# The condition of who wants all rows.
ALL = sql.SQL("true")


def of_types(view: View, alias: str = "") -> sql.Composable:
    """The condition that a row of the root is an event of one of the view's types; of any other view, ``ALL``.

    Args:
        view: the view.
        alias: what the query calls the root's table; empty where the column's bare name is enough.
    """
    if not view.event_types:
        return ALL
    # One that the table of a generation does not know was renamed since: the file names it as it is now.
    column = stored(view.table, view.type_column) if view.type_column in view.table.by_name else None
    name = sql.Identifier(*filter(None, (alias, column.name if column else view.type_column)))
    # As the connector compares it: by its text, with the blanks at the end of a char(n), and letter by letter.
    types = sql.SQL(", ").join(map(sql.Literal, view.event_types))
    return sql.SQL("""format('%s', {}) COLLATE "C" IN ({})""").format(name, types)
