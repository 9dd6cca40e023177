"""A signed POST, bounded in every way."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import requests

from operations.push.carrier import Lease
from operations.push.envelope import Batch
from operations.push.signing import signed
from operations.push.verdict import Verdict, verdict

# To connect, and until the answer begins; both together are less than a lease lasts (webhook.py).
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 10.0
# Of an answer's body, which nobody reads: a short one is taken in so that the connection can be used again.
MOST_BYTES = 1 << 10


class Answered(NamedTuple):
    """What came of it.

    Attributes:
        status: of HTTP; None without an answer.
        error: why there was none; the kind of error only, because its text may hold the address, which is a secret.
        retry_after: the header of this name.
    """

    status: int | None
    error: str = ""
    retry_after: str | None = None


@dataclass(frozen=True)
class Address:
    """A webhook's, with what bodies are signed with."""

    url: str = field(repr=False)
    secret: str = field(repr=False)

    def open(self) -> Posting:
        """See ``Destination``."""
        return Posting(self.url, self.secret)


class Posting:
    """Posts to one address, over a connection that is kept.

    Args:
        url: the address.
        secret: what bodies are signed with.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._secret = url, secret
        self._session = requests.Session()

    def carry(self, batch: Batch, message: str, attempt: int, lease: Lease) -> Verdict:
        """See ``Carrier``."""
        return verdict(*self.post(message, batch.body), attempt=attempt)

    def post(self, message: str, body: bytes) -> Answered:
        """Once.

        Args:
            message: its id.
            body: JSON.
        """
        headers = {"Content-Type": "application/json", "User-Agent": "headwater"}
        headers |= signed(self._secret, message, int(time.time()), body)
        try:
            with self._session.post(
                self._url,
                data=body,
                headers=headers,
                timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
                allow_redirects=False,
                stream=True,
            ) as answer:
                with suppress(requests.RequestException, OSError, ValueError):
                    if int(answer.headers.get("Content-Length", MOST_BYTES)) < MOST_BYTES:
                        answer.content  # noqa: B018 (taken in)
                return Answered(answer.status_code, "", answer.headers.get("Retry-After"))
        except (requests.RequestException, OSError, ValueError) as error:
            return Answered(None, f"no answer ({type(error).__name__})")

    def close(self) -> None:
        """Give the connection back. Idempotent."""
        self._session.close()
