"""A TCP proxy that breaks connections on purpose, for tests of what a network or an overloaded server does.

After the idea of psycopg's ``fix_proxy``: the client under test talks to the proxy's port, and the test turns the wire
off, deaf or slow while it does. Nothing is mocked: when the wire is whole, the real server answers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHUNK = 65536
SLOW_BYTES, SLOW_SECONDS = 4096, 0.01


class Proxy:
    """Forwards 127.0.0.1:``port`` to a server.

    Modes, changed at any time by assigning ``mode``:

    - ``open``: forward both ways;
    - ``closed``: refuse new connections and cut those there are;
    - ``deaf``: take everything, answer nothing (a half-dead host: only a timeout notices);
    - ``slow``: forward a few kilobytes at a time;
    - ``cut-answers``: forward requests, cut the connection when the answer comes (the write happened, nobody knows).
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._mode = "open"
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def mode(self) -> str:
        """The current mode."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        self._mode = value
        if value == "closed":
            self._cut_all()

    def close(self) -> None:
        """Stop, and end every thread and socket."""
        self._over.set()
        self._cut_all()
        for thread in list(self._threads):
            thread.join(5)
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._mode == "closed":
                _reset(client)
                continue
            try:
                server = socket.create_connection(self._upstream, 5)
            except OSError:
                _reset(client)
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink, answers in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pump, args=(pair, source, sink, answers), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, answers: bool
    ) -> None:
        source.settimeout(0.05)
        try:
            while not self._over.is_set():
                try:
                    data = source.recv(CHUNK if self._mode != "slow" else SLOW_BYTES)
                except TimeoutError:
                    continue
                if not data or (answers and self._mode == "cut-answers"):
                    return
                if self._mode == "deaf":
                    continue
                if self._mode == "slow":
                    time.sleep(SLOW_SECONDS)
                sink.sendall(data)
        except OSError:
            return
        finally:
            self._cut(pair)

    def _cut(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            _reset(end)

    def _cut_all(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._cut(pair)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """A proxy for the time of a ``with``."""
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
