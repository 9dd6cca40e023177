"""Who may use which keys of a server. Claimed in the server itself, because pipelines do not know of each other.

One hash, ``headwater:prefixes``: stem (``<key_prefix><view>``, see cdc/keyspaces.py) -> ``<pipeline>/<sink>``. A sink
claims its stems when it is set up, and all generations of a view share one; ``drop`` of the last gives it back.
"""

from __future__ import annotations

import logging

import redis

from cdc.errors import SinkRefused
from cdc.keyspaces import CLAIMS, is_reserved
from sinks.redis.client import Client
from sinks.renamed import former

log = logging.getLogger(__name__)

# KEYS: claims. ARGV: stem, owner, "1" to claim it, else only look. Answers the claim that is in the way: stem, owner.
# The patterns are those of ``keyspaces.outer_stems``. (The HDEL of nothing: as in pointer.py.)
_CLAIM = b"""\
local function holds(outer, inner)
  if string.sub(inner, 1, #outer) ~= outer then return false end
  local rest = string.sub(inner, #outer + 1)
  return string.sub(rest, 1, 1) == ':' or string.find(rest, '^@%d+:') or string.find(rest, '^@%d+$')
end
local held = redis.call('HGETALL', KEYS[1])
for n = 1, #held, 2 do
  local stem, owner = held[n], held[n + 1]
  local same = stem == ARGV[1] and owner ~= ARGV[2]
  if same or holds(stem, ARGV[1]) or holds(ARGV[1], stem) then return {stem, owner} end
end
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return false
"""

# KEYS: claims. ARGV: stem, owner.
_RELEASE = b"""\
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then return redis.call('HDEL', KEYS[1], ARGV[1]) end
return 0
"""


class Claims:
    """The claims of one sink.

    Args:
        owner: ``<pipeline>/<sink>``.
        who: how errors name the sink.
    """

    def __init__(self, owner: str, who: str) -> None:
        self.owner, self._who = owner, who

    def in_the_way(self, client: Client, stem: str) -> tuple[str, str] | None:
        """The claim of somebody else's (or of another view of this sink) that meets a stem: (stem, owner).

        Raises:
            redis.RedisError: the server does not answer.
        """
        return self._ask(client, stem, b"0")

    def claim(self, client: Client, stem: str) -> None:
        """Claim a stem. A user without the right to the claims goes on without: the server keeps its keys apart.

        Raises:
            SinkRefused: another claim is in the way; nothing was changed.
            redis.RedisError: the server does not answer.
        """
        if is_reserved(stem):
            raise SinkRefused(
                f"{self._who}: the keys {stem}:… are Headwater's own",
                means="dropping or promoting this view would take versions and claims of every sink on the server",
                fix="give this sink another `key_prefix`",
            )
        found = self._ask(client, stem, b"1")
        if found is not None:
            raise self.refused(stem, found)

    def release(self, client: Client, stem: str) -> None:
        """Give a stem back; nothing happens if it is not ours."""
        try:
            client.eval(_RELEASE, 1, CLAIMS, stem, self.owner)
        except redis.exceptions.NoPermissionError:
            self._without()

    def refused(self, stem: str, found: tuple[str, str]) -> SinkRefused:
        """What is said of a claim in the way."""
        other, owner = found
        pipeline, _, sink = owner.rpartition("/")
        ours = pipeline == self.owner.rpartition("/")[0] and owner != self.owner
        back = f"{former(sink)}; or " if pipeline and ours else ""
        return SinkRefused(
            f"{self._who}: the keys {stem}:… can be the same as {other}:…, which {owner} has claimed on this server",
            means="two sinks would overwrite and delete each other's documents; nothing was changed",
            fix=f"{back}give this sink another `key_prefix` or database; or, if that one is not used any more, "
            f"`headwater drop FILE --sink` with its file, or `redis-cli HDEL {CLAIMS} {other}`",
        )

    def _ask(self, client: Client, stem: str, claim: bytes) -> tuple[str, str] | None:
        try:
            found = client.eval(_CLAIM, 1, CLAIMS, stem, self.owner, claim)
        except redis.exceptions.NoPermissionError:
            self._without()
            return None
        return None if found is None else (found[0].decode(), found[1].decode())

    def _without(self) -> None:
        log.warning(
            "%s has no right to the key %s: that no other sink uses its keys is for the server's rules to see to",
            self._who,
            CLAIMS,
        )
