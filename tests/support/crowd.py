"""Thousands of subscribers of a server, as plain sockets in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

# So many connect at a time.
TOGETHER = 200


class Crowd:
    """Subscribers that note when something came.

    Args:
        url: of the server.
        path: what they subscribe to.

    Attributes:
        size: how many there are.
        ready: when each was told that changes follow.
        came: when each was told of a change; who asks about the next one clears it.
    """

    def __init__(self, url: str, path: str) -> None:
        self._host, self._port = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self._asks = f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n\r\n".encode()
        self.size = 0
        self.ready: list[float] = []
        self.came: list[float] = []
        self.lost: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._transports: list[asyncio.Transport] = []

    def grow(self, size: int, seconds: float = 60.0) -> None:
        """Until there are so many, and each is being told."""
        while self.size < size:
            more = min(TOGETHER, size - self.size)
            self._await(self._connect(more))
            self.size += more
            self.until(self.ready, self.size, seconds)

    def until(self, times: list[float], count: int, seconds: float) -> None:
        """Wait until so many have been told."""
        until = time.monotonic() + seconds
        while len(times) < count:
            assert not self.lost, self.lost[:3]
            assert time.monotonic() < until, f"{len(times)} of {count} were told within {seconds:g} s"
            time.sleep(0.005)

    async def _connect(self, count: int) -> None:
        made = (self._loop.create_connection(lambda: _Reader(self), self._host, self._port) for _ in range(count))
        for transport, _ in await asyncio.gather(*made):
            transport.write(self._asks)
            self._transports.append(transport)

    def _await(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    async def _leave(self) -> None:
        for transport in self._transports:
            transport.abort()

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._await(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Reader(asyncio.Protocol):
    """An event comes in one piece over the loopback; what a piece is about stands at its beginning."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._crowd.ready += [now] * data.count(b"event: ready\n")
        self._crowd.came += [now] * data.count(b"event: change\n")
        if not data or (b"HTTP/1.1 " in data[:20] and b" 200 " not in data[:20]):
            self._crowd.lost.append(data[:200].decode(errors="replace"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.lost.append(f"a connection has ended: {exc}")
