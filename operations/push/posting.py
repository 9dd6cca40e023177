"""A signed POST, bounded in every way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import requests

from operations.push.carrier import Lease
from operations.push.envelope import Batch
from operations.push.signing import signed
from operations.push.verdict import Verdict, verdict

# To connect, and for each piece of the body to be taken; and from the last of them until the answer begins. The lease
# (webhook.py) is made longer between pieces: a large document takes as long as it takes, as long as it goes on.
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 10.0
PIECE_BYTES, HOLD_SECONDS = 16 << 10, 2.0  # a record of TLS, each of which has the time-out of its own
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


class _Pieces:
    """A body in pieces: each has the whole time-out of its own, where one of a whole body would be for all of it.

    Args:
        body: of a known length, so that it is no chunked one for the receiver.
        lease: looked at before a piece now and then.
    """

    def __init__(self, body: bytes, lease: Lease) -> None:
        self._body, self._lease = body, lease
        self._held = time.monotonic()

    def __len__(self) -> int:
        return len(self._body)

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), PIECE_BYTES):
            if time.monotonic() - self._held > HOLD_SECONDS:
                self._lease.hold()
                self._held = time.monotonic()
            yield self._body[start : start + PIECE_BYTES]


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
        return verdict(*self.post(message, batch.body, lease), attempt=attempt)

    def post(self, message: str, body: bytes, lease: Lease) -> Answered:
        """Once.

        Args:
            message: its id.
            body: JSON.
            lease: made longer while the body is taken.

        Raises:
            Taken, redis.RedisError: of the lease; the receiver has not got all of it.
        """
        headers = {"Content-Type": "application/json", "User-Agent": "headwater"}
        headers |= signed(self._secret, message, int(time.time()), body)
        try:
            with self._session.post(
                self._url,
                data=_Pieces(body, lease),
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
