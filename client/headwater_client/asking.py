"""A question that somebody else may end: the thread that waits for its answer is free at once."""

from __future__ import annotations

import copy
import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable
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
    """The answer to a request, as ``urllib.request.urlopen`` has it: by the opener that the application has installed.

    Args:
        request: what is asked.
        seconds: how long the server may be silent.

    Raises:
        OSError: as there; the question was ended.
        http.client.HTTPException: as there.
    """
    installed = getattr(urllib.request, "_opener", None)  # `install_opener` has no other side
    question = ASKED.get()
    # What does not go by connections of the library's may do anything, as keep them for others, and is asked as it is:
    # its question can't be ended.
    if question is None or not _goes_by_the_library(installed):
        return urllib.request.urlopen(request, timeout=seconds)  # noqa: S310 - its address was checked
    return _noting(installed or _plain(), question).open(request, timeout=seconds)


def _goes_by_the_library(installed: Any) -> bool:
    if installed is None:
        return True
    if type(installed) is not urllib.request.OpenerDirector:
        return False
    own = urllib.request.AbstractHTTPHandler
    asking = [one for one in vars(installed)["handlers"] if isinstance(one, own)]
    return all(getattr(one.do_open, "__func__", None) is own.do_open for one in asking)


def _noting(opener: urllib.request.OpenerDirector, question: Question) -> urllib.request.OpenerDirector:
    """An opener that does the same, and lets a question know of each connection."""
    made = urllib.request.OpenerDirector()
    made.addheaders = opener.addheaders
    handlers: list[urllib.request.BaseHandler] = vars(opener)["handlers"]
    for handler in map(copy.copy, handlers):  # a handler belongs to one opener
        if isinstance(handler, urllib.request.AbstractHTTPHandler):
            _let_note(handler, question)
        made.add_handler(handler)
    return made


def _let_note(handler: Any, question: Question) -> None:
    do_open = handler.do_open

    def noted(http_class: Callable[..., http.client.HTTPConnection], *of: Any, **more: Any) -> Any:
        def connection(*to: Any, **how: Any) -> http.client.HTTPConnection:
            made = http_class(*to, **how)
            connect = made.connect

            def noted_connect() -> None:
                connect()
                question.goes_by(made.sock)

            made.connect = noted_connect  # type: ignore[method-assign]
            return made

        return do_open(connection, *of, **more)

    handler.do_open = noted


@lru_cache(maxsize=1)
def _plain() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener()
