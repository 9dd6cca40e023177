"""Subscribers of a Redis that says nothing hold up nobody else, and do not find out one by one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from operations.push import source
from operations.push.events import Changes, Told
from operations.push.feed import Feed
from operations.push.lens import Lens
from operations.push.source import Place
from operations.push.streams import Streams, Subscriber
from sinks.contract import Held
from sinks.redis.stream.tail import Entry, Standing

MARK = "0123456789abcdef"
HERE = Standing(1, MARK)


class Server:
    """A view's changes in a Redis; while it is silent, whoever asks is told so after a while."""

    def __init__(self) -> None:
        self.silent, self.woken = threading.Event(), threading.Event()
        self.patience = 0.05
        self.asked: list[str] = []
        self.entries: list[Entry] = []

    def _ask(self) -> None:
        self.asked.append(threading.current_thread().name)
        if self.silent.is_set():
            self.woken.wait(self.patience)
            raise redis.TimeoutError("Timeout reading from socket")

    def standing(self) -> Standing:
        self._ask()
        return HERE

    def newest(self, _standing: Standing) -> bytes:
        self._ask()
        return self.entries[-1].place if self.entries else b"0-0"

    def pages(self, _standing: Standing) -> Iterator[tuple[bytes, list[Held]]]:
        yield self.newest(HERE), []

    def after(self, _standing: Standing, place: bytes, _count: int) -> list[Entry]:
        self._ask()
        return [entry for entry in self.entries if int(entry.place[:-2]) > int(place[:-2])]

    def wait(self, _standing: Standing, _place: bytes, _ms: int) -> None:
        time.sleep(0.02)


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "connect", lambda _settings: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("operations.push.feed.PAUSE_SECONDS", 0.05)


def place_of(name: str, server: Server) -> Place:
    told = SimpleNamespace(who=name, key_prefix="")
    return cast(Place, SimpleNamespace(key=(name,), sink=name, view=name, settings=told, read=lambda _: server))


def subscribed(streams: Streams, place: Place) -> Subscriber:
    return streams.subscribe(place, Changes(Lens.of(None)))


async def until_ready(subscriber: Subscriber) -> Any:
    events = subscriber.told()
    async for found in events:
        if not isinstance(found, str) and any(one.name == "ready" for one in found):
            return events
    raise AssertionError("it ended")


def test_a_silent_redis_holds_up_none_of_anothers_subscribers(unconnected: None) -> None:
    """A hundred of them held all threads for half a minute each, and a newcomer elsewhere waited for minutes."""
    frozen, well = Server(), Server()
    frozen.silent.set()
    frozen.patience = 20.0

    async def both() -> float:
        streams = Streams()
        theirs = [asyncio.create_task(until_ready(subscribed(streams, place_of("frozen", frozen)))) for _ in range(60)]
        await asyncio.sleep(0.3)
        began = time.monotonic()
        async with asyncio.timeout(10.0):
            await asyncio.to_thread(lambda: None)  # a button of a page
            await until_ready(subscribed(streams, place_of("well", well)))
        took = time.monotonic() - began
        frozen.woken.set()
        for one in theirs:
            one.cancel()
        await asyncio.gather(*theirs, return_exceptions=True)
        streams.close()
        return took

    assert asyncio.run(both()) < 5.0


def test_who_only_waits_for_what_comes_leaves_asking_a_silent_server_to_the_feed(unconnected: None) -> None:
    server = Server()
    asked: list[str] = []

    async def crowd() -> list[Sequence[Told]]:
        streams = Streams()
        subscribers = [subscribed(streams, place_of("v", server)) for _ in range(20)]
        events = await asyncio.gather(*map(until_ready, subscribers))
        [shared] = streams._shared.values()
        coming = [asyncio.create_task(anext(one)) for one in events]
        await _until(lambda: shared.feed.after(subscribers[0]._walk.cursor) is not None)
        await asyncio.sleep(0.3)  # all have come to the end
        server.silent.set()
        await _until(lambda: shared.feed.away)
        server.asked.clear()
        await asyncio.sleep(1.0)
        asked.extend(server.asked)
        server.entries.append(Entry(b"7-0", "k", 7, None, b"{}"))
        server.silent.clear()
        async with asyncio.timeout(10.0):
            found = await asyncio.gather(*coming)
        streams.close()
        return found

    told = asyncio.run(crowd())
    assert asked and set(asked) == {"push v/v"}, "each of them asked too, and held a thread until it had given up"
    assert [[one.name for one in events] for events in told] == [["change"]] * 20


async def _until(true: Any) -> None:
    async with asyncio.timeout(10.0):
        while not true():
            await asyncio.sleep(0.02)


def test_what_lasts_is_found_out_by_each(unconnected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that was changed is told to all who are connected: they come again, and are answered with a status."""
    server, woken = Server(), threading.Event()

    def refuse() -> None:
        raise redis.AuthenticationError("WRONGPASS")

    monkeypatch.setattr(server, "_ask", refuse)
    feed = Feed(place_of("v", server), woken.set)
    feed.start()
    assert woken.wait(5.0) and not feed.away
    feed.close()
