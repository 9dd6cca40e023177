"""The compare-and-set script: value and version change together or not at all."""

from __future__ import annotations

import hashlib

from sinks.contract import UNVERSIONED, Item

# KEYS: value, version. ARGV: version, "S" or "D", document, seconds the value lives (0: for ever), seconds of fence.
# Versions are longs; Lua's numbers are doubles, which round above 2^53, so they are compared as digits.
SOURCE = b"""\
local held = redis.call('GET', KEYS[2])
local version = ARGV[1]
if version == '-1' then
  redis.call('DEL', KEYS[1])
  if held then redis.call('EXPIRE', KEYS[2], ARGV[5]) end
  return 1
end
if held and (#held > #version or (#held == #version and held > version)) then return 0 end
if ARGV[2] == 'D' then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], version, 'EX', ARGV[5])
elseif ARGV[4] == '0' then
  redis.call('SET', KEYS[1], ARGV[3])
  redis.call('SET', KEYS[2], version)
else
  redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
  redis.call('SET', KEYS[2], version, 'EX', ARGV[4] + ARGV[5])
end
return 1
"""
SHA = hashlib.sha1(SOURCE, usedforsecurity=False).hexdigest().encode()

assert UNVERSIONED == -1  # the script says '-1'

Command = tuple[str, bytes, int, bytes, bytes, bytes, bytes, bytes, bytes, bytes]


def command(item: Item, value: bytes, version: bytes, ttl: bytes, fence: bytes) -> Command:
    """The EVALSHA call for one item."""
    digits = b"%d" % item.version
    if item.document is None:
        return ("EVALSHA", SHA, 2, value, version, digits, b"D", b"", ttl, fence)
    return ("EVALSHA", SHA, 2, value, version, digits, b"S", item.document, ttl, fence)
