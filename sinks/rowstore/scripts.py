"""The row store's scripts. Each handles several items a call: a command costs the client more than the server.

On a cluster a call has one item, whose keys share a hash tag. On one server it has up to ``CALL``; items are
independent, so it does not matter that they happen together.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

# Items a call: a call of 200 holds the server for a few milliseconds, during which nobody else is served.
CALL = 200


class Script(NamedTuple):
    """A script and the name that the server knows it by."""

    source: bytes
    sha: str


def _script(source: str) -> Script:
    text = source.encode()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


# KEYS: rows. ARGV, three a row: head that was read, new value, seconds until it is forgotten (0: never).
SWAP = _script("""\
local out = {}
for i, key in ipairs(KEYS) do
  local head, value, fade = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local held = redis.call('GET', key)
  local fits
  if held then fits = head ~= '' and string.sub(held, 1, #head) == head else fits = head == '' end
  if fits then
    if fade == '0' then redis.call('SET', key, value) else redis.call('SET', key, value, 'EX', fade) end
  end
  out[i] = fits and 1 or 0
end
return out
""")

# KEYS: versions. ARGV: a position each. Lua's numbers are doubles: INCR adds in 64 bits, digits are compared as text.
RAISE = _script("""\
local out = {}
for i, key in ipairs(KEYS) do
  local position = ARGV[i]
  redis.call('INCR', key)
  local now = redis.call('GET', key)
  if #now < #position or (#now == #position and now < position) then now = position end
  redis.call('SET', key, now)
  out[i] = now
end
return out
""")

# KEYS, for each parent: contributions, totals, distinct, then one sorted set for each entry of `z`.
# ARGV[1]: JSON, one job a parent, all numbers as text.
CONTRIBUTE = _script("""\
local out, at = {}, 0
for i, job in ipairs(cjson.decode(ARGV[1])) do
  local given, totals, distinct, sorted = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], at + 3
  at = sorted + #job.z
  local fits = 1
  for _, c in ipairs(job.c) do
    if (redis.call('HGET', given, c[1]) or '') ~= c[2] then fits = 0 end
  end
  if fits == 1 then
    for _, c in ipairs(job.c) do
      if c[3] == '' then redis.call('HDEL', given, c[1]) else redis.call('HSET', given, c[1], c[3]) end
    end
    for _, t in ipairs(job.t) do
      if redis.call('HINCRBY', totals, t[1], t[2]) == 0 then redis.call('HDEL', totals, t[1]) end
    end
    for _, d in ipairs(job.d) do
      local after, counter = redis.call('HINCRBY', distinct, d[1], d[2]), 0
      if after == 0 then redis.call('HDEL', distinct, d[1]); counter = -1
      elseif after == tonumber(d[2]) then counter = 1 end
      if counter ~= 0 and redis.call('HINCRBY', totals, d[3], counter) == 0 then redis.call('HDEL', totals, d[3]) end
    end
    for n, z in ipairs(job.z) do
      if z[3] == '1' then redis.call('ZADD', KEYS[sorted + n], z[1], z[2])
      else redis.call('ZREM', KEYS[sorted + n], z[2]) end
    end
  end
  out[i] = fits
end
return out
""")

# KEYS: sorted sets. ARGV, two a set: '1' for the greatest, '1' when members are ordered by their bytes. Values that one
# score can't tell apart all come, and the caller compares them exactly.
EXTREME = _script("""\
local out = {}
for i, key in ipairs(KEYS) do
  local first
  if ARGV[2 * i - 1] == '1' then first = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  else first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES') end
  if not first[1] then out[i] = {}
  elseif ARGV[2 * i] == '1' then out[i] = {first[1]}
  else out[i] = redis.call('ZRANGEBYSCORE', key, first[2], first[2]) end
end
return out
""")

# KEYS: deferred, claimed. The claimed may be left from a job that was killed: it is done first.
CLAIM = _script("""\
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
""")

# KEYS: offsets. ARGV: field, offset, ...: the greater one stays.
NOTE = _script("""\
for i = 1, #ARGV, 2 do
  local held = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0')
  if tonumber(ARGV[i + 1]) > held then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return 1
""")

# KEYS: one a command. ARGV[1]: JSON, for each command its name and what follows the key.
MANY = _script("""\
local out = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  out[i] = redis.call(command[1], KEYS[i], unpack(command, 2))
end
return out
""")

ALL = (SWAP, RAISE, CONTRIBUTE, EXTREME, CLAIM, NOTE, MANY)
