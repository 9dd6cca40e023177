"""The cookies in which a user's newest writes travel: one a write, so that two windows do not undo each other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headwater_client.session import SECONDS, Tokens, opened, sealed

DEFAULT_COOKIE = "headwater"


def read_cookies(header: str, name: str, secret: bytes, now: float | None = None) -> Tokens:
    """The tokens in a Cookie header; other cookies, and what was changed or is too old, are passed over.

    Args:
        header: as the browser sends it; others may have put anything into it.
        name: that ours begin with.
        secret: with which they were signed.
        now: epoch seconds.
    """
    found = []
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        if key.startswith(f"{name}_") and (held := opened(value.strip('"'), secret, now)):
            found.append(held)
    return Tokens(dict(sorted(found, key=lambda one: one[1])))


def written_cookies(name: str, tokens: Tokens, secret: bytes, *, secure: bool) -> Sequence[str]:
    """Set-Cookie headers' values for what a request has changed."""
    added, gone = tokens.changes()
    end = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")
    return [
        *(f"{_name(name, one)}={sealed(one, at, secret)}; Max-Age={SECONDS}{end}" for one, at in added.items()),
        *(f"{_name(name, one)}=; Max-Age=0{end}" for one in gone),
    ]


def _name(name: str, token: str) -> str:
    return f"{name}_{hashlib.sha256(token.encode()).hexdigest()[:8]}"
