"""The row store's scripts. Each handles several items a call: a command costs the client more than the server.

On a cluster a call has one item, whose keys share a hash tag. On one server it has up to ``CALL``; items are
independent, so it does not matter that they happen together.

Every script that writes begins with ``GUARD``: KEYS[1] holds the marks, and ARGV[1] to ARGV[3] the runner's token (0:
none is asked for), the part of the log (or nothing) and the number of the attempt at it. Who was taken over is refused
here, where the write would be done: a process that was frozen can't know it.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from cdc.join.versions import READ_MARK

# Items a call: a call of 200 holds the server for a few milliseconds, during which nobody else is served.
CALL = 200

# How the guard's answers begin.
FENCED, TAKEN, LOST = "HWFENCED", "HWTAKEN", "HWLOST"


class Script(NamedTuple):
    """A script and the name that the server knows it by."""

    source: bytes
    sha: str


GUARD = f"""\
if ARGV[1] ~= '0' then
  local held = redis.call('HMGET', KEYS[1], 'run', 'task:' .. ARGV[2])
  if held[1] ~= ARGV[1] then
    if held[1] and tonumber(held[1]) > tonumber(ARGV[1]) then return redis.error_reply('{FENCED} by ' .. held[1]) end
    return redis.error_reply('{LOST} the marks')
  end
  if ARGV[2] ~= '' and held[2] and tonumber(held[2]) > tonumber(ARGV[3]) then
    return redis.error_reply('{TAKEN} by attempt ' .. held[2])
  end
end
"""


def _script(source: str, guard: str = GUARD) -> Script:
    text = (guard + source).encode()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


# KEYS: marks, pending, rows. ARGV: guard's, then three a row: head that was read, new value, seconds until it is
# forgotten (0: never). A row is pending from the moment at which it is written: both lie in one slot. A row that is
# there and pending just so was written by this very call: its answer was lost, and the client asks again.
SWAP = _script("""\
local out, names, prefix = {}, {}, #KEYS[2] - #ARGV[2] - 2
for i = 3, #KEYS do
  local key, at = KEYS[i], 3 * i - 6
  local head, value, fade = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local held = redis.call('GET', key)
  local fits
  if held then fits = head ~= '' and string.sub(held, 1, #head) == head else fits = head == '' end
  local name = string.sub(key, prefix + 1)
  if fits then
    if fade == '0' then redis.call('SET', key, value) else redis.call('SET', key, value, 'EX', fade) end
    names[#names + 1] = name
  elseif held == value then fits = redis.call('SISMEMBER', KEYS[2], name) == 1 end
  out[i - 2] = fits and 1 or 0
end
if names[1] and ARGV[2] ~= '' then redis.call('SADD', KEYS[2], unpack(names)) end
return out
""")

# KEYS: marks, pending.
TAKE = _script("""\
redis.call('HSET', KEYS[1], 'task:' .. ARGV[2], ARGV[3])
return redis.call('SMEMBERS', KEYS[2])
""")

# KEYS: marks, then versions. ARGV: guard's, a position each. Lua's numbers are doubles: INCR adds in 64 bits, digits
# are compared as text. What is below the position need not be added to first; SET has it in any case, since that ends
# the time after which a version is forgotten.
RAISE = _script("""\
local out = {}
for i = 2, #KEYS do
  local key, position = KEYS[i], ARGV[i + 2]
  local now = redis.call('GET', key) or '0'
  if #now < #position or (#now == #position and now < position) then now = position
  else
    redis.call('INCR', key)
    now = redis.call('GET', key)
  end
  redis.call('SET', key, now)
  out[i - 1] = now
end
return out
""")

# KEYS: marks, then versions. ARGV: guard's, seconds, then a version each. The counter of a document that somebody has
# made again must not be forgotten.
FADE = _script("""\
for i = 2, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[i + 3] then redis.call('EXPIRE', KEYS[i], ARGV[4]) end
end
return {}
""")

# KEYS: marks; for each parent: contributions, totals, distinct, then one sorted set for each entry of `z`.
# ARGV: guard's, then JSON, one job a parent, all numbers as text.
CONTRIBUTE = _script("""\
local out, at = {}, 1
for i, job in ipairs(cjson.decode(ARGV[4])) do
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
      if redis.call('HINCRBY', distinct, z[4], z[3]) == 0 then
        redis.call('HDEL', distinct, z[4])
        redis.call('ZREM', KEYS[sorted + n], z[2])
      else redis.call('ZADD', KEYS[sorted + n], z[1], z[2]) end
    end
  end
  out[i] = fits
end
return out
""")

# KEYS: sorted sets. ARGV, two a set: '1' for the greatest, '1' when members are ordered by their bytes. Values that one
# score can't tell apart all come, and the caller compares them exactly.
EXTREME = _script(
    """\
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
""",
    guard="",
)

# KEYS: sorted sets. ARGV: how many of each. Those that share the last one's score all come: the caller sorts them.
FOREMOST = _script(
    """\
local out = {}
for i, key in ipairs(KEYS) do
  local last = redis.call('ZRANGE', key, ARGV[i] - 1, ARGV[i] - 1, 'WITHSCORES')
  if last[1] then out[i] = redis.call('ZRANGEBYSCORE', key, '-inf', last[2])
  else out[i] = redis.call('ZRANGE', key, 0, -1) end
end
return out
""",
    guard="",
)

# KEYS: sorted sets. ARGV: a score each. Members with the greatest score that is not above it, and while all of them are
# marked as read those with the one below; or else with the least.
BEGINNING = _script(
    f"""\
local out = {{}}
for i, key in ipairs(KEYS) do
  local found, most, read = {{}}, ARGV[i], true
  while read do
    local last = redis.call('ZREVRANGEBYSCORE', key, most, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not last[1] then break end
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, last[2], last[2])) do
      found[#found + 1] = member
      read = read and string.sub(member, -1) == '{READ_MARK}'
    end
    most = '(' .. last[2]
  end
  if not found[1] then
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[1] then found = redis.call('ZRANGEBYSCORE', key, first[2], first[2]) end
  end
  out[i] = found
end
return out
""",
    guard="",
)

# KEYS: marks, deferred, claimed, claim. ARGV: guard's, the claim. The claimed may be left from a job that was killed:
# it is done first.
CLAIM = _script("""\
if redis.call('EXISTS', KEYS[3]) == 0 then
  if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
  redis.call('RENAME', KEYS[2], KEYS[3])
end
redis.call('SET', KEYS[4], ARGV[4])
return 1
""")

# KEYS: marks, claimed, claim. ARGV: guard's, the claim.
SETTLE = _script("""\
if redis.call('GET', KEYS[3]) ~= ARGV[4] then return 0 end
redis.call('UNLINK', KEYS[2], KEYS[3])
return 1
""")

# KEYS: marks. ARGV: guard's, then field, number, ...: the greater one stays.
NOTE = _script("""\
for i = 4, #ARGV, 2 do
  local held = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '-1')
  if tonumber(ARGV[i + 1]) > held then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return 1
""")

# KEYS: marks. ARGV: token, identity, format. A new life of the namespace.
OPEN = _script(
    f"""\
local run = redis.call('HGET', KEYS[1], 'run')
if run and tonumber(run) > tonumber(ARGV[1]) then return redis.error_reply('{FENCED} by ' .. run) end
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'identity', ARGV[2], 'format', ARGV[3])
return 1
""",
    guard="",
)

# KEYS: marks. ARGV: token, identity. Attempts are numbered anew in each runner.
ADOPT = _script(
    f"""\
