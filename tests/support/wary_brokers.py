"""A broker that lets nobody in: it speaks Kafka as far as the login, and says no; or it goes away in the middle."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WRONG = "Authentication failed: Invalid username or password"
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
SASL_FAILED = 58


class _Wary(socketserver.BaseRequestHandler):
    hang_up = False

    def handle(self) -> None:
        while head := self._read(4):
            request = self._read(struct.unpack(">i", head)[0])
            kind, _version, number = struct.unpack(">hhi", request[:8])
            if kind == API_VERSIONS:
                # Of each question its oldest form; the answer is of version 0, which says so by itself.
                known = ((API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 0))
                code = 35 if _version else 0  # UNSUPPORTED_VERSION: ask again with 0
                body = struct.pack(">hi", code, len(known)) + b"".join(struct.pack(">hhh", *one) for one in known)
            elif kind == SASL_HANDSHAKE:
                body = struct.pack(">hi", 0, 1) + _text("PLAIN")
            elif self.hang_up:
                return
            else:
                body = struct.pack(">h", SASL_FAILED) + _text(WRONG) + struct.pack(">i", 0)
            self.request.sendall(struct.pack(">ii", len(body) + 4, number) + body)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count and (more := self.request.recv(count - len(found))):
            found += more
        return found


def _text(said: str) -> bytes:
    return struct.pack(">h", len(said)) + said.encode()


@contextmanager
def wary_broker(*, hang_up: bool = False) -> Iterator[str]:
    """Its address; SASL_PLAINTEXT, PLAIN.

    Args:
        hang_up: it closes the connection instead of an answer, as one does that is being stopped.
    """
    handler = type("Handler", (_Wary,), {"hang_up": hang_up})
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
