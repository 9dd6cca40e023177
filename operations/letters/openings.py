"""What is opened for letters when it is first needed: the source's tables, generations, Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cdc.catalogue import Catalogue
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline
from cdc.saying import Say, to_nobody
from cdc.view import View
from operations.opened import Opened, peek
from operations.state.catalogue import source_catalogue
from operations.state.folder import register_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Openings:
    """Keeps open what was opened.

    Args:
        pipeline: the loaded file.
        say: told a line when something takes long.
    """

    def __init__(self, pipeline: Pipeline, say: Say = to_nobody) -> None:
        self.pipeline, self.say = pipeline, say
        self._catalogue: Catalogue | None = None
        self._builds: dict[tuple[str, int], Opened] = {}
        self._spark: SparkSession | None = None

    @contextmanager
    def opened(self) -> Iterator[Openings]:
        """For the time of a block: then Spark ends, if it was started."""
        try:
            yield self
        finally:
            if self._spark is not None:
                self._spark.stop()

    @property
    def catalogue(self) -> Catalogue:
        """The source's tables.

        Raises:
            SourceError: Postgres does not answer, and they are not known from before.
        """
        if self._catalogue is None:
            self._catalogue = source_catalogue(self.pipeline)
        return self._catalogue

    def build(self, sink: str, number: int) -> Opened:
        """A generation, beside whoever runs it.

        Raises:
            ConfigError: its views do not fit the source's tables (terminal).
        """
        if (sink, number) not in self._builds:
            generation = register_of(self.pipeline, sink).generation(number)
            self._builds[sink, number] = peek(self.pipeline, self.catalogue, generation)
        return self._builds[sink, number]

    def spark(self, build: Opened, view: View) -> SparkSession | None:
        """Spark, if this view needs it; started once, so all warehouses are known to it.

        Raises:
            HeadwaterError: it can't be started.
        """
        if not (build.warehouse or view.needs_spark or (isinstance(view, JoinedView) and _counts_by_spark(view))):
            return None
        if self._spark is None:
            from operations.run.session import open_spark

            self.say(f"starting Spark, which view {view.name} needs")
            tables = [name for name, sink in self.pipeline.sinks.items() if sink.form == "columns"]
            self._spark = open_spark(self.pipeline, tables, "letters")
        return self._spark


def _counts_by_spark(view: JoinedView) -> bool:
    return any(a.computed for layout in view.layout.tables.values() for a in layout.aggregates)
