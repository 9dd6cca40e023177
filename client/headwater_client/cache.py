"""Documents from Redis, all of the generation that readers are to see, also in the middle of a promotion.

    cache = Cache(redis.Redis(), "product")
    cache.get("7")                     # b'{"id":7,…}' or None
    cache.get_many(["7", "8"])         # {"7": b'{"id":7,…}'}: all of one generation

A plain ``GET product:7`` is right as well, except that while another generation is promoted each document changes
hands at some moment of its own.

Each round trip is one script (EVAL). A user who may not EVAL, and a cluster, are asked with what the pointer said last,
and for the pointer along with it: again only when that has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

Id = TypeVar("Id", bound=str | int)

# As Headwater lays its keys out (docs/decisions/generation-pointer.md).
_ENCODE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_FIELDS = ("generation", "plain", "moving", "cleared")
_FIND = """\
local live = redis.call('HMGET', KEYS[1], 'generation', 'plain', 'moving', 'cleared')
local generation, found = live[1] or '1', {}
local plain, hidden = ARGV[1] .. ':', ARGV[1] .. '@' .. generation .. ':'
local still = not live[3] and (live[2] or '1') == generation
for at = 2, #ARGV do
  local document = not still and redis.call('GET', hidden .. ARGV[at])
  if still or (not document and live[4]) then document = redis.call('GET', plain .. ARGV[at]) end
  found[at - 1] = document
end
"""
# For any language that can EVAL, not for a cluster (docs/sinks.md prints it). KEYS: the pointer. ARGV: the plain name
# without the id, then ids as they stand in keys. Answers a document, or nil, for each.
FOLLOW = f"{_FIND}return found\n"
# The same, with the generation: what is read in several pieces is to be of one.
_TOLD = f"{_FIND}return {{generation, found}}\n"
# Ids in one round trip: a server answers nobody else while it reads them.
PIECE = 500
# Each try sees a pointer that was changed since the one before; a person promotes.
_TRIES = 20


class Cache:
    """One view. As safe between threads as the client.

    Args:
        client: ``redis.Redis`` or ``redis.cluster.RedisCluster``; it stays the caller's to close.
        view: the view's name.
        key_prefix: as in the pipeline file.
    """

    def __init__(self, client: Any, view: str, key_prefix: str = "") -> None:
        self._client, self._stem = client, f"{key_prefix}{view}"
        self._pointer = f"{self._stem}@live"
        self._cluster = _is(client, "RedisCluster")
        self._scripts = not self._cluster
        self._live: list[Any] = [None] * len(_FIELDS)

    def get(self, identity: str | int) -> Any:
        """A document as it lies there (bytes, or text if the client decodes), or None; errors as ``get_many``."""
        return self.get_many([identity]).get(identity)

    def get_many(self, identities: Sequence[Id]) -> dict[Id, Any]:
        """Documents by id, all of one generation; ids that have none are left out.

        Args:
            identities: any number; of more than ``PIECE`` each such piece is read at a moment of its own.

        Raises:
            redis.RedisError: the server's trouble.
            RuntimeError: promotions came one after the other, faster than it could read.
        """
        suffixes = [str(identity).translate(_ENCODE) for identity in identities]
        pieces = [suffixes[at : at + PIECE] for at in range(0, len(suffixes), PIECE)]
        for _ in range(_TRIES):
            read = [self._read(piece) for piece in pieces]
            if len({generation for generation, _ in read}) <= 1:
                found = (document for _, documents in read for document in documents)
                pairs = zip(identities, found, strict=True)
                return {identity: document for identity, document in pairs if document is not None}
        raise self._restless()

    def _read(self, suffixes: list[str]) -> tuple[int, list[Any]]:
        """The living generation and its documents, or None for each that it lacks."""
        if self._scripts:
            try:
                generation, found = self._client.eval(_TOLD, 1, self._pointer, self._stem, *suffixes)
            except Exception as error:
                if not _is(error, "NoPermissionError"):
                    raise
                self._scripts = False
            else:
                return int(generation), found
        for _ in range(_TRIES):
            places = self._places(self._live)
            live, pages = self._ask(places, suffixes)
            self._live = live
            if self._places(live) == places:
                found = [next((one for one in held if one is not None), None) for held in zip(*pages, strict=True)]
                return int(live[0] or 1), found
        raise self._restless()

    def _places(self, live: list[Any]) -> tuple[str, ...]:
        """Where a document of the living generation may be, without its id; the first that has it counts."""
        generation, plain, moving, cleared = (value and int(value) for value in live)
        hidden = f"{self._stem}@{generation or 1}"
        if self._cluster:  # nothing is renamed there
            return (hidden if (generation or 1) > 1 else self._stem,)
        if not moving and (plain or 1) == (generation or 1):
            return (self._stem,)
        return (hidden, self._stem) if cleared else (hidden,)

    def _ask(self, places: tuple[str, ...], suffixes: list[str]) -> tuple[list[Any], list[list[Any]]]:
        """The pointer, and what is at each of the places, of one moment.

        A cluster's nodes have none in common. It does no harm: documents stay at their generation's names there until
        it is removed, and that is a while after another one lives.
        """
        pipe = self._client.pipeline(transaction=not self._cluster)
        for place in places:
            for suffix in suffixes:
                pipe.get(f"{place}:{suffix}")
        pipe.hmget(self._pointer, _FIELDS)
        *values, live = pipe.execute()
        count = len(suffixes)
        return live, [values[at * count : (at + 1) * count] for at in range(len(places))]

    def _restless(self) -> RuntimeError:
        return RuntimeError(f"the pointer {self._pointer} never stood still; read again")


def _is(one: Any, name: str) -> bool:
    """Whether something is of one of redis-py's classes, or of one made of it: redis-py itself need not be here."""
    return any(known.__name__ == name for known in type(one).__mro__)
