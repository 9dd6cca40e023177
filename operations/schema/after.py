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
    """A view after some tables have changed, or why it can't be made any more.

    Only a table that it can't follow is to blame, not one that changes at the same time, or after that one was refused:
    every view that reads a table is stopped with it.
    """

    def changed(*names: str) -> View | ConfigError:
        now = {table: catalogue.tables[table] for table in names}
        return resolved(pipeline, replace(own, tables={**own.tables, **now}), name)

    now = changed(*tables)
    if isinstance(now, ConfigError):
        alone = {table: changed(table) for table in tables}
        if any(isinstance(view, ConfigError) for view in alone.values()):
            return alone
    return dict.fromkeys(tables, now)
