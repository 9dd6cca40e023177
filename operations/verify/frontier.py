"""How far a generation is: whether it has applied everything that was committed before a moment.

The ledger (connectors/ledger.py) gives pairs of an LSN and the log's ends; a flow that has committed those offsets is
complete through that LSN. A joined view must also be filled, and have no deferred documents waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from cdc.errors import HeadwaterError
from cdc.join.view import JoinedView
from cdc.resolve.views import topics_of, view_tables
from cdc.saying import Say, to_nobody
from cdc.timed import MatchView
from cdc.view import View
from connectors.database.slot import read_slot
from connectors.ledger import LedgerEntry, read_entry
from connectors.servers import Servers, open_servers
from operations.opened import Opened
from operations.pace import Pace
from sinks.rowstore.redis import RedisRowStore
from spark.disk.checkpoint import committed_offsets, committed_watermark
from spark.disk.filling import is_live
from spark.events.clocks import Clocks

# Between two looks at how far a flow is.
PAUSE_SECONDS = 0.25
# The row store is asked on the side; one that does not answer proves nothing.
PATIENCE_SECONDS = 5.0
NOBODY_KNOWS = 2**63


class Frontier:
    """How far one view of one generation is.

    Args:
        opened: the generation.
        view: the view.
        servers: of the pipeline; None if they can't be asked, then nothing is ever proved.
        say: told a line now and then while it is waited for.
    """

    def __init__(self, opened: Opened, view: View, servers: Servers | None, say: Say = to_nobody) -> None:
        self.say = say
        self._opened, self._view, self._servers = opened, view, servers
        self._joined = isinstance(view, JoinedView)
        self.generation, self.folder = opened.generation, opened.flow_folder(view)

    def wait(
        self, lsn: int, deadline: float, on_pause: Callable[[], None] = lambda: None
    ) -> Mapping[str, Mapping[int, int]] | None:
        """Wait until everything committed at or before an LSN has been applied; None when it took too long.

        What there is to apply is fixed once the log has come to the LSN. A flow that gets nearer to it is waited for,
        however long its way is, because under a steady writer one is always some batches behind; the time that is left
        until ``deadline`` now is how long it may stand still.

        Args:
            lsn: in bytes.
            deadline: in seconds of ``time.monotonic``; one look is made in any case.
            on_pause: called between looks.

        Returns:
            the log's ends that were waited for: all that was committed by then lies below them, and has been applied.
        """
        entry = self._wait(lambda: self._entry(lsn), deadline, on_pause)
        return None if entry is None else entry.offsets

    def wait_for(
        self, ends: Mapping[str, Mapping[int, int]], deadline: float, on_pause: Callable[[], None] = lambda: None
    ) -> bool:
        """As ``wait``, until everything has been applied that lies below these ends of the log; whether it has been.

        Args:
            ends: topic -> partition -> offset of the next record.
            deadline: see ``wait``.
            on_pause: see ``wait``.
        """
        return self._wait(lambda: LedgerEntry(0, ends), deadline, on_pause) is not None

    def _wait(
        self, made: Callable[[], LedgerEntry | None], deadline: float, on_pause: Callable[[], None]
    ) -> LedgerEntry | None:
        entry: LedgerEntry | None = None
        patience = max(deadline - time.monotonic(), 0.0)
        nearest, told = None, Pace(self.say, "changes applied that came before the look")
        while True:
            entry = entry or made()
            left = None if entry is None else self._left(entry)
            if left == (0, 0):
                return entry
            if left is not None and (nearest is None or left < nearest):
                nearest, deadline = left, max(deadline, time.monotonic() + patience)
            if left is not None and entry is not None:
                total = sum(end for ends in entry.offsets.values() for end in ends.values())
                told.at(total - left[0], total)
            if time.monotonic() > deadline:
                return None
            on_pause()
            time.sleep(PAUSE_SECONDS)

    def _entry(self, lsn: int) -> LedgerEntry | None:
        """A ledger entry at or past the LSN, if the log has got there."""
        if self._servers is None:
            return None
        try:
            slot = read_slot(self._servers.source, self._opened.pipeline.source.slot)
            if slot is None or slot.confirmed_lsn is None or slot.confirmed_lsn < lsn:
                return None
            topics = topics_of(self._opened.pipeline, self._view)
            return read_entry(self._servers, view_tables(self._view), topics)
        except HeadwaterError:
            return None

    def _left(self, entry: LedgerEntry) -> tuple[int, int]:
        """How far the flow is from an entry: (offsets, then what it still has to do of itself)."""
        _, offsets = committed_offsets(self.folder / "checkpoint")
        behind = entry.behind(offsets)
        if behind:
            return behind, 0
        if self._joined:
            return 0, self._deferred()
        return 0, self._untold() if isinstance(self._view, MatchView) and self._view.keep == "alone" else 0

    def _untold(self) -> int:
        """1 while a batch without events has still to tell what has become true by time that went on: absence."""
        reached, _ = Clocks(self.folder / "clocks").reached()
        return int(reached is not None and committed_watermark(self.folder / "checkpoint") < reached // 1000)

    def _deferred(self) -> int:
        """Documents of a joined view that wait; as many as can be if nobody knows, or while it is being filled."""
        if not is_live(self.folder):
            return NOBODY_KNOWS
        patience = {"give_up_seconds": PATIENCE_SECONDS, "request_timeout_seconds": PATIENCE_SECONDS}
        store = RedisRowStore(self._opened.row_store(self._view, **patience))
        try:
            return store.waiting()
        except HeadwaterError:
            return NOBODY_KNOWS
        finally:
            store.close()


@contextmanager
def opened_servers(opened: Opened) -> Iterator[Servers | None]:
    """The pipeline's servers; None if one can't be had: verification then only waits."""
    with ExitStack() as stack:
        try:
            servers = stack.enter_context(open_servers(opened.pipeline))
        except HeadwaterError:
            yield None
            return
        yield servers
