"""A question that somebody else may end: the thread that waits for its answer is free at once, and the server knows."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any


class Question:
    """What a thread asks, as long as somebody waits for the answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False
        self._connection: socket.socket | None = None

    def goes_by(self, connection: socket.socket) -> None:
        """Note the connection that is ended with the question.

        Raises:
            ConnectionAbortedError: it was ended already.
        """
        with self._lock:
            if self._ended:
                raise ConnectionAbortedError("nobody waits for the answer any more")
            self._let_go()
            # A descriptor of its own: the thread closes its one when it likes, and then it may be somebody else's.
            self._connection = socket.fromfd(connection.fileno(), connection.family, connection.type)

    def end(self) -> None:
        """From any thread, also when it was answered: nobody waits any more."""
        with self._lock:
            self._ended = True
            if self._connection is not None:
                with suppress(OSError):  # the server was faster
                    self._connection.shutdown(socket.SHUT_RDWR)  # which wakes who reads; `close` alone does not
            self._let_go()

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# The question of the context that asks; without one nobody will end it.
ASKED: ContextVar[Question | None] = ContextVar("headwater_question", default=None)


def opened(request: urllib.request.Request, seconds: float) -> Any:
    """The answer to a request, as ``urllib.request.urlopen`` has it.

    Args:
        request: what is asked.
        seconds: how long the server may be silent.

    Raises:
        OSError: as there; the question was ended.
        http.client.HTTPException: as there.
    """
    if ASKED.get() is None:
        return urllib.request.urlopen(request, timeout=seconds)  # noqa: S310 - its address was checked
    return _opener().open(request, timeout=seconds)


class _Noted(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        if question := ASKED.get():
            question.goes_by(self.sock)


class _NotedSecure(_Noted, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **more: Any) -> Any:
        return super().do_open(_Noted, req, **more)


class _Https(urllib.request.HTTPSHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **more: Any) -> Any:
        return super().do_open(_NotedSecure, req, **more)


@lru_cache(maxsize=1)
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Http, _Https)
