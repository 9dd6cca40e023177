"""All subscribers of a server, the feeds that they share, and what each of them is told as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import TooManyWaits
from cdc.pipeline import Pipeline
from operations.push.feed import PAUSE_SECONDS, Feed
from operations.push.follows import Sees
from operations.push.source import TROUBLES, Place, place_of, told
from operations.push.told import Told
from operations.push.walk import Walk
from sinks.redis.client import is_passing
from sinks.redis.read import Moving

# Each holds a socket and some kilobytes.
MOST = 20_000
# After so long without an event a sign of life goes out, with the cursor: who was only filtered out stays resumable.
QUIET_SECONDS = 15.0
# Whether the server is about to end is looked at that often, for all of them.
LEAVE_SECONDS = 0.5
# Where a view's changes are is read from files: not again for each of a thousand that come at once.
PLACE_SECONDS = 2.0


Find = Callable[[Pipeline, str, str | None], Place]


@dataclass(eq=False)
class _Shared:
    """A feed and who reads it."""

    feed: Feed
    readers: set[Subscriber] = field(default_factory=set)


class Streams:
    """The subscribers of one server. Used from one event loop.

    Args:
        leaving: whether the server is about to end: streams end then.
    """

    def __init__(self, leaving: Callable[[], bool] = lambda: False) -> None:
        self._leaving = leaving
        self._shared: dict[tuple[Any, ...], _Shared] = {}
        self._places: dict[tuple[Any, ...], tuple[float, Pipeline, Place]] = {}
        self._ticker: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many subscribers there are."""
        return sum(len(shared.readers) for shared in self._shared.values())

    def place(self, pipeline: Pipeline, view: str, sink: str | None, find: Find = place_of) -> Place:
        """As ``place_of``, or another way to find it, remembered for a moment."""
        key, now = (pipeline.name, view, sink, find), time.monotonic()
        known = self._places.get(key)
        if known is not None and known[1] is pipeline and now - known[0] < PLACE_SECONDS:
            return known[2]
        found = find(pipeline, view, sink)
        self._places[key] = now, pipeline, found
        return found

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
        walk = Walk(shared.feed.source.tail(), place.view, sees, cursor, documents=documents)
        subscriber = Subscriber(shared.feed, walk, self._leaving, lambda one: self._leave(place, one))
        shared.readers.add(subscriber)
        return subscriber

    def _leave(self, place: Place, subscriber: Subscriber) -> None:
        for key, shared in list(self._shared.items()):
            if subscriber in shared.readers:
                shared.readers.discard(subscriber)
                if not shared.readers:
                    del self._shared[key]
                    shared.feed.close()

    def _wake(self, key: tuple[Any, ...]) -> None:
        for reader in self._shared[key].readers if key in self._shared else ():
            reader.news.set()

    async def _tick(self) -> None:
        while self._shared:
            await asyncio.sleep(LEAVE_SECONDS)
            if self._leaving():
                for key in self._shared:
                    self._wake(key)

    def close(self) -> None:
        """End the feeds. Idempotent; from any thread."""
        for shared in list(self._shared.values()):
            shared.feed.close()


class Subscriber:
    """One subscriber. Made by ``Streams.subscribe``."""

    def __init__(
        self, feed: Feed, walk: Walk, leaving: Callable[[], bool], closed: Callable[[Subscriber], None]
    ) -> None:
        self._feed, self._walk, self._leaving, self._closed = feed, walk, leaving, closed
        self._begun = self._gone = False
        self.news = asyncio.Event()

    def leave(self) -> None:
        """Whoever reads has gone: ``told`` ends."""
        self._gone = True
        self.news.set()

    def close(self) -> None:
        """Give it back. Idempotent."""
        self._closed(self)

    async def told(self) -> AsyncIterator[list[Told] | str]:
        """What there is to be told: events, or after a silence the cursor alone. Ends when the server does.

        Raises:
            HeadwaterError: no changes are kept, or the server refuses; if it does not answer, only at the beginning.
        """
        while not self._gone and not self._leaving():
            found = await self._next()
            if found is not None:
                self._begun = True
                yield found

    async def _next(self) -> list[Told] | str | None:
        """The next events, or after a silence the cursor; None when there is to be asked again."""
        feed, walk = self._feed, self._walk
        self.news.clear()  # before the look: what comes after it wakes us
        if self._gone:
            return None
        if walk.live and (entries := feed.after(walk.cursor)) is not None:
            if entries:
                return walk.advance(entries) or None
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self.news.wait()
            except TimeoutError:
                return walk.cursor.text()
            return None
        try:
            found = await asyncio.to_thread(walk.step)
        except TROUBLES as error:
            if not self._begun or not (isinstance(error, Moving) or is_passing(error)):
                raise told(error, feed.source.place) from error
            await asyncio.sleep(PAUSE_SECONDS)
            return None
        if not found and walk.live and feed.after(walk.cursor) is None:
            await asyncio.sleep(0.1)  # the feed has yet to begin, or to come as far
        return found or None


def _in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call in the loop, unless that has ended: then nobody waits any more."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
