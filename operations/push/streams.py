"""All subscribers of a server, the feeds that they share, and what each of them is told as it comes."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import HeadwaterError, TooManyWaits
from cdc.pipeline import Pipeline
from operations.push.cursor import Cursor
from operations.push.events import Told
from operations.push.feed import PAUSE_SECONDS, Feed
from operations.push.follows import Sees
from operations.push.source import TROUBLES, Place, place_of, told
from operations.push.walk import Walk, behind, seen
from sinks.redis.client import is_passing
from sinks.redis.read import Moving

log = logging.getLogger(__name__)

# Each holds a socket and some kilobytes.
MOST = 20_000
# After so long without an event a sign of life goes out, with the cursor: who was only filtered out stays resumable.
# Within a half of it more or less: all have heard of the same change, and would be due at one moment.
QUIET_SECONDS = 12.0
# Who is due, and whether the server is about to end, is looked at that often, for all of them: no timer each.
TICK_SECONDS = 0.5
# Pages of changes that are kept as they are told: all who see the same at one time are told the same.
SAID = 32
# From so many on a full collection of garbage, which looks at every object of each, would be felt: half a second of
# 5,000, in which nobody is told anything.
CROWD = 500
# Subscribers of one view that ask Redis at once: pages of changes that are not in the ring, and of documents.
ASKING = 6
# Where a view's changes are is read from files: not again for each of a thousand that come at once.
PLACE_SECONDS = 2.0


Find = Callable[[Pipeline, str, str | None], Place]


@dataclass(eq=False)
class _Shared:
    """A feed, who reads it, and what those are told who stand at one place: it is worked out once for all of them."""

    feed: Feed
    readers: set[Subscriber] = field(default_factory=set)
    # Who is not at the end asks Redis here: one that is silent holds up nobody but its own readers.
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(ASKING, "subscribers"))
    _next: dict[tuple[bytes, str, Sees], tuple[tuple[Told, ...], Cursor] | None] = field(default_factory=dict)

    def news(self) -> None:
        """There is something new."""
        self._next.clear()
        for reader in self.readers:
            reader.wake()

    def close(self) -> None:
        """End the feed, soon, and who still asks. Idempotent; from any thread."""
        self.feed.close()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def after(self, cursor: Cursor, sees: Sees) -> tuple[tuple[Told, ...], Cursor] | None:
        """What follows a cursor, and where one stands then: the same objects for all who ask for the same; None when
        the subscriber must ask Redis itself.
        """
        key = (cursor.place, cursor.mark, sees)
        if key not in self._next:
            entries = self.feed.after(cursor)
            if len(self._next) >= SAID:
                self._next.clear()
            self._next[key] = None if entries is None else (tuple(seen(entries, sees, cursor)), behind(cursor, entries))
        return self._next[key]


class Streams:
    """The subscribers of one server. Used from one event loop.

    Args:
        leaving: whether the server is about to end: streams end then.
    """

    def __init__(self, leaving: Callable[[], bool] = lambda: False) -> None:
        self._leaving = leaving
        self._shared: dict[tuple[Any, ...], _Shared] = {}
        self._places: dict[tuple[Any, ...], tuple[float, Pipeline, Place]] = {}
        self._found: set[tuple[Any, ...]] = set()  # where places have ever been
        self._ticker: asyncio.Task[None] | None = None
        self._frozen = self._before = 0
        self._said = ""

    @property
    def count(self) -> int:
        """How many subscribers there are."""
        return sum(len(shared.readers) for shared in self._shared.values())

    def place(self, pipeline: Pipeline, view: str, sink: str | None, find: Find = place_of) -> Place:
        """As ``place_of``, or another way to find it, remembered for a moment. From any thread."""
        key, now = (pipeline.name, view, sink, find), time.monotonic()
        known = self._places.get(key)
        if known is not None and known[1] is pipeline and now - known[0] < PLACE_SECONDS:
            return known[2]
        found = find(pipeline, view, sink)
        self._places[key] = now, pipeline, found
        self._found.add(found.key)
        return found

    async def _look(self) -> None:
        """Streams of a place that is another one by now end: readers were led to other keys, and under the former ones
        nobody tells anything any more. Files are read beside the loop."""
        await asyncio.to_thread(self._find_again)
        places = {place.key for _, _, place in list(self._places.values())}
        for key, shared in list(self._shared.items()):
            if key in self._found and key not in places:
                for reader in list(shared.readers):
                    reader.leave()

    def _find_again(self) -> None:
        for (_, view, sink, find), (_, pipeline, place) in list(self._places.items()):
            if place.key not in self._shared:  # nobody follows it
                continue
            try:
                self.place(pipeline, view, sink, find)
            except HeadwaterError:
                pass  # whoever asks next is told
            except Exception as error:  # a generation is being removed, or there are too many open files
                if repr(error) != self._said:
                    self._said = repr(error)
                    log.warning("where changes of view %s are could not be looked up", view, exc_info=True)

    def subscribe(self, place: Place, sees: Sees, cursor: str | None = None, *, documents: bool = True) -> Subscriber:
        """A new subscriber; whoever asked closes it.

        Args:
            place: the view.
            sees: what is to be seen.
            cursor: as ``Walk``.
            documents: as ``Walk``.

        Raises:
            TooManyWaits: the server has as many as it takes (transient).
        """
        if self.count >= MOST:
            raise TooManyWaits(f"{MOST:,} streams are open at this server", fix="ask again later, or another server")
        shared = self._shared.get(place.key)
        if shared is None:
            loop = asyncio.get_running_loop()
            shared = self._shared[place.key] = _Shared(Feed(place, lambda: _in(loop, lambda: self._wake(place.key))))
            shared.feed.start()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.get_running_loop().create_task(self._tick())
        # Who comes again is some changes behind: from one on, each would take as many requests as doublings lead there.
        first = shared.feed.size.count
        walk = Walk(shared.feed.source.tail(), place.view, sees, cursor, documents=documents, first=first)
        subscriber = Subscriber(shared, walk, sees, self._leaving, self._leave)
        shared.readers.add(subscriber)
        return subscriber

    def _leave(self, subscriber: Subscriber) -> None:
        for key, shared in list(self._shared.items()):
            if subscriber in shared.readers:
                shared.readers.discard(subscriber)
                if not shared.readers:
                    del self._shared[key]
                    shared.close()

    def _wake(self, key: tuple[Any, ...]) -> None:
        if key in self._shared:
            self._shared[key].news()

    async def _tick(self) -> None:
        while self._shared:
            await asyncio.sleep(TICK_SECONDS)
            await self._look()
            leaving, now = self._leaving(), time.monotonic()
            self._settle(self.count)
            for shared in self._shared.values():
                for reader in shared.readers:
                    if leaving or reader.due < now:
                        reader.wake()
        self._settle(0)

    def _settle(self, count: int) -> None:
        """Spare the garbage collector those who wait, once a crowd has come; when half has gone, it looks again."""
        if count < self._frozen / 2:
            gc.unfreeze()
            self._frozen = 0
        elif count == self._before and count > max(1.25 * self._frozen, CROWD):
            gc.collect()
            gc.freeze()
            self._frozen = count
        self._before = count

    def close(self) -> None:
        """End the feeds. Idempotent; from any thread."""
        for shared in list(self._shared.values()):
            shared.close()


class Subscriber:
    """One subscriber. Made by ``Streams.subscribe``.

    Attributes:
        due: when a sign of life is, on the monotonic clock.
    """

    def __init__(
        self,
        shared: _Shared,
        walk: Walk,
        sees: Sees,
        leaving: Callable[[], bool],
        closed: Callable[[Subscriber], None],
    ) -> None:
        self._shared, self._walk, self._sees, self._leaving, self._closed = shared, walk, sees, leaving, closed
        self._begun = self._gone = self._news = False
        self._waiting: asyncio.Future[None] | None = None  # an Event costs a third more, thousands of times
        self.due = float("inf")

    def wake(self) -> None:
        """There is something to look at."""
        self._news = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def leave(self) -> None:
        """Whoever reads has gone: ``told`` ends."""
        self._gone = True
        self.wake()

    def close(self) -> None:
        """Give it back. Idempotent."""
        self._closed(self)

    async def told(self) -> AsyncIterator[Sequence[Told] | str]:
        """What there is to be told: events (a tuple: others are told the very same one), or after a silence the cursor
        alone. Ends when the server does.

        Raises:
            HeadwaterError: no changes are kept, or the server refuses; if it does not answer, only at the beginning.
        """
        while not self._gone and not self._leaving():
            found = await self._next()
            if found is not None:
                self._begun = True
                yield found
                self.due = time.monotonic() + QUIET_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 (no secret)

    async def _next(self) -> Sequence[Told] | str | None:
        """The next events, or after a silence the cursor; None when there is to be asked again."""
        feed, walk = self._shared.feed, self._walk
        self._news = False  # before the look: what comes after it wakes us
        if self._gone:
            return None
        if walk.live and (after := self._shared.after(walk.cursor, self._sees)) is not None:
            shown, cursor = after
            if cursor is walk.cursor:
                return await self._quiet()
            walk.passed(cursor)
            return shown or None
        if walk.live and self._begun and feed.away:
            return await self._quiet()  # the feed goes on asking, and wakes all when it is answered
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._shared.pool, walk.step)
        except TROUBLES as error:
            if not self._begun or not (isinstance(error, Moving) or is_passing(error)):
                raise told(error, feed.source.place) from error
            await asyncio.sleep(PAUSE_SECONDS)
            return None
        if not found and walk.live and feed.after(walk.cursor) is None:
            await asyncio.sleep(0.1)  # the feed has yet to begin, or to come as far
        return found or None

    async def _quiet(self) -> str | None:
        if time.monotonic() < self.due:
            if not self._news:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
            return None
        return self._walk.cursor.text()


def _in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call in the loop, unless that has ended: then nobody waits any more."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
