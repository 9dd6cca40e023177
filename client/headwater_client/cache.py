"""Documents from Redis, all of the generation that readers are to see, also in the middle of a promotion.

    cache = Cache(redis.Redis(), "product")
    cache.get("7")                     # b'{"id":7,…}' or None

A plain ``GET product:7`` is right as well, except that while another generation is promoted each document changes
hands at some moment of its own.
"""

from __future__ import annotations

from typing import Any

# As Headwater lays its keys out (docs/decisions/generation-pointer.md).
_ENCODE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
# KEYS: the pointer. ARGV: the plain name without the id, the id.
_FOLLOW = """\
local live = redis.call('HMGET', KEYS[1], 'generation', 'plain', 'moving', 'cleared')
local plain, generation = ARGV[1] .. ':' .. ARGV[2], live[1] or '1'
if not live[3] and (live[2] or '1') == generation then return redis.call('GET', plain) end
local found = redis.call('GET', ARGV[1] .. '@' .. generation .. ':' .. ARGV[2])
if found or not live[4] then return found end
return redis.call('GET', plain)
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
        """A document as it lies there (bytes, or text if the client decodes), or None.

        Raises:
            redis.RedisError: the server's trouble.
            RuntimeError: promotions came one after the other, faster than it could read.
        """
        suffix = str(identity).translate(_ENCODE)
        if not self._cluster:
            return self._client.eval(_FOLLOW, 1, self._pointer, self._stem, suffix)
        # The keys lie on several nodes: what was read is right if the generation is still the living one afterwards.
        generation = self._generation()
        for _ in range(_TRIES):
            place = self._stem if generation == 1 else f"{self._stem}@{generation}"
            found, before = self._client.get(f"{place}:{suffix}"), generation
            generation = self._generation()
            if generation == before:
                return found
        raise RuntimeError(f"the pointer {self._pointer} never stood still; read again")

    def _generation(self) -> int:
        return int(self._client.hget(self._pointer, "generation") or 1)
