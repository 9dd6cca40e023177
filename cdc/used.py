"""Which columns of its tables a view is made of."""

from __future__ import annotations

from cdc.fold import FoldView
from cdc.join.expressions import mentions
from cdc.join.view import JoinedView
from cdc.timed import MatchView, TimedView, WindowView
from cdc.view import View


def used_columns(view: View, table: str) -> frozenset[str]:
    """Names of a table's columns that a view needs: for its documents, its expressions, its joins.

    Args:
        view: a resolved view.
        table: ``schema.table``.
    """
    if isinstance(view, JoinedView):
        layout = view.layout.tables.get(table)
        if layout is None:
            return frozenset()
        said = {column.column for column in layout.aggregates if column.column}
        for aggregate in layout.aggregates:
            for text in (aggregate.value, aggregate.where):
                said |= mentions(text, layout.table.by_name) if text and aggregate.computed else set()
        return frozenset(layout.columns) | said
    if view.table.qualified != table:
        return frozenset()
    expressions = view.row_sql
    if isinstance(view, FoldView):
        expressions.append(view.step)
    if isinstance(view, (WindowView, MatchView)):
        expressions += view.expressions
    said = set().union(*(mentions(text, view.table.by_name) for text in expressions))
    moments = view.moments if isinstance(view, TimedView) else frozenset[str]()
    return frozenset(view.key) | {source for source, _ in view.columns} | said | moments
