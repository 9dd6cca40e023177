"""The pointer: one hash a view that says which generation readers see, where its values are, and who may write.

=============  =======================================================================================
generation     the one that readers see (absent: 1)
plain          whose values are at the plain names (absent: 1); a cluster's stay where they were made
moving         a promotion to this generation is renaming keys just now
cleared        set while moving, when no key is left at the plain names that only the old one has
turn           tells this promotion from every other, while moving
lease:<N>      newest token that has claimed generation N
beat:<N>       a number that its runner raises every few seconds: a server that has an older one has lost writes
changes:<N>    ``<keep>:<mark>`` while generation N's changes are kept: how many, which stream (stream/changes.py)
=============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

FIELDS = ("generation", "plain", "moving", "cleared")
LEASE = "lease:"

# KEYS: pointer. ARGV: generation, token. A newer token is answered, else this one is noted. The HDEL of nothing is
# there because a server without memory lets a script write that has deleted something; else a sink that is to empty
# the server could not start.
CLAIM = b"""\
local field = 'lease:' .. ARGV[1]
local held = redis.call('HGET', KEYS[1], field)
if held and tonumber(held) > tonumber(ARGV[2]) then return held end
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], field, ARGV[2])
return false
"""

# KEYS: pointer. ARGV: generation. Forget its lease; without any lease the pointer means nothing and goes.
FORGET = b"""\
redis.call('HDEL', KEYS[1], 'lease:' .. ARGV[1], 'beat:' .. ARGV[1], 'changes:' .. ARGV[1])
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 6) == 'lease:' then return 0 end
end
return redis.call('DEL', KEYS[1])
"""

# KEYS: pointer. ARGV: generation, number, the one that was left last. Answers the number that was there, 0 for none, or
# nothing when the generation is not claimed. It never goes back, whatever two processes with different clocks leave;
# one that has gone back stays so, as the trace of a loss.
BEAT = b"""\
if redis.call('HEXISTS', KEYS[1], 'lease:' .. ARGV[1]) == 0 then return false end
local held = redis.call('HGET', KEYS[1], 'beat:' .. ARGV[1]) or '0'
if tonumber(held) < tonumber(ARGV[2]) and tonumber(held) >= tonumber(ARGV[3]) then
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], 'beat:' .. ARGV[1], ARGV[2])
end
return held
"""


@dataclass(frozen=True)
class Pointer:
    """What the hash says; see the module."""

    generation: int = 1
    plain: int = 1
    moving: int | None = None
    cleared: bool = False

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Pointer:
        """From the values of FIELDS, bytes or text."""
        generation, plain, moving, cleared = fields
        return cls(int(generation or 1), int(plain or 1), int(moving) if moving else None, bool(cleared))

    def is_plain(self, generation: int) -> bool | None:
        """Are this generation's values at the plain names? None while they are being renamed."""
        if self.moving is not None and generation in (self.moving, self.plain):
            return None
        return self.plain == generation


def claims_in(fields: Iterable[bytes | str]) -> set[int]:
    """Generations that somebody has claimed, by the names of the hash's fields. Pure."""
    named = (field.decode() if isinstance(field, bytes) else field for field in fields)
    return {int(name.removeprefix(LEASE)) for name in named if name.startswith(LEASE)}
