"""One reader of a view's changes for all who are connected: a thread that tails the stream into a ring.

A subscriber has a place and nothing else: what follows it is taken from the ring, or, by who is further behind, from
Redis page by page. So thousands of connections that wait cost one connection to Redis, and a slow one no memory.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from cdc.paging import PageSize
from operations.push.cursor import Cursor, number_of
from operations.push.follows import Follows, Placed
from operations.push.source import TROUBLES, Place, Source
from operations.push.walk import PAGE
from sinks.redis.client import is_passing, reason_of
from sinks.redis.read import NoChanges
from sinks.redis.stream.tail import Standing

log = logging.getLogger(__name__)

# What is kept here for who is not at the very end; entries, and bytes of documents.
RING_ENTRIES, RING_BYTES = 4_096, 32 << 20
# The thread waits in Redis for so long; then it looks whether readers see another stream.
BLOCK_MS = 1_000
# After a failure.
PAUSE_SECONDS = 1.0


class Ring:
    """The newest changes of one stream. Not safe between threads: who has it locks it."""

    def __init__(self, standing: Standing, place: bytes) -> None:
        self.standing = standing
        self._floor = number_of(place)  # what follows this is here
        self._entries: list[Placed] = []
        self._numbers: list[tuple[int, int]] = []
        self._bytes = 0

    def add(self, entries: Sequence[Placed]) -> None:
        """Take the next ones in; the oldest leave."""
        self._entries += entries
        self._numbers += [number_of(entry.place) for entry in entries]
        self._bytes += sum(entry.size for entry in entries)
        drop = max(0, len(self._entries) - RING_ENTRIES)
        lighter = self._bytes - sum(entry.size for entry in self._entries[:drop])
        while lighter > RING_BYTES and drop < len(self._entries):
            lighter -= self._entries[drop].size
            drop += 1
        if drop:
            self._floor = self._numbers[drop - 1]
            del self._entries[:drop], self._numbers[:drop]
        self._bytes = lighter

    def after(self, cursor: Cursor) -> list[Placed] | None:
        """What follows a cursor, a page at most; None when that is not here (any more)."""
        if Standing(cursor.generation, cursor.mark) != self.standing or cursor.number < self._floor:
            return None
        first = bisect_right(self._numbers, cursor.number)
        return self._entries[first : first + PAGE]


class Feed:
    """Tails one view in a thread, from its first subscriber to its last.

    Args:
        place: which view of which sink.
        wake: called from the thread when there is something new, or when the stream is another one.

    Attributes:
        away: the server has not answered, and nobody need find that out for himself.
    """

    def __init__(self, place: Place, wake: Callable[[], None]) -> None:
        self.source, self._wake = Source(place), wake
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._ring: Ring | None = None
        self.away = False
        self._thread = threading.Thread(target=self._run, name=f"push {place.sink}/{place.view}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def after(self, cursor: Cursor) -> list[Placed] | None:
        """What follows a cursor, a page at most; None when the subscriber must ask Redis itself."""
        with self._lock:
            return None if self._ring is None else self._ring.after(cursor)

    def close(self) -> None:
        """End the thread, soon. Idempotent."""
        self._stop.set()

    def _run(self) -> None:
        said = ""
        try:
            while not self._stop.is_set():
                try:
                    self._follow(self.source.tail())
                    said = ""
                except NoChanges:
                    self._forget()
                except TROUBLES as error:
                    self._forget(away=is_passing(error))
                    if reason_of(error) != said:
                        said = reason_of(error)
                        log.warning(
                            "%s: changes of %s: %s", self.source.place.settings.who, self.source.place.view, said
                        )
                    self._stop.wait(PAUSE_SECONDS)
        finally:
            self.source.close()

    def _forget(self, *, away: bool = False) -> None:
        """Whoever is connected asks Redis itself, and learns there why; unless it does not answer."""
        with self._lock:
            self._ring, self.away = None, away
        self._wake()

    def _follow(self, tail: Follows) -> None:
        """Until the stream is another one."""
        standing = tail.standing()
        if standing.mark is None:
            if self.away:
                self._forget()
            self._stop.wait(PAUSE_SECONDS)
            return
        place, size = tail.newest(standing), PageSize(PAGE)
        with self._lock:
            self._ring, self.away = (ring := Ring(standing, place)), False
        self._wake()  # who has read up to here meanwhile by himself
        while not self._stop.is_set():
            began = time.monotonic()
            tail.wait(standing, place, BLOCK_MS)
            entries = tail.after(standing, place, size.count)
            if entries:
                size.read(entry.size for entry in entries)
                place = entries[-1].place
                with self._lock:
                    ring.add(entries)
                self._wake()
            elif time.monotonic() - began < BLOCK_MS / 2000:
                self._stop.wait(0.05)  # woken for nothing: never in a circle
