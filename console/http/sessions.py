"""A browser's session: a cookie that stands for a token, and the proof that a form is of a page of ours.

Nothing of it is kept: a cookie is a moment, a chance number, and the signature of both with the token that it was
exchanged for. So a server that is started again knows it still, and a token that is changed ends its sessions. Who
bears the token for reading learns nothing from it of the one for operating.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

# Half a day: an operator's shift.
LIFE_SECONDS = 12 * 3600
FIELD = "csrf"


@dataclass(frozen=True)
class Session:
    """One browser's.

    Attributes:
        token: that it was exchanged for; of a server without tokens the secret of its process.
        text: the cookie.
    """

    token: str
    text: str

    @property
    def csrf(self) -> str:
        """What a form of a page of this session has with it."""
        return _signed(self.token, f"csrf.{self.text}")

    def confirms(self, given: str) -> bool:
        """Whether a form is of this session."""
        return hmac.compare_digest(self.csrf.encode(), given.encode())


def begun(token: str) -> Session:
    """A new session."""
    said = f"{int(time.time()) + LIFE_SECONDS}.{secrets.token_hex(12)}"
    return Session(token, f"{said}.{_signed(token, said)}")


def resumed(cookie: str, tokens: Mapping[str, object]) -> Session | None:
    """The session of a cookie; None for one that is over, or that no token has signed.

    Args:
        cookie: as it was sent.
        tokens: those that are good.
    """
    said, _, signature = cookie.rpartition(".")
    until = said.partition(".")[0]
    found = None
    for token in tokens:  # all of them, so that the time tells nothing
        if hmac.compare_digest(_signed(token, said).encode(), signature.encode()):
            found = Session(token, cookie)
    return found if found and until.isdecimal() and int(until) > time.time() else None


def cookie_name(host: str) -> str:
    """Cookies do not know ports: two servers on one machine would take each other's."""
    port = host.rpartition(":")[2]
    return f"headwater_{port}" if port.isdecimal() else "headwater"


def _signed(token: str, said: str) -> str:
    return hmac.new(token.encode(), f"headwater session {said}".encode(), sha256).hexdigest()
