"""The compare-and-set script: value, version and what is told of the change move together or not at all, under the
newest lease only, and at the place where the pointer says that this generation's values are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sinks.contract import UNVERSIONED
from sinks.redis.stream.changes import TELL

# Items of one call. A call costs as much as three items, so a few together are cheaper; the server does nothing else
# for as long as it takes, some 40 microseconds. A cluster takes one, because two would lie in two slots.
GROUP = 16

# KEYS: pointer and stream of changes (not in a cluster), then value and version of each item. ARGV: seconds a value
# lives (0: for ever), seconds of fence, token, generation, where the caller thinks this generation's values are: "P" at
# the plain names, "H" at hidden ones, "C" in a cluster; then version and document (empty: a delete) of each item.
# Versions are longs; Lua's numbers are doubles, which round above 2^53, so they are compared as digits; tokens are
# lower. A newer token is noted last: a server without memory lets a script write that has deleted something before.
# Whether changes are told is the pointer's word, not the caller's: a repair by another process must not leave one out.
# One is told first: when that fails (no memory, no right) nothing has happened yet.
SOURCE = (
    TELL
    + b"""\
local ttl, fence, token, generation, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local first, newer = 0, false
if place ~= 'C' then
  first = 2
  local live = redis.call('HMGET', KEYS[1], 'lease:' .. generation, 'plain', 'moving', 'changes:' .. generation)
  local lease, plain = live[1], live[2] or '1'
  if lease ~= token then
    if lease and tonumber(lease) > tonumber(token) then return -1 end
    if not lease and token ~= '0' then return -4 end
    newer = token ~= '0'
  end
  if live[3] and (live[3] == generation or plain == generation) then return -2 end
  if (plain == generation) ~= (place == 'P') then return -3 end
  telling(live[4], KEYS[1], KEYS[2], generation, place)
end
local function apply(value, mark, version, document)
  local held = redis.pcall('GET', mark)
  if type(held) == 'table' then return held end
  if version == '-1' then
    local failed = keep and tell(value, held or '0', '')
    if failed then return failed end
    redis.call('DEL', value)
    if held then redis.call('EXPIRE', mark, fence) end
    return 1
  end
  if held and (#held > #version or (#held == #version and held > version)) then return 0 end
  local done = keep and tell(value, version, document)
  if done then return done end
  if document == '' then
    redis.call('DEL', value)
    done = redis.pcall('SET', mark, version, 'EX', fence)
  elseif ttl == '0' then
    done = redis.pcall('SET', value, document)
    if not done.err then done = redis.pcall('SET', mark, version) end
  else
    done = redis.pcall('SET', value, document, 'EX', ttl)
    if not done.err then done = redis.pcall('SET', mark, version, 'EX', ttl + fence) end
  end
  return done.err and done or 1
end
local answers = {}
for n = 1, (#ARGV - 5) / 2 do
  answers[n] = apply(KEYS[first + 2 * n - 1], KEYS[first + 2 * n], ARGV[4 + 2 * n], ARGV[5 + 2 * n])
end
if newer then redis.pcall('HSET', KEYS[1], 'lease:' .. generation, token) end
return answers
"""
)
SHA = hashlib.sha1(SOURCE, usedforsecurity=False).hexdigest().encode()

# One number for all items together: nothing was done, and why.
FENCED, MOVING, ELSEWHERE, UNCLAIMED = -1, -2, -3, -4

assert UNVERSIONED == -1  # the script says '-1'


class Terms(NamedTuple):
    """What is the same for all items of a target."""

    ttl: bytes
    fence: bytes
    token: bytes
    generation: bytes


class Change(NamedTuple):
    """One item as the script takes it; the document is empty for a delete."""

    value: bytes
    mark: bytes
    version: int
    document: bytes


def command(changes: Iterable[Change], terms: Terms, where: Sequence[bytes], place: bytes) -> tuple[Any, ...]:
    """The EVALSHA call for some items; ``where`` is pointer and stream, ``place`` is P, H or C as above."""
    keys: list[bytes] = [] if place == b"C" else [*where]
    arguments: list[bytes] = [*terms, place]
    for value, mark, version, document in changes:
        keys += (value, mark)
        arguments += (b"%d" % version, document)
    return ("EVALSHA", SHA, len(keys), *keys, *arguments)
