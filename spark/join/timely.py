"""May a value that a record leaves out be taken from the row that is stored? Only if that row is the one before it.

An update that leaves a large value alone does not hold it (TOAST, ``policy.toast: allow``). The stored row has it,
unless a change in between was compacted away before it was read: then the stored value is too old, and nobody would
ever see it. The log keeps every record for a while whatever comes after it (``kafka.compaction_lag_hours``). So nothing
can have been missed before a record that is younger than that, if all read since it was written was read as early.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.join.incoming import Incoming
from sinks.rowstore.contract import RowStore

# Of the time that the log promises: the source's clock is not ours, and the record came into the log after its commit.
SHARE = 0.9
# How much later than the last late reading a record must have been written: for clocks that differ.
CLOCKS_MS = 60_000
# How often a late reading is written down while it lasts.
AGAIN_MS = 10_000


class Timely:
    """Knows of each partition when it was last read late.

    Args:
        store: the row store, which remembers it.
        lag_seconds: how long the log keeps every record; 0 when it promises nothing.
        clock: epoch seconds; replaced in unit tests.
    """

    def __init__(self, store: RowStore, lag_seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._lag_ms = lag_seconds * 1000 * SHARE
        self._late: dict[str, int] = {}

    def saw(self, topic: str, partition: int, ts_ms: int) -> None:
        """A record was read; to be told of each, before what it means is used."""
        now = int(self._clock() * 1000)
        part = f"{topic}/{partition}"
        if now - ts_ms >= self._lag_ms and now - self._late.get(part, 0) > AGAIN_MS:
            self._late[part] = self._store.late(part, now)

    def fills(self, change: Incoming) -> bool:
        """Whether the row that is stored is certainly the one that this change was made of."""
        part = f"{change.topic}/{change.stamp.partition}"
        if part not in self._late:
            self._late[part] = self._store.late(part)
        young = self._clock() * 1000 - change.ts_ms < self._lag_ms
        return young and change.ts_ms > self._late[part] + CLOCKS_MS
