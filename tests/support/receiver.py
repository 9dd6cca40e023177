"""Somebody who takes webhooks: a real HTTP server that answers as it is told, and may be killed and come back."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.pushed import Event

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


@dataclass
class Taken:
    """One POST, and how it was answered: None for a connection that was dropped."""

    id: str
    body: bytes
    status: int | None
    path: str
    at: float = field(default_factory=time.monotonic)


class Receiver:
    """Answers 200, or what ``answers`` holds next: a status, a status with headers, None to drop, or what is called
    for it.
    """

    def __init__(self) -> None:
        self.posts: list[Taken] = []
        self.answers: deque[Any] = deque()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/in"

    def start(self) -> None:
        """Listen, at the address of before."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: object) -> None:
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        """Nobody listens any more."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def _take(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers["Content-Length"]))
        assert self._server is not None, "a connection that was kept is of a server that is gone"
        told = f"{asked.headers['webhook-id']}.{asked.headers['webhook-timestamp']}.".encode() + body
        proof = base64.b64encode(hmac.new(KEY, told, hashlib.sha256).digest()).decode()
        right = asked.headers["webhook-signature"] == f"v1,{proof}"
        fresh = abs(time.time() - int(asked.headers["webhook-timestamp"])) < 60
        said = self.answers.popleft() if self.answers else 200
        if isinstance(said, Callable):  # type: ignore[arg-type]
            said = said()
        status, headers = said if isinstance(said, tuple) else (said, {})
        if not right or not fresh:
            status = 401
        self.posts.append(Taken(asked.headers["webhook-id"], body, status, asked.path))
        with suppress(OSError):
            if status is None:
                asked.close_connection = True
                asked.connection.close()
                return
            asked.send_response(status)
            for name, value in {**headers, "Content-Length": "0", "Connection": "close"}.items():
                asked.send_header(name, value)
            asked.end_headers()

    def taken(self) -> list[Event]:
        """The events that it has said yes to; of a batch that came again, once."""
        seen: set[str] = set()
        found = []
        for post in list(self.posts):
            if post.status == 200 and post.id not in seen:
                seen.add(post.id)
                found += [Event(one["event"], one["data"], one["cursor"]) for one in json.loads(post.body)]
        return found

    def until(self, good: Callable[[], Any], seconds: float = 20.0) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        while not good():
            assert time.monotonic() < until, [(one.status, one.body[:200]) for one in self.posts[-5:]]
            time.sleep(0.02)

    def close(self) -> None:
        """Idempotent."""
        if self._server is not None:
            self.kill()
