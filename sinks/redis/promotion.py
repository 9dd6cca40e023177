"""Promotion: readers that follow the pointer switch at once, then keys are renamed so that a plain GET switches too.

Four steps, each of them safe to repeat, so that a promotion which was killed is finished by promoting again:

1. ``generation`` and ``moving`` are set in one step. From here on readers that follow the pointer see the new
   generation, all of it still at its hidden names; writers of both generations wait.
2. Keys that only the old generation has leave the plain names. Then ``cleared`` is set: whoever finds nothing at a
   hidden name may now take what is at the plain one.
3. Key by key, in one step each: the old value goes to its hidden name, the new one takes the plain name. A reader of
   the plain name sees one or the other, never nothing.
4. ``plain`` is set, ``moving`` and ``cleared`` go; writers go on.

Nothing is copied and no expiry is touched: RENAME keeps it. Each promotion has a random ``turn``, and each script looks
at it first: a promoter that was stopped and wakes up after somebody else finished its work, went back, or even came
again, does nothing, for it has not seen the keys from beginning to end. In a cluster keys can't be
renamed from one slot to another: there step 1 is all, without ``moving``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from cdc.errors import SinkRefused
from sinks.redis import names
from sinks.redis.client import Client
from sinks.redis.names import Names
from sinks.redis.pointer import FIELDS, Pointer
from sinks.redis.read import one_run

# Keys handled by one script call: the server does nothing else for as long, about a millisecond.
PAGE = 200

# KEYS: pointer. ARGV: new, old, "1" in a cluster, turn. Answers what there is to do.
# (A server that was emptied, or has lost the pointer alone, no longer knows what readers saw, and any generation may be
# promoted. What is left at the plain names then is the old one's: as another's, no retirement would ever remove it.
# Each script that sets a field deletes something first, if only nothing: then a server without memory lets it.)
_BEGIN = b"""\
local key, new = KEYS[1], ARGV[1]
local live = redis.call('HMGET', key, 'generation', 'plain', 'moving')
if live[3] then return {'move', live[3]} end
if redis.call('HEXISTS', key, 'lease:' .. new) == 0 then return {'absent', ''} end
local lost = not live[1] and redis.call('HEXISTS', key, 'lease:1') == 0
local generation, plain = live[1] or '1', live[2] or (lost and ARGV[2]) or '1'
if not lost and generation ~= new and generation ~= ARGV[2] then return {'other', generation} end
if generation == new and (plain == new or ARGV[3] == '1') then return {'done', ''} end
redis.call('HDEL', key, '')
redis.call('HSET', key, 'generation', new)
if lost and ARGV[3] ~= '1' then redis.call('HSET', key, 'plain', plain) end
if plain == new or ARGV[3] == '1' then return {'done', ''} end
redis.call('HSET', key, 'moving', new, 'turn', ARGV[4])
return {'move', new}
"""

# KEYS: pointer. ARGV: turn, prefixes of plain, old and new names, ids. Answers -1 when this is not the step to do.
_CLEAR = b"""\
local live = redis.call('HMGET', KEYS[1], 'turn', 'cleared')
if live[1] ~= ARGV[1] or live[2] then return -1 end
for place = 5, #ARGV do
  local plain, id = ARGV[2] .. ARGV[place], ARGV[place]
  if redis.call('EXISTS', ARGV[4] .. id) == 0 and redis.call('EXISTS', plain) == 1 then
    redis.call('RENAME', plain, ARGV[3] .. id)
  end
end
return 1
"""
_SWAP = b"""\
local live = redis.call('HMGET', KEYS[1], 'turn', 'cleared')
if live[1] ~= ARGV[1] or not live[2] then return -1 end
for place = 5, #ARGV do
  local plain, id = ARGV[2] .. ARGV[place], ARGV[place]
  if redis.call('EXISTS', ARGV[4] .. id) == 1 then
    if redis.call('EXISTS', plain) == 1 then redis.call('RENAME', plain, ARGV[3] .. id) end
    redis.call('RENAME', ARGV[4] .. id, plain)
  end
