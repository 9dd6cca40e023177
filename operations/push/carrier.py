"""Where batches go, whatever that is: an address, a topic, or something of ours that follows a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from operations.push.envelope import Batch
from operations.push.verdict import Verdict


class Lease(Protocol):
    """That nobody else brings the same there: ``Delivery``."""

    def hold(self, fields: Mapping[str, Any] | None = None) -> None:
        """Make it longer, and note fields beside it in the same step; None removes one.

        Raises:
            Taken: somebody else has it by now, or who has it is to end; nothing was noted.
            redis.RedisError: the server does not answer.
        """
        ...

    def kept(self) -> Mapping[str, str]:
        """All that is noted.

        Raises:
            redis.RedisError: the server does not answer.
        """
        ...


class Carrier(Protocol):
    """Takes batches, with a connection of its own."""

    def carry(self, batch: Batch, message: str, attempt: int, lease: Lease) -> Verdict:
        """Bring it there, once.

        Args:
            batch: what is to be brought.
            message: its id, the same whenever it is brought again.
            attempt: how often that has failed before.
            lease: for one that does several things with a batch.

        Raises:
            Taken, redis.RedisError: of the lease.
        """
        ...

    def close(self) -> None:
        """Give connections back. Idempotent."""
        ...


class Destination(Protocol):
    """What the file says of it. Equal ones are the same."""

    def open(self) -> Carrier:
        """What brings batches there; connects at its first use."""
        ...
