"""Watches, while sinks run, the source: whether the log can be continued, and the tables are those that were captured.

See connectors/gaps/source_gaps.py and connectors/captured/changed.py.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psycopg

from cdc.errors import HeadwaterError, SlotLost, TableChanged
from cdc.pipeline import Pipeline
from cdc.repeating import Final, Repeating
from connectors.captured.tablewatch import TableWatch
from connectors.gaps.promotion import follow
from connectors.gaps.source_gaps import Remembered, check_source
from connectors.resized import in_lines, resized
from connectors.revival import Revival
from operations.run.owner import owner_refused
from operations.run.wal_watch import WalWatch, with_reason
from operations.state.folder import SOURCE, state_dir
from operations.state.keys import kept_keys
from operations.state.wal import forget_wal
from spark.disk.files import write_atomic
from spark.disk.notes import read_note

# A gap does no harm faster than its records come; the check costs two queries and a request.
CHECK_SECONDS = 30.0
# A table that has lost its place goes on losing changes: a few catalogue queries over an open connection.
TABLE_SECONDS = 2.0
# A connector that fails stands still until somebody looks: one request.
CONNECTOR_SECONDS = 5.0
# WAL that comes at 1 GiB/s, the most that a disk takes, is 5 GiB by then: half of the budget that is the default.
WAL_SECONDS = 5.0
# The sizes of topics, of which somebody changes one in a year: other looks do not wait long for brokers that are away.
SIZE_SECONDS, SIZE_PATIENCE = 60.0, 3.0
MEND = (
    "remove it: it is made again, and failovers that were followed are known from the database; if there was one that "
    "`run` has not followed yet, restore it from a copy"
)


# Makes the first check.
First = Callable[[Callable[[], None]], None]


def memory(pipeline: Pipeline) -> Path:
    """Where what was seen of the source is remembered."""
    return state_dir(pipeline) / pipeline.name / SOURCE


def remembered(pipeline: Pipeline) -> Remembered | None:
    """What was seen of the source last; None if nothing was.

    Raises:
        StateError: it can't be read (terminal).
    """
    return read_note(memory(pipeline), lambda note: Remembered(**note), MEND)


def forget(pipeline: Pipeline) -> None:
    """Forget what was seen of a source that is left: it would be held against the next one."""
    memory(pipeline).unlink(missing_ok=True)
    forget_wal(pipeline)


class SourceWatch:
    """A context manager that checks at its beginning, and then in the background.

    Attributes:
        error: the named error once the log can't be continued; None while all is well.
        news: what was done meanwhile, a line each; whoever tells it takes it.

    Args:
        pipeline: the loaded file.
        first: makes the first check; may make it again while what it needs is away.
    """

    def __init__(self, pipeline: Pipeline, first: First = lambda check: check()) -> None:
        self.pipeline = pipeline
        self._first = first
        self._refused: str | None = None
        self.error: HeadwaterError | None = None
        self.news: deque[str] = deque()
        self._tables = TableWatch(pipeline, kept_keys(pipeline))  # before the sinks are brought to what is there now
        self._revival = Revival(pipeline, self.check)
        self._wal = WalWatch(pipeline, self.check)
        self._greeted = False
        self._resized, self._resized_at = frozenset[str](), time.monotonic()  # tables that were told of, and when
        self._checked = self._looked = self._weighed = 0.0
        self._watching = Repeating("source watch", self._watch, TABLE_SECONDS, at_once=True, last=self._close)

    def __enter__(self) -> SourceWatch:
        """Check now.

        Raises:
            SlotLost, LogGap, SourceChanged: the log can't be continued (terminal).
            ConnectUnavailable: a promoted server can't be followed without its answer (transient).
        """
        self._first(self.check)
        self._tables.look()
        self._watching.start()
        return self

    @property
    def changed(self) -> Mapping[str, TableChanged]:
        """Tables whose changes are missing in their topics, and the error of each."""
        return self._tables.changed

    @property
    def forgetful(self) -> bool:
        """Gaps of tables can't be noted in the database: an older version has applied this pipeline."""
        return self._tables.forgetful

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.stop()

    def check(self) -> None:
        """Check once, and remember what was seen.

        Raises:
            SlotLost, LogGap, SourceChanged: the log can't be continued (terminal).
        """
        known = remembered(self.pipeline)
        try:
            seen = check_source(self.pipeline, known, follow, self._told)
        except SlotLost as error:
            raise with_reason(self.pipeline, error) from error
        if seen is not None and seen != known:
            write_atomic(memory(self.pipeline), json.dumps(seen.to_dict()))
            if known is not None and seen.timeline != known.timeline:
                self.news.append(f"the database has failed over to timeline {seen.timeline}, and is followed")

    def _told(self, refused: str | None) -> None:
        """Postgres has refused the login, or has not: a password that was changed there must not go unnoticed."""
        if refused is not None and refused != self._refused:
            self.news.append(f"warning: {refused}: sinks go on with what the log holds, and nobody watches the source")
        elif refused is None and self._refused is not None:
            self.news.append("Postgres takes the login again")
        self._refused = refused

    def _watch(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._checked = self._looked = time.monotonic()
            self._weighed = self._checked - WAL_SECONDS
            if refused := owner_refused(self.pipeline.source):
                self.news.append(f"warning: {refused}")
            self._size()
            return
        try:
            self._look()
        except OSError:
            pass  # a disk that is full or away for a moment; what was seen is written down next time
        except HeadwaterError as error:
            if not error.transient:
                self.error = error
                raise Final from error

    def _look(self) -> None:
        self._tables.look()
        if time.monotonic() - self._checked >= CHECK_SECONDS:
            self.check()
            self._checked = time.monotonic()
        if time.monotonic() - self._looked >= CONNECTOR_SECONDS:
            self._looked = time.monotonic()
            if done := self._revival.look():
                self.news.append(done)
        if time.monotonic() - self._weighed >= WAL_SECONDS:
            self._weighed = time.monotonic()
            self.news.extend(self._wal.look())
        if time.monotonic() - self._resized_at >= SIZE_SECONDS:
            self._size()

    def _size(self) -> None:
        """Say of each topic that somebody has resized, once: `status` tells for as long as it is so."""
        with suppress(HeadwaterError, psycopg.Error):  # who does not answer is asked again the next time
            found = resized(self.pipeline, SIZE_PATIENCE)
            new = {table: error for table, error in found.items() if table not in self._resized}
            self.news.extend(f"warning: {line}" for line in in_lines(new))
            self._resized = frozenset(found)
        self._resized_at = time.monotonic()

    def _close(self) -> None:
        self._tables.close()
        self._wal.close()
