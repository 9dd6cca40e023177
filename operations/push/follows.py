"""What can be subscribed to: a stream of entries, and what there is beside it, whatever the entries tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from operations.push.events import Told
from sinks.contract import Held
from sinks.redis.stream.tail import Standing


class Placed(Protocol):
    """An entry: of changes (``sinks.redis.stream.tail.Entry``) or of matches
    (``sinks.redis.stream.match_tail.Matched``)."""

    @property
    def place(self) -> bytes: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102


class Follows(Protocol):
    """What reads them: ``Tail``, ``MatchTail``; each says what it raises."""

    def standing(self) -> Standing: ...  # noqa: D102
    def newest(self, standing: Standing) -> bytes: ...  # noqa: D102
    def after(self, standing: Standing, place: bytes, count: int) -> Sequence[Placed]: ...  # noqa: D102
    def wait(self, standing: Standing, place: bytes, milliseconds: int) -> bool: ...  # noqa: D102
    def behind(self, standing: Standing, place: bytes) -> int: ...  # noqa: D102
    def pages(self, standing: Standing) -> Iterator[tuple[bytes, list[Held]]]: ...  # noqa: D102


class Sees(Protocol):
    """How one subscriber sees them: ``operations.push.events.Changes``, of matches ``operations.standing.seen.Seen``"""

    def change(self, entry: Any, generation: int, mark: str) -> Told | None:
        """An entry as an event; None when nothing is to be seen of it."""
        ...

    def snapshot(self, documents: list[Held]) -> Iterator[Told]:
        """What there is, some in an event."""
        ...
