"""Middleware for WSGI (Django, Flask): a user's newest writes travel in a signed cookie.

application = ReadYourWrites(get_wsgi_application(), secret=settings.SECRET_KEY.encode())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headwater_client.cookies import DEFAULT_COOKIE, read_cookies, written_cookies
from headwater_client.session import Tokens, begin, end


class ReadYourWrites:
    """See the module; arguments as ``headwater_client.asgi.ReadYourWrites``."""

    def __init__(
        self, app: Callable[..., Iterable[bytes]], *, secret: bytes, cookie: str = DEFAULT_COOKIE, secure: bool = False
    ) -> None:
        self.app, self.secret, self.cookie, self.secure = app, secret, cookie, secure

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """See WSGI."""
        tokens = read_cookies(environ.get("HTTP_COOKIE", ""), self.cookie, self.secret)

        def starting(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            values = written_cookies(self.cookie, tokens, self.secret, secure=self.secure)
            headers = [*headers, *(("Set-Cookie", value) for value in values)]
            return start_response(status, headers, *more)

        mark = begin(tokens)
        try:
            body = self.app(environ, starting)
        finally:
            end(mark)
        # A server sends a file that it has wrapped itself faster than we could hand it on.
        theirs = environ.get("wsgi.file_wrapper")
        made = isinstance(body, (list, tuple)) or (isinstance(theirs, type) and isinstance(body, theirs))
        return body if made else _Body(body, tokens)


class _Body:
    """What an application makes piece by piece, each with its user's tokens in place: of a generator nothing has run
    when the call returns, and it may start its response with the first piece."""

    def __init__(self, body: Iterable[bytes], tokens: Tokens) -> None:
        self._body, self._tokens = body, tokens
        self._pieces: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        mark = begin(self._tokens)
        try:
            if self._pieces is None:
                self._pieces = iter(self._body)
            return next(self._pieces)
        finally:
            end(mark)

    def close(self) -> None:
        """See WSGI: called once the answer is sent, or was broken off."""
        mark = begin(self._tokens)
        try:
            if (close := getattr(self._body, "close", None)) is not None:
                close()
        finally:
            end(mark)
