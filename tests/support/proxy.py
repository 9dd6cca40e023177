"""A TCP proxy that breaks connections on purpose, for tests of what a network or an overloaded server does.

After the idea of psycopg's ``fix_proxy``: the client under test talks to the proxy's port, and the test turns the wire
off, deaf or slow while it does. Nothing is mocked: when the wire is whole, the real server answers.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
            client.settimeout(None)
            server.settimeout(None)
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
        # No timeout on the sockets: it would count for sending, too, and cut off a client that is slow to read.
        ready = select.poll()
        try:
            ready.register(source, select.POLLIN)
            while not self._over.is_set():
                if not ready.poll(50):
                    continue
                data = source.recv(CHUNK if self._mode != "slow" else SLOW_BYTES)
                if not data or (answers and self._mode == "cut-answers"):
                    return
                if self._mode == "deaf":
                    continue
                if self._mode == "slow":
                    time.sleep(SLOW_SECONDS)
                sink.sendall(data)
        except (OSError, ValueError):  # closed meanwhile, by the other direction
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


class HttpGate:
    """An HTTP proxy that answers some requests itself, as a load balancer or an overloaded server in between would.

    Args:
        decide: from a request's path and body to the status to answer with; None: let it pass to the server.
    """

    def __init__(self, host: str, port: int, decide: Callable[[str, bytes], int | None]) -> None:
        gate = self
        self.passed: list[int] = []  # body sizes that were let through
        self._decide, self._upstream = decide, (host, port)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, headers, answer = gate._answer(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        status = self._decide(path, body)
        if status is not None:
            return status, {"content-type": "text/html"}, b"<html>no</html>"
        self.passed.append(len(body))
        connection = http.client.HTTPConnection(*self._upstream, timeout=30)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