local held = redis.call('HMGET', KEYS[1], 'run', 'identity')
if held[1] and tonumber(held[1]) > tonumber(ARGV[1]) then return redis.error_reply('{FENCED} by ' .. held[1]) end
if held[2] ~= ARGV[2] then return redis.error_reply('{LOST} the identity') end
if held[1] ~= ARGV[1] then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 5) == 'task:' then redis.call('HDEL', KEYS[1], field) end
  end
  redis.call('HSET', KEYS[1], 'run', ARGV[1])
end
return 1
""",
    guard="",
)

# KEYS: one a command. ARGV[1]: JSON, for each command its name and what follows the key. They read.
MANY = _script(
    """\
local out = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  out[i] = redis.call(command[1], KEYS[i], unpack(command, 2))
end
return out
""",
    guard="",
)

# The same for those that write: KEYS[1] are the marks. ARGV: guard's, then the JSON.
CHANGE = _script("""\
local out = {}
for i, command in ipairs(cjson.decode(ARGV[4])) do
  out[i] = redis.call(command[1], KEYS[i + 1], unpack(command, 2))
end
return out
""")

# KEYS: a set or a hash. ARGV: SSCAN or HSCAN, cursor, count. A cursor is of use only to the run of the server that gave
# it, so both come in one answer: whichever node the client was led to, and whatever connection the pool has replaced.
SCANNED = _script(
    """\
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
local piece = redis.call(ARGV[1], KEYS[1], ARGV[2], 'COUNT', ARGV[3])
return {run, piece[1], piece[2]}
""",
    guard="",
)

ALL = (
    SWAP,
    TAKE,
    RAISE,
    FADE,
    CONTRIBUTE,
    EXTREME,
    FOREMOST,
    BEGINNING,
    CLAIM,
    SETTLE,
    NOTE,
    OPEN,
    ADOPT,
    MANY,
    SCANNED,
    CHANGE,
)
