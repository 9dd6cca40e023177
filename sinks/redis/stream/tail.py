"""Reading a view's changes: from the entry that is known, nothing left out, or ``NoChanges``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sinks.contract import Held
from sinks.redis import names
from sinks.redis.client import Client
from sinks.redis.names import Names
from sinks.redis.read import NoChanges, Reads, raised
from sinks.redis.stream.changes import NO_CHANGE

# Counted in the server: entries hold documents. KEYS: stream. ARGV: behind which entry.
_PAGE = 1_000
_COUNT = b"""\
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', 1000)
return {#found, #found > 0 and found[#found][1] or ARGV[1]}
"""


class Entry(NamedTuple):
    """One change.

    Attributes:
        place: its id in the stream.
        key: the document's id.
        version: of the document after it; 0 where none is known.
        before, after: the document as it stood, None for none.
    """

    place: bytes
    key: str
    version: int
    before: bytes | None
    after: bytes | None

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return len(self.before or b"") + len(self.after or b"") + 200


@dataclass(frozen=True)
class Standing:
    """Which stream readers of a view are to follow.

    Attributes:
        generation: the one that they see.
        mark: tells its stream from every other; None while none is kept.
    """

    generation: int
    mark: str | None


class Tail:
    """Reads the changes of one view. As safe between threads as the client.

    Args:
        client: of one server, not of a cluster.
        key_prefix, view: whose.
    """

    def __init__(self, client: Client, key_prefix: str, view: str) -> None:
        self._client, self._where = client, Names(key_prefix, view)

    def standing(self) -> Standing:
        """The stream of the generation that readers see now.

        Raises:
            redis.RedisError: the server does not answer.
        """
        generation = int(self._client.hget(self._where.pointer, "generation") or 1)
        return Standing(generation, _mark(self._client.hget(self._where.pointer, f"changes:{generation}")))

    def newest(self, standing: Standing, but: int = 0) -> bytes:
        """The place of the newest change, or of the one that so many follow; of the oldest when there are fewer.

        Raises:
            NoChanges: the stream is gone.
            redis.RedisError: the server does not answer.
        """
        found = self._client.xrevrange(self._of(standing).changes, count=but + 1)
        if not found:
            raise NoChanges
        return bytes(found[-1][0])

    def after(self, standing: Standing, place: bytes, count: int) -> list[Entry]:
        """The next changes; empty when there are none.

        Raises:
            NoChanges: readers see another generation, or the stream is another one, or ``place`` is not in it any more
                (so that one that followed it may be gone too).
            redis.RedisError: the server does not answer.
        """
        where = self._of(standing)
        pipe = self._client.pipeline(transaction=True)
        pipe.hmget(where.pointer, "generation", f"changes:{standing.generation}")
        pipe.xrange(where.changes, min=place, count=count + 1)
        said, found = (raised(answer) for answer in pipe.execute(raise_on_error=False))
        if Standing(int(said[0] or 1), _mark(said[1])) != standing or not found or found[0][0] != place:
            raise NoChanges
        return [entry for one in found[1:] if (entry := _entry(*one)) is not None]

    def wait(self, standing: Standing, place: bytes, milliseconds: int) -> bool:
        """Wait for a change behind ``place``; whether there may be one.

        Raises:
            redis.RedisError: the server does not answer.
        """
        return bool(self._client.xread({self._of(standing).changes: place}, count=1, block=milliseconds))

    def behind(self, standing: Standing, place: bytes, most: int = 20) -> int:
        """How many changes follow a place; of more than ``most`` thousand, so many.

        Raises:
            redis.RedisError: the server does not answer.
        """
        return count_behind(self._client, self._of(standing).changes, place, most)

    def pages(self, standing: Standing) -> Iterator[tuple[bytes, list[Held]]]:
        """All documents, page by page, each with the place of the newest change that is in it.

        Raises:
            NoChanges: the stream is gone. Moving: keys are being renamed by a promotion.
            redis.RedisError: the server does not answer.
        """
        return Reads(self._client, cluster=False).pages(self._of(standing))

    def look(self, standing: Standing, keys: Sequence[str]) -> tuple[bytes, dict[str, Held]]:
        """What is there under these keys, and the place of the newest change that is in it: of one moment.

        Raises:
            NoChanges: the stream is gone. Moving: keys are being renamed by a promotion.
            redis.RedisError: the server does not answer.
        """
        return Reads(self._client, cluster=False).look(self._of(standing), keys)

    def _of(self, standing: Standing) -> Names:
        return replace(self._where, generation=standing.generation)


def count_behind(client: Client, key: bytes, place: bytes, most: int) -> int:
    """How many entries of a stream follow a place; of more than ``most`` thousand, so many.

    Raises:
        redis.RedisError: the server does not answer.
    """
    count = 0
    for _ in range(most):
        found, last = client.eval(_COUNT, 1, key, place)
        count += found
        if found < _PAGE:
            break
        place = last
    return count


def _mark(said: bytes | None) -> str | None:
    return None if said is None else said.decode().partition(":")[2]


def _entry(place: bytes, fields: dict[bytes, Any]) -> Entry | None:
    """As it stands there; None for the first one, which is no change."""
    version = fields[b"v"]
    if version == NO_CHANGE:
        return None
    number = int(version) if version.isdigit() else 0
    return Entry(place, names.id_of(fields[b"k"]), number, fields[b"b"] or None, fields[b"a"] or None)
