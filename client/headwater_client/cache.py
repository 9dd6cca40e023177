"""Documents from Redis, all of the generation that readers are to see, also in the middle of a promotion.

    cache = Cache(redis.Redis(), "product")
    cache.get("7")                     # b'{"id":7,…}' or None
    cache.get_many(["7", "8"])         # {"7": b'{"id":7,…}'}: all of one generation

A plain ``GET product:7`` is right as well, except that while another generation is promoted each document changes
hands at some moment of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

Id = TypeVar("Id", bound=str | int)

# As Headwater lays its keys out (docs/decisions/generation-pointer.md).
_ENCODE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
# For any language that can EVAL, not for a cluster (docs/sinks.md prints it). KEYS: the pointer. ARGV: the plain name
# without the id, then ids as they stand in keys. Answers a document, or nil, for each.
FOLLOW = """\
local live = redis.call('HMGET', KEYS[1], 'generation', 'plain', 'moving', 'cleared')
local generation, found = live[1] or '1', {}
local plain, hidden = ARGV[1] .. ':', ARGV[1] .. '@' .. generation .. ':'
local still = not live[3] and (live[2] or '1') == generation
for at = 2, #ARGV do
  local document = not still and redis.call('GET', hidden .. ARGV[at])
  if still or (not document and live[4]) then document = redis.call('GET', plain .. ARGV[at]) end
  found[at - 1] = document
end
return found
"""
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
        self._cluster = type(client).__name__ == "RedisCluster"

    def get(self, identity: str | int) -> Any:
        """A document as it lies there (bytes, or text if the client decodes), or None; errors as ``get_many``."""
        return self.get_many([identity]).get(identity)

    def get_many(self, identities: Sequence[Id]) -> dict[Id, Any]:
        """Documents by id, all of one generation; ids that have none are left out.

        Raises:
            redis.RedisError: the server's trouble.
            RuntimeError: promotions came one after the other, faster than it could read.
        """
        suffixes = [str(identity).translate(_ENCODE) for identity in identities]
        if self._cluster:
            found = self._of_nodes(suffixes)
        else:
            found = self._client.eval(FOLLOW, 1, self._pointer, self._stem, *suffixes)
        pairs = zip(identities, found, strict=True)
        return {identity: document for identity, document in pairs if document is not None}

    def _of_nodes(self, suffixes: list[str]) -> list[Any]:
        """The keys lie on several nodes: what was read is right if its generation is the living one afterwards, too."""
        generation = self._generation()
        for _ in range(_TRIES):
            place, before = self._stem if generation == 1 else f"{self._stem}@{generation}", generation
            pipe = self._client.pipeline(transaction=False)
            for suffix in suffixes:
                pipe.get(f"{place}:{suffix}")
            found = list(pipe.execute())
            generation = self._generation()
            if generation == before:
                return found
        raise RuntimeError(f"the pointer {self._pointer} never stood still; read again")

    def _generation(self) -> int:
        return int(self._client.hget(self._pointer, "generation") or 1)
