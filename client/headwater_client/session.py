"""What one user has written lately: kept by the middleware from request to request, filled by whoever takes tokens.

The middleware puts a ``Tokens`` in place before the application is called. It is changed and never replaced, because
frameworks run parts of a request in threads with a copy of the context.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar

# Of a user the newest writes count; a browser has room for these.
MOST = 4
# A write that is older is visible, or something is broken that no reader should wait for.
SECONDS = 600
_SEPARATOR = "~"
_current: ContextVar[Tokens | None] = ContextVar("headwater_tokens", default=None)


class Tokens:
    """The newest writes of one user: those of earlier requests, and what this one adds.

    Args:
        held: token -> when it was taken (epoch seconds), of earlier requests.
    """

    def __init__(self, held: Mapping[str, int] | None = None) -> None:
        self._held = dict(held or {})
        self._added: dict[str, int] = {}
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def add(self, token: str | None) -> None:
        """Remember one more write; None is none."""
        if token:
            with self._lock:
                self._added.setdefault(token, int(time.time()))

    def drop(self, tokens: Iterable[str]) -> None:
        """These need not be waited for any more, whatever is read."""
        with self._lock:
            for token in tokens:
                self._added.pop(token, None)
                if self._held.pop(token, None) is not None:
                    self._gone.add(token)

    @property
    def all(self) -> Sequence[str]:
        """The tokens, the newest last."""
        with self._lock:
            return tuple({**self._held, **self._added})[-MOST:]

    def changes(self) -> tuple[Mapping[str, int], Collection[str]]:
        """(what this request has added, what it or time has made needless): for cookies."""
        with self._lock:
            surplus = list({**self._held, **self._added})[:-MOST]
            added = {token: at for token, at in self._added.items() if token not in surplus}
            return added, self._gone | (set(surplus) & self._held.keys())


def sealed(token: str, at: int, secret: bytes) -> str:
    """A token as a signed value."""
    text = f"{at}{_SEPARATOR}{token}"
    return f"{text}{_SEPARATOR}{_seal(secret, text)}"


def opened(value: str, secret: bytes, now: float | None = None) -> tuple[str, int] | None:
    """What ``sealed`` gave: (token, when it was taken). None if it was changed, or is too old."""
    text, _, seal = value.rpartition(_SEPARATOR)
    if not text or not hmac.compare_digest(seal.encode(), _seal(secret, text).encode()):
        return None
    at, _, token = text.partition(_SEPARATOR)
    late = (time.time() if now is None else now) - int(at) > SECONDS
    return None if late else (token, int(at))


def _seal(secret: bytes, text: str) -> str:
    return base64.urlsafe_b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest()[:16]).decode().rstrip("=")


def begin(tokens: Tokens) -> object:
    """Let this request's code find its user's tokens; returns what ``end`` wants."""
    return _current.set(tokens)


def end(mark: object) -> None:
    """The request has ended."""
    _current.reset(mark)  # type: ignore[arg-type]


def remember(token: str | None) -> None:
    """Keep the token of a write for this user; does nothing outside of a request."""
    tokens = _current.get()
    if tokens is not None:
        tokens.add(token)


def current() -> Sequence[str]:
    """The tokens of what this user has written lately."""
    tokens = _current.get()
    return () if tokens is None else tokens.all


def forget(settled: Iterable[str]) -> None:
    """These writes are visible in all that is read, or never will be: later reads need not wait for them.

    Others are let go when ``SECONDS`` have passed. An application that has one way of reading, and no other, may forget
    ``current()`` once that was told to be visible.

    Args:
        settled: tokens, as ``Answer.settled`` has them.
    """
    tokens = _current.get()
    if tokens is not None:
        tokens.drop(settled)
