"""Looks at the source's tables again and again, in the background: have their columns changed?"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from cdc.catalogue import Catalogue
from cdc.errors import SourceError
from cdc.pipeline import Pipeline
from cdc.repeating import Repeating
from cdc.shapes import Shape
from connectors.postgres import ANSWER_SECONDS, STATEMENT_SECONDS, Connection, connect, within
from connectors.tables.shapes import fingerprint, read_shapes

# A migration is followed by its first rows within moments; the look is one query over an open connection.
LOOK_SECONDS = 1.0
# Of some ten thousand partitions it takes a second: then it rests for so many times as long, for the primary has other
# work, but no longer than this. A record that does not fit meanwhile has the tables looked at at once.
REST, LONGEST_SECONDS = 20.0, 300.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Look:
    """The tables at one moment: see ``connectors.tables.shapes.read_shapes``.

    Attributes:
        catalogue: the tables.
        shapes: the same as shapes.
        began: when they were asked for, monotonic seconds: what was written before that is older than they are.
    """

    catalogue: Catalogue
    shapes: Mapping[str, Shape]
    began: float = 0.0


class ShapeWatch:
    """Tables as they are now; call ``newest`` as often as you like, it waits for nothing.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._connection: Connection | None = None
        self._print = ""
        self._asked = False
        self._newest: Look | None = None
        self._took, self._late = 0.0, False
        self._lock = threading.Lock()
        self._watching = Repeating("shape watch", self._work, self._pause, at_once=True, last=self._let_go)
        self._watching.start()

    def newest(self) -> Look | None:
        """A look that was not taken yet; None while nothing is new."""
        with self._lock:
            found, self._newest = self._newest, None
        return found

    def ask(self) -> None:
        """Look now, and tell also if nothing has changed: a record does not fit what is known."""
        self._asked = True
        self._watching.wake()

    def follow(self, pipeline: Pipeline) -> None:
        """Look at the tables of another file from now on."""
        self.pipeline = pipeline
        self.ask()

    def close(self) -> None:
        """End watching."""
        self._watching.stop()
        self._watching.join(LOOK_SECONDS)

    def _pause(self) -> float:
        return max(LOOK_SECONDS, min(REST * self._took, LONGEST_SECONDS))

    def _work(self) -> None:
        with suppress(SourceError, psycopg.Error):  # down, or a table goes at this moment: asked again
            try:
                if self._connection is None:
                    self._took = 0.0  # a server that does not let us in is not spared by a long rest
                    self._connection = connect(self.pipeline.source)
                with within(self._connection, ANSWER_SECONDS):
                    self._look(self._connection)
            except BaseException:
                self._print = ""
                self._let_go()
                raise

    def _look(self, connection: Connection) -> None:
        # In this order: who asks afterwards is looked for anew, and who asked before has set the file by now.
        asked, self._asked = self._asked, False
        began, tables = time.monotonic(), self.pipeline.source.tables
        # The print first: what changes after it is found the next time.
        try:
            now = fingerprint(connection, tables)
        except (SourceError, psycopg.Error) as error:
            took = time.monotonic() - began
            # It rests long of a look that was too much for the server, and not of a network that was away.
            self._took = took if isinstance(error.__cause__ or error, psycopg.errors.QueryCanceled) else 0.0
            self._say_late(error, took)
            raise
        self._took, self._late = time.monotonic() - began, False
        if now == self._print and not asked:
            return
        catalogue, shapes = read_shapes(connection, tables, absent=[])
        with self._lock:
            self._newest = Look(catalogue, shapes, began)
        self._print = now

    def _say_late(self, error: Exception, took: float) -> None:
        """Say once that there was no answer in time: of a server that is away others tell."""
        if took >= STATEMENT_SECONDS and not self._late:
            self._late = True
            _log.warning(
                "Postgres did not say within %.0f s whether captured tables were altered; those that are will be"
                " noticed once it does: %s",
                took,
                error,
            )

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
