"""Stops the flows of a table whose changes are missing, and takes them up again when that is mended.

The others go on. What the flows know of the table (its columns, its key) may be void, so that their generations are
opened anew, with definitions that are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError, TableChanged
from cdc.pipeline import Pipeline
from cdc.resolve import resolve_views, view_tables
from connectors.tablewatch import TableWatch
from console.catalogue import source_catalogue

if TYPE_CHECKING:
    from console.engine import Engine
    from console.flows import Build


def refuse_changed(pipeline: Pipeline, sink: str, catalogue: Catalogue) -> None:
    """Refuse to fill a sink from a topic in which changes are missing.

    Raises:
        TableChanged: of the first such table (terminal).
    """
    watch = TableWatch(pipeline)
    try:
        changed = watch.look()
    finally:
        watch.close()
    read = {table for view in resolve_views(pipeline, catalogue, sink) for table in view_tables(view)}
    for table in sorted(read & changed.keys()):
        raise changed[table]


class Halting:
    """What was stopped of an engine because of its tables.

    Args:
        engine: whose flows are meant.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._halted: dict[str, str] = {}  # topic -> why

    def follow(self, changed: Mapping[str, TableChanged]) -> list[str]:
        """Stop the flows that read one of these tables, take up those that no longer do.

        Args:
            changed: every table with a gap now, and its error.

        Returns:
            what was done, a line each.
        """
        now = {self.engine.pipeline.topic(table): str(error) for table, error in changed.items()}
        mended = set(self._halted) - set(now)
        said = [line for build in list(self.engine.builds) if build.topics & mended for line in self._again(build, "tables are mended")]
        self._halted = now
        stopped = self.engine.runner.halt(now)
        for table, error in changed.items():
            titles = [title for title, topic in stopped.items() if topic == self.engine.pipeline.topic(table)]
            if titles:
                said.append(f"{', '.join(titles)} stopped: {error}")
        return said

    def _again(self, build: Build, why: str) -> list[str]:
        said = [f"{build.sink}, generation {build.generation.number}: {why}"]
        try:
            self.engine.catalogue = source_catalogue(self.engine.pipeline)
        except HeadwaterError as error:  # gone in this moment: with what was known; it is tried again
            said.append(f"warning: {error.what}")
        return said + self.engine.take_again(build)
