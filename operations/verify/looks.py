"""One look at what must be there: rows of Postgres in a snapshot, or the log up to its ends.

A look fixes a moment, waits until the sink has passed that, and says what must be there at it. Of rows the moment is a
snapshot's place in the source's log. Of events it is where the topics end: the snapshot knows nothing of them, and what
came between it and the reading of the log would be taken for missing in a sink that is right. A document that shows
rows as they were is of both: of its versions those count that lie below the ends that were waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cdc.join.view import JoinedView
from cdc.keys import is_stray
from cdc.pipeline import Pipeline
from cdc.records.position import MAX_LSN
from cdc.stateful import StatefulView
from cdc.view import View
from connectors.database.visibility import Visible, next_transaction, read_visible
from connectors.postgres import connect
from operations.holding import Holding
from operations.logged_events import Ends, Log, log_ends, logged
from operations.verify.expected_file import Told, reading
from operations.verify.frontier import Frontier
from truth.bounds import Bounds
from truth.expected import digests, expected
from truth.rows import snapshot, wal_position
from truth.sample import sampled_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.postgres import Connection

# So long those that are under way are waited for, of which one may be in the log and be seen a moment later.
SEEN_SECONDS = 0.5
# Whether what is there was written, by its version, after a look had begun.
Moved = Callable[[int], bool]


class Look(Protocol):
    """What must be there at one moment."""

    def passed(self, frontier: Frontier, deadline: float, on_pause: Callable[[], None]) -> bool:
        """Wait until the sink has passed the moment; see ``Frontier.wait``."""

    def sample(self, count: int, seed: int) -> list[str]:
        """The keys of so many random things that must be there."""

    def truth(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Key -> digest of what must be there."""

    def unsure(self, keys: Sequence[str]) -> frozenset[str]:
        """Those of the keys that may be otherwise and right; see ``truth.expected.Expected``."""

    def moved(self) -> Moved:
        """To be asked of what was read before this call."""

    def lost(self, version: int) -> bool:
        """Whether what is there may be made of events that the log has lost."""


@contextmanager
def looking(holding: Holding, view: View, spark: SparkSession | None, path: Path) -> Iterator[Look]:
    """A look, for the time of a block; what the sink holds is read within the bounds that it states.

    Args:
        holding: what the sink holds.
        view: the view.
        spark: needed when the view has Spark SQL.
        path: of a file that it may make; beside it lies what it needs meanwhile.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
        KafkaUnavailable: no answer (transient).
    """
    pipeline = holding.opened.pipeline
    with snapshot(pipeline.source) as connection:
        if not isinstance(view, StatefulView):
            yield _Rows(holding, view, spark, connection, path.parent)
            return
        with reading(path) as told:
            look = _Log(holding, view, spark, connection, told, path.parent)
            holding.bounds = look.bounds
            yield look
    path.unlink(missing_ok=True)


def visible_now(holding: Holding, view: View) -> Visible | None:
    """Which transactions a look that begins now sees; None of a view that is not the rows of one table.

    Args:
        holding: what the sink holds.
        view: the view.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    if isinstance(view, JoinedView | StatefulView):
        return None
    with connect(holding.opened.pipeline.source) as connection:
        return read_visible(connection, SEEN_SECONDS)


def next_number(pipeline: Pipeline) -> int:
    """The id of a transaction that begins now: all that are in the log have lower ones.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    with connect(pipeline.source) as connection:
        return next_transaction(connection)


class _Rows:
    """Rows, in a snapshot."""

    def __init__(
        self, holding: Holding, view: View, spark: SparkSession | None, connection: Connection, folder: Path
    ) -> None:
        self._pipeline, self._form = holding.opened.pipeline, holding.opened.form(view)
        self._view, self._spark, self._connection = view, spark, connection
        self._folder, self._taken = folder, 0
        self._ends: Ends | None = None

    def passed(self, frontier: Frontier, deadline: float, on_pause: Callable[[], None]) -> bool:
        self._taken = wal_position(self._connection)
        self._ends = frontier.wait(self._taken, deadline, on_pause)
        return self._ends is not None

    def sample(self, count: int, seed: int) -> list[str]:
        return sampled_ids(self._connection, self._view, count, seed)

    def truth(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        # No row has the key of something stray, and Postgres would not take it.
        real = [key for key in keys if not is_stray(key)]
        events = logged(self._pipeline, self._view, self._ends)
        found = expected(self._view, self._connection, self._spark, real, events=events, folder=self._folder)
        return {key: of[self._form] for key, of in digests(self._view, found, [self._form])}

    def unsure(self, keys: Sequence[str]) -> frozenset[str]:
        return frozenset()

    def moved(self) -> Moved:
        now = wal_position(self._connection)  # of the server, and not of the snapshot
        return lambda version: self._taken < version & MAX_LSN <= now

    def lost(self, version: int) -> bool:
        return False


class _Log:
    """Events, up to where the log ended when the look began; worked out when it is first asked."""

    def __init__(
        self,
        holding: Holding,
        view: StatefulView,
        spark: SparkSession | None,
        connection: Connection,
        told: Told,
        folder: Path,
    ) -> None:
        self._pipeline, self._form = holding.opened.pipeline, holding.opened.form(view)
        self._view, self._spark, self._connection, self._told = view, spark, connection, told
        self._ends: Ends = log_ends(self._pipeline, view)
        self._log = Log(self._pipeline, view, self._ends)
        self._folder, self._filled = folder, False

    def passed(self, frontier: Frontier, deadline: float, on_pause: Callable[[], None]) -> bool:
        return frontier.wait_for(self._ends, deadline, on_pause)

    def sample(self, count: int, seed: int) -> list[str]:
        return self._worked_out().sample(self._form, count, seed)

    def truth(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        found = self._worked_out().wanted(keys, self._form)
        return {key: one.digest for key, one in found.items() if one.digest is not None}

    def unsure(self, keys: Sequence[str]) -> frozenset[str]:
        return frozenset(key for key, one in self._worked_out().wanted(keys, self._form).items() if one.unsure)

    def bounds(self, key: str) -> Bounds:
        return self._worked_out().bounds(key)

    def moved(self) -> Moved:
        return lambda version: False  # whoever moved has another truth by the end of the log that is next looked at

    def lost(self, version: int) -> bool:
        return version & MAX_LSN < self._log.begin

    def _worked_out(self) -> Told:
        if not self._filled:
            self._filled = True
            found = expected(self._view, self._connection, self._spark, events=self._log, folder=self._folder)
            for _ in self._told.fill(self._view, found, [self._form]):
                pass
        return self._told
