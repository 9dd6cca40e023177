"""Forgetting a key: value and version go together, whatever they are, under the newest lease only."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.errors import SinkUnavailable
from sinks.redis import names
from sinks.redis.client import Client
from sinks.redis.names import Names
from sinks.redis.read import Moving, Reads
from sinks.redis.stream.changes import TELL

# KEYS: value, version, pointer and stream of changes (not in a cluster, where they may lie on another node). ARGV:
# token, generation, place as in script.py. Answers 1; -1 for a lease that is older than another; -2 when values lie
# elsewhere by now.
SOURCE = (
    TELL
    + b"""\
local token, generation, place = ARGV[1], ARGV[2], ARGV[3]
if place ~= 'C' then
  local live = redis.call('HMGET', KEYS[3], 'lease:' .. generation, 'plain', 'moving', 'changes:' .. generation)
  local lease, plain = live[1], live[2] or '1'
  if lease and tonumber(lease) > tonumber(token) then return -1 end
  if live[3] and (live[3] == generation or plain == generation) then return -2 end
  if (plain == generation) ~= (place == 'P') then return -2 end
  telling(live[4], KEYS[3], KEYS[4], generation, place)
end
if keep then
  local held = redis.pcall('GET', KEYS[2])
  local failed = tell(KEYS[1], type(held) == 'string' and held or '0', '')
  if failed then return failed end
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
"""
)


def forget(client: Client, reads: Reads, where: Names, keys: Sequence[str], token: int, *, cluster: bool) -> bool:
    """Forget keys of a generation; False if a newer lease forbids it.

    Args:
        client: the connection.
        reads: tell where the generation's values are now.
        where: the generation's names.
        keys: ids.
        token: of the lease under which it is done.
        cluster: whether ``client`` leads to a cluster.

    Raises:
        SinkUnavailable: values are being renamed (transient).
    """
    try:
        prefix = reads.prefix(where)
    except Moving:
        prefix = b""
    place = "C" if cluster else "P" if prefix == where.plain else "H"
    for key in keys:
        suffix = names.encoded(key)
        involved = [prefix + suffix, where.version(suffix)] + ([] if cluster else [where.pointer, where.changes])
        said = -2 if not prefix else client.eval(SOURCE, len(involved), *involved, token, where.generation, place)
        if said == -2:
            raise SinkUnavailable(f"the keys of {where.view} are being renamed by a promotion", fix="run it again")
        if said == -1:
            return False
    return True
