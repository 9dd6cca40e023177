"""Opens generations anew when what their flows were made with is void.

Flows of a table whose changes are missing are stopped, and taken up again when that is mended. All are taken up again
when the initial snapshot was interrupted and has begun anew, at another position.

The others go on. What the flows know of the table (its columns, its key) may be void, so that their generations are
opened anew, with definitions that are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.catalogue import Catalogue
from cdc.errors import HeadwaterError, TableChanged
from cdc.journal import all_about
from cdc.outbox import by_topic, topics_of_table
from cdc.pipeline import Pipeline
from cdc.resolve.views import resolve_views, view_tables
from connectors.captured.tablewatch import look_once
from connectors.gaps.lost_offset import check_snapshot
from connectors.marker_watch import MarkerWatch
from operations.state.catalogue import source_catalogue
from operations.state.frozen import with_gone
from operations.state.keys import kept_keys

if TYPE_CHECKING:
    from operations.opened import Opened
    from operations.run.engine import Engine


def refuse_changed(pipeline: Pipeline, sink: str, catalogue: Catalogue) -> None:
    """Refuse to fill a sink from a topic in which changes are missing.

    Raises:
        TableChanged: of the first such table (terminal).
        StateError: what is kept of a sink can't be read (terminal).
    """
    changed = look_once(pipeline, kept_keys(pipeline))
    views = resolve_views(pipeline, with_gone(pipeline, sink, catalogue), sink)
    read = {table for view in views for table in view_tables(view)}
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
        self._marker = MarkerWatch(engine.pipeline, engine.snapshot_lsn)

    def follow(self, changed: Mapping[str, TableChanged]) -> list[str]:
        """Stop the flows that read one of these tables, take up those that no longer do.

        Args:
            changed: every table with a gap now, and its error.

        Returns:
            what was done, a line each.

        Raises:
            LogGap: the initial snapshot was made once more, though it had ended (terminal).
        """
        pipeline = self.engine.pipeline
        now = by_topic(pipeline, {table: str(error) for table, error in changed.items()})
        mended = set(self._halted) - set(now)
        why = "its tables are mended"
        said = [line for one in list(self.engine.builds) if one.topics & mended for line in self._again(one, why)]
        if mended:
            self.engine.histories.open_anew(self.engine, mended)
        if (position := self._marker.newer()) is not None:
            check_snapshot(pipeline, position)
            self.engine.snapshot_lsn, why = position, "the initial snapshot has begun again"
            said += [line for build in list(self.engine.builds) for line in self._again(build, why)]
            self.engine.histories.open_anew(self.engine)
        self._halted = now
        stopped = self.engine.runner.halt(now)
        for table, error in changed.items():
            titles = [title for title, topic in stopped.items() if topic in topics_of_table(pipeline, table)]
            if titles:
                said.append(f"error: {', '.join(titles)} stopped: {error}")
        return said

    @property
    def waits(self) -> bool:
        """Whether flows stand still until `headwater apply` has mended a table: they go on in this process then.

        Not for a table that none of them reads, nor flows that have failed for something else.
        """
        return any(
            run.halted and self._halted.keys() & run.flow.spec.topics.keys() for run in self.engine.runner.running
        )

    def close(self) -> None:
        """End watching."""
        self._marker.close()

    def _again(self, build: Opened, why: str) -> list[str]:
        said = [f"{build.sink}, generation {build.generation.number}: {why}"]
        try:
            self.engine.catalogue = source_catalogue(self.engine.pipeline)
        except HeadwaterError as error:  # gone in this moment: with what was known; it is tried again
            said.append(f"warning: {error.what}")
        return all_about(said + self.engine.take_again(build), **build.about)
