"""For applications: reads documents of the generation that is living, exactly, also in the middle of a promotion.

A plain ``GET <view>:<id>`` sees each document switch from the old generation to the new one some time while keys are
renamed. This reader switches all of them at once, when the pointer does; usually in one round trip, because it asks
for the pointer in the same transaction as for the documents and only repeats if they were to be found elsewhere.

    reader = Reader(redis.Redis(), "airline")
    reader.get("AA")                      # b'{"carrier":"AA",…}' or None
    reader.get_many(["AA", "UA"])         # {"AA": b"…", "UA": b"…"}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.cluster import RedisCluster

from cdc.errors import SinkUnavailable
from sinks.redis.names import Names, encoded
from sinks.redis.pointer import FIELDS, Pointer

# Each try sees a pointer that was changed since the one before; a person promotes.
_TRIES = 20

# The same for any language that can EVAL, not for a cluster. KEYS: ``<key_prefix><view>@live``.
# ARGV: ``<key_prefix><view>``, id (with %, { and } written %25, %7B and %7D).
FOLLOW = """\
local live = redis.call('HMGET', KEYS[1], 'generation', 'plain', 'moving', 'cleared')
local plain, generation = ARGV[1] .. ':' .. ARGV[2], live[1] or '1'
if not live[3] and (live[2] or '1') == generation then return redis.call('GET', plain) end
local found = redis.call('GET', ARGV[1] .. '@' .. generation .. ':' .. ARGV[2])
if found or not live[4] then return found end
return redis.call('GET', plain)
"""


class Reader:
    """Reads one view. As safe between threads as the client.

    Args:
        client: ``redis.Redis`` or ``redis.cluster.RedisCluster``; it stays the caller's to close.
        view: the view's name.
        key_prefix: as in the pipeline file.
    """

    def __init__(self, client: Any, view: str, key_prefix: str = "") -> None:
        self._client, self._names = client, Names(key_prefix, view)
        self._cluster = isinstance(client, RedisCluster)
        self._pointer = Pointer()

    def get(self, identity: str) -> Any:
        """One document as it lies there (bytes, or text if the client decodes), or None."""
        return self.get_many([identity]).get(identity)

    def get_many(self, identities: Sequence[str]) -> dict[str, Any]:
        """Documents by id, all of one generation; absent ids are left out.

        Raises:
            redis.RedisError: the server's trouble.
            SinkUnavailable: promotions came one after the other, faster than we could read (transient).
        """
        suffixes = [encoded(identity) for identity in identities]
        for _ in range(_TRIES):
            places = self._places(self._pointer)
            found, pages = self._ask(places, suffixes)
            self._pointer = found
            if self._places(found) == places:
                return {
                    identity: document
                    for identity, *held in zip(identities, *pages, strict=True)
                    if (document := next((one for one in held if one is not None), None)) is not None
                }
        raise SinkUnavailable(f"the pointer of view {self._names.view!r} never stood still", fix="read again")

    def _places(self, pointer: Pointer) -> tuple[bytes, ...]:
        """Prefixes under which a document of the living generation may lie; the first that has one counts."""
        where = self._names
        hidden = where.hidden_of(pointer.generation)
        if self._cluster:
            return (where.plain,) if pointer.generation == 1 else (hidden,)
        if pointer.moving is None and pointer.plain == pointer.generation:
            return (where.plain,)
        return (hidden, where.plain) if pointer.cleared else (hidden,)

    def _ask(self, places: tuple[bytes, ...], suffixes: list[bytes]) -> tuple[Pointer, list[list[Any]]]:
        """The pointer, and the values at each of the places; of one moment, except in a cluster."""
        pipe = self._client.pipeline(transaction=not self._cluster)
        for place in places:
            for suffix in suffixes:
                pipe.get(place + suffix)
        # In a cluster last: what was read is right if the generation is still the living one afterwards.
        pipe.hmget(self._names.pointer, FIELDS)
        *values, fields = pipe.execute()
        count = len(suffixes)
        return Pointer.of(fields), [values[n * count : (n + 1) * count] for n in range(len(places))]