end
return 1
"""
# KEYS: pointer. ARGV: turn.
_CLEARED = b"""\
if redis.call('HGET', KEYS[1], 'turn') ~= ARGV[1] then return -1 end
redis.call('HDEL', KEYS[1], '')
return redis.call('HSET', KEYS[1], 'cleared', '1')
"""
_END = b"""\
local live = redis.call('HMGET', KEYS[1], 'turn', 'moving')
if live[1] ~= ARGV[1] then return -1 end
redis.call('HDEL', KEYS[1], 'moving', 'cleared', 'turn')
return redis.call('HSET', KEYS[1], 'plain', live[2])
"""

# Called after each step with its name; tests stop a promotion there.
Step = Callable[[str], None]


def promote(client: Client, where: Names, who: str, old: int, cluster: bool, step: Step = lambda _name: None) -> None:
    """Make ``where.generation`` the one that readers see.

    Args:
        client: the connection.
        where: the new generation's names.
        who: how errors name the sink.
        old: the generation that readers see now.
        cluster: whether ``client`` leads to a cluster, where no key is renamed.
        step: called with the name of each step that is done.

    Raises:
        SinkRefused: it has never been set up; or readers see a generation other than ``old``, or have been led to
            another one since this promotion began.
        redis.RedisError: the server went away; call again.
    """
    new = where.generation
    while True:
        verdict, value = client.eval(_BEGIN, 1, where.pointer, new, old, int(cluster), uuid.uuid4().hex)
        match verdict.decode():
            case "done":
                return
            case "move":
                finish(client, where, step)
                if int(value) == new:
                    # Begun, and over: if readers see the old one again, somebody has gone back while this one slept.
                    old = new
            case "absent":
                raise SinkRefused(
                    f"{who}: view {where.view!r} has no generation {new} to promote",
                    means="readers see what they saw before",
                    fix="`headwater rebuild FILE SINK` builds a new generation",
                )
            case _:
                raise SinkRefused(
                    f"{who}: readers of view {where.view!r} see generation {value.decode()}, not {old}",
                    means="someone else has promoted meanwhile; they go on seeing that one",
                    fix="`headwater generations FILE` says what is known; then promote again",
                )


def finish(client: Client, where: Names, step: Step = lambda _name: None) -> None:
    """Rename the keys of a promotion that has begun, from wherever it was left. Nothing happens if there is none.

    Raises:
        redis.RedisError: the server went away; call again.
    """
    *fields, turn = client.hmget(where.pointer, (*FIELDS, "turn"))
    pointer = Pointer.of(fields)
    if pointer.moving is None:
        return
    prefixes = (where.plain, where.hidden_of(pointer.plain), where.hidden_of(pointer.moving))
    step("begun")
    if not pointer.cleared:
        _each_page(client, where, turn, _CLEAR, where.plain, prefixes, lambda: step("clearing"))
        client.eval(_CLEARED, 1, where.pointer, turn)
    step("cleared")
    _each_page(client, where, turn, _SWAP, prefixes[2], prefixes, lambda: step("swapping"))
    step("swapped")
    client.eval(_END, 1, where.pointer, turn)


def _each_page(
    client: Client,
    where: Names,
    turn: bytes,
    script: bytes,
    scanned: bytes,
    prefixes: tuple[bytes, ...],
    after: Callable[[], None],
) -> None:
    """Run a script on everything below a prefix; SCAN returns each key that is there from beginning to end."""
    for page in _pages(client, scanned):
        if client.eval(script, 1, where.pointer, turn, *prefixes, *page) == -1:
            return  # somebody else has done this step meanwhile
        after()


def _pages(client: Client, prefix: bytes) -> Iterator[list[Any]]:
    """Ids as they stand in keys, some at a time."""
    page: list[bytes] = []
    with one_run(client):  # a key that is passed over would be nobody's
        for key in client.scan_iter(match=names.pattern(prefix), count=1000, _type="STRING"):
            page.append(key[len(prefix) :])
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page
