"""A generation's changes, for who subscribes to them: a stream that the script which changes a document adds to.

Entries have the fields ``k`` (the id as it stands in keys), ``v`` (version), ``b`` and ``a`` (the document before and
after; empty: none). The first of a stream has the version ``-1`` and is no change: with it a stream is never empty, and
whoever has read up to an entry that is still there has missed nothing since.
"""

from __future__ import annotations

import secrets

from sinks.redis.client import Client
from sinks.redis.names import Names

# Of the first entry; see above.
NO_CHANGE = b"-1"

# For scripts that change a value. ``telling`` is handed what the pointer says, pointer, stream, generation and place
# (P: the value is at its plain name, H: at a hidden one); afterwards ``keep`` is set if changes are kept. ``tell`` adds
# one before it is made, unless nothing changes, and returns an error as a table. A value of another type is no
# document. (The HDEL of nothing: as in pointer.py, so that a server without memory can be emptied.)
TELL = b"""\
local keep, stream, skip, live_at = false, nil, 0, nil
local function telling(said, pointer, key, generation, place)
  keep = said and string.match(said, '^%d+')
  if not keep then return end
  stream, live_at = key, pointer
  skip = #key - #'@@changes' - #generation + (place == 'P' and 2 or 3 + #generation)
end
local function tell(value, version, after)
  local before = redis.pcall('GET', value)
  if type(before) ~= 'string' then before = '' end
  if before == after then return end
  if after == '' then redis.call('HDEL', live_at, '') end
  local id = string.sub(value, skip)
  local added = redis.pcall('XADD', stream, 'MAXLEN', '~', keep, '*', 'k', id, 'v', version, 'b', before, 'a', after)
  return type(added) == 'table' and added.err and added
end
"""

# KEYS: pointer, stream. ARGV: generation, how many are to be kept, a mark for a new stream. A stream without its mark
# is of a time that nobody knows. (The HDEL of nothing: as in pointer.py.)
_KEEP = b"""\
local field, mark = 'changes:' .. ARGV[1], nil
local held = redis.call('HGET', KEYS[1], field)
if ARGV[2] == '0' then
  if held then redis.call('HDEL', KEYS[1], field) end
  return redis.call('UNLINK', KEYS[2])
end
redis.call('HDEL', KEYS[1], '')
if held and redis.call('EXISTS', KEYS[2]) == 1 then
  mark = string.match(held, ':(.*)$')
else
  mark = ARGV[3]
  redis.call('DEL', KEYS[2])
  redis.call('XADD', KEYS[2], '*', 'k', '', 'v', '-1', 'b', '', 'a', '')
end
return redis.call('HSET', KEYS[1], field, ARGV[2] .. ':' .. mark)
"""
# KEYS: pointer, stream, what webhooks have refused (it holds documents too). ARGV: generation, a mark.
_ANEW = b"""\
local field = 'changes:' .. ARGV[1]
local keep = string.match(redis.call('HGET', KEYS[1], field) or '', '^%d+')
redis.call('UNLINK', KEYS[2], KEYS[3])
if not keep then return 0 end
redis.call('XADD', KEYS[2], '*', 'k', '', 'v', '-1', 'b', '', 'a', '')
redis.call('HSET', KEYS[1], field, keep .. ':' .. ARGV[2])
return 1
"""


def keep(client: Client, where: Names, count: int) -> None:
    """Keep a generation's changes from now on, about so many; 0: none, and those that there are go.

    Raises:
        redis.RedisError: the server went away; call again.
    """
    client.eval(_KEEP, 2, where.pointer, where.changes, where.generation, count, secrets.token_hex(8))


def begin_anew(client: Client, where: Names) -> None:
    """Forget a generation's changes, and begin again if they are kept: subscribers are sent all documents anew.

    Raises:
        redis.RedisError: the server went away; call again.
    """
    client.eval(_ANEW, 3, where.pointer, where.changes, where.letters, where.generation, secrets.token_hex(8))


def kept(client: Client, where: Names) -> int:
    """How many changes there are, and batches of them that a webhook has refused.

    Raises:
        redis.RedisError: the server went away; call again.
    """
    return max(int(client.xlen(where.changes)) - 1, 0) + int(client.xlen(where.letters))
