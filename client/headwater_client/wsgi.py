"""Middleware for WSGI (Django, Flask): a user's newest writes travel in a signed cookie.

application = ReadYourWrites(get_wsgi_application(), secret=settings.SECRET_KEY.encode())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headwater_client.cookies import DEFAULT_COOKIE, read_cookies, written_cookies
from headwater_client.session import begin, end


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
            return self.app(environ, starting)
        finally:
            end(mark)
