"""Whether the tables of a view are still those by which sinks are compared: a comparison may take hours.

`run` brings its sinks to a table that is altered within seconds. Held against what the table was, all that it has read
again would be wrong, and would stay so in each look. Held against what it is, a sink that `run` has not brought there
yet would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc.catalogue import Catalogue
from cdc.errors import ShapeUnknown, TableChanged
from cdc.pipeline import Pipeline
from cdc.resolve.views import view_tables
from cdc.view import View
from connectors.postgres import connect
from connectors.tables.shapes import fingerprint, read_shapes
from operations.state.shapes import remember_shapes


class TablesNow:
    """The captured tables.

    Args:
        pipeline: the loaded file.
        catalogue: the tables as they were read, by which views are resolved.
    """

    def __init__(self, pipeline: Pipeline, catalogue: Catalogue) -> None:
        self.catalogue = self._newest = catalogue
        self._pipeline, self._print = pipeline, ""

    def refuse_altered(self, view: View) -> None:
        """Refuse to tell what differs of a view when a table of it is not what it was.

        Args:
            view: as it was resolved.

        Raises:
            ShapeUnknown: one was altered (transient).
            SourceUnavailable, SourceError: see ``connectors.postgres``.
            StateError, DiskFull: see ``operations.state.shapes``.
        """
        self._look()
        tables = sorted(view_tables(view))
        if altered := [name for name in tables if _shape(self.catalogue, name) != _shape(self._newest, name)]:
            raise ShapeUnknown(
                f"{', '.join(altered)}, of which view {view.name} is made, was altered while sinks were compared",
                means="what its documents must be depends on whether `headwater run` has brought the sink to the table "
                "yet; nothing is told of what differs, and nothing more repaired",
                fix="give the command again",
            )

    def _look(self) -> None:
        with connect(self._pipeline.source) as connection:
            # The print first: what changes after it is found the next time.
            now = fingerprint(connection, self._pipeline.source.tables)
            if now != self._print:
                catalogue, shapes = read_shapes(connection, self._pipeline.source.tables, absent=[])
                self._newest = remember_shapes(self._pipeline, shapes).told_to(catalogue)
                self._print = now


def _shape(catalogue: Catalogue, name: str) -> Any:
    """What is altered of a table: its columns, or values that were made anew and are in no record."""
    table = catalogue.tables.get(name)
    return None if table is None else (table, table.since)


def not_there(view: View, tables: Sequence[str]) -> TableChanged:
    """The error for a view of tables that were renamed or dropped. Pure."""
    return TableChanged(
        f"view {view.name} is made of {', '.join(tables)}, which is not there under that name any more",
        means="there is nothing to compare its documents with; other views are compared",
        fix="`headwater status FILE` tells what has become of it, and what to do",
    )
