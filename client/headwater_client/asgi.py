"""Middleware for ASGI (FastAPI, Starlette, Django's asgi): a user's newest writes travel in a signed cookie.

app.add_middleware(ReadYourWrites, secret=os.environ["SESSION_SECRET"].encode())
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from headwater_client.cookies import DEFAULT_COOKIE, read_cookies, written_cookies
from headwater_client.session import begin, end

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Any]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ReadYourWrites:
    """See the module.

    Args:
        app: the application.
        secret: signs the cookie: a user must not be able to make the server wait for what others write.
        cookie: what the cookies' names begin with; two applications on one domain need different ones.
        secure: only over https.
    """

    def __init__(self, app: Any, *, secret: bytes, cookie: str = DEFAULT_COOKIE, secure: bool = False) -> None:
        self.app, self.secret, self.cookie, self.secure = app, secret, cookie, secure

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
        tokens = read_cookies(sent, self.cookie, self.secret)

        async def sending(message: MutableMapping[str, Any]) -> None:
            # Before the first byte; a commit that comes later (a `yield` dependency of FastAPI) is no matter: a token
            # that was taken inside is of a transaction, whose end the server finds out.
            if message["type"] == "http.response.start":
                values = written_cookies(self.cookie, tokens, self.secret, secure=self.secure)
                more = [(b"set-cookie", value.encode("latin-1")) for value in values]
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        mark = begin(tokens)
        try:
            await self.app(scope, receive, sending)
        finally:
            end(mark)
