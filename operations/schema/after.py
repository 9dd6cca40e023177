"""Views as the file has them, over tables as they were, or as they are after some of them have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError
from cdc.pipeline import Pipeline
from cdc.resolve.names import find_table, keyed
from cdc.resolve.views import resolve_view, table_view
from cdc.view import View


def resolved(pipeline: Pipeline, catalogue: Catalogue, name: str) -> View | ConfigError:
    """A view over these tables, or why it can't be made; one that the file does not name is a table's own."""
    try:
        if name in pipeline.views:
            return resolve_view(pipeline, catalogue, name)
        table = find_table(pipeline, catalogue, name, ("source", "tables"))
        keyed(pipeline, table, ("source", "tables"))
        return table_view(pipeline, table)
    except ConfigError as error:
        return error


def after(
    pipeline: Pipeline, own: Catalogue, catalogue: Catalogue, name: str, tables: Sequence[str]
) -> dict[str, View | ConfigError]:
    """A view after each of these tables has changed, or why it can't be made any more.

    Each is judged by its own change: a table that a generation has to go on with as it was (or that it can't follow)
    takes no other one along that changes at the same time. So what is judged is what the generation then is over. Only
    tables that can't change without each other, as two whose columns are joined get another type, are judged together.
    """

    def changed(*names: str) -> View | ConfigError:
        now = {table: catalogue.tables[table] for table in names}
        return resolved(pipeline, replace(own, tables={**own.tables, **now}), name)

    alone = {table: changed(table) for table in tables}
    if len(tables) < 2:
        return alone
    bound = [table for table, view in alone.items() if isinstance(view, ConfigError)]
    every = changed(*tables)
    if isinstance(every, ConfigError):
        return alone if bound else dict.fromkeys(tables, every)
    together = changed(*bound)
    if isinstance(together, ConfigError):
        return dict.fromkeys(tables, every)  # they need one that could do without them
    return {**alone, **dict.fromkeys(bound, together)}
