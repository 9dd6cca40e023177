"""What a webhook keeps in Redis, beside the changes that it sends: how far it is, who sends, and what was refused.

All of a view's webhooks share one hash, whose fields begin with a webhook's name: ``owner`` and ``until`` (who may
send, and for how long), ``cursor`` (up to where all was taken; none while everything is told from the beginning),
``chosen`` (by which filter or names what came before the cursor was sent, as JSON), ``sending`` (the end of the batch
that is under way: it is the same batch when somebody else sends it again), ``begins`` (of one without documents: from
where on changes count, and why, until that was taken) and what ``status`` shows. Only the owner writes, and each write
makes its lease longer, by the server's own clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sinks.redis.client import Client
from sinks.redis.names import Names

# Of all webhooks of a view; each is a batch. A letter's body is bounded by who writes it.
KEEP_LETTERS = 256

# KEYS: the hash, the stream of letters. ARGV: a webhook's name, token, milliseconds of lease, how many letters are
# kept, whether a lease is taken that was another's last, how many fields follow, fields with values (empty: none), then
# the fields of a letter, if there is one. Answers 0, and nothing is done, while somebody else holds the lease; else 1.
_HOLD = b"""\
local own = ARGV[1] .. ':'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held = redis.call('HMGET', KEYS[1], own .. 'owner', own .. 'until')
if held[1] and held[1] ~= ARGV[2] and tonumber(held[2] or '0') > now then return 0 end
local fields = tonumber(ARGV[6])
if ARGV[5] == '0' and held[1] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], own .. 'owner', ARGV[2], own .. 'until', string.format('%.0f', now + ARGV[3]))
for n = 1, fields do
  local field, value = own .. ARGV[5 + 2 * n], ARGV[6 + 2 * n]
  if value == '' then redis.call('HDEL', KEYS[1], field) else redis.call('HSET', KEYS[1], field, value) end
end
if #ARGV > 6 + 2 * fields then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'hook', ARGV[1], unpack(ARGV, 7 + 2 * fields))
  redis.call('HINCRBY', KEYS[1], own .. 'letters', 1)
end
return 1
"""
# KEYS: the hash. ARGV: a webhook's name, token. Whoever comes next need not wait for the end of the lease.
_RELEASE = b"""\
local own = ARGV[1] .. ':'
if redis.call('HGET', KEYS[1], own .. 'owner') ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], own .. 'owner', own .. 'until')
"""


class Hooks:
    """What is kept of one webhook.

    Args:
        client: of one server, not of a cluster.
        where: names of the view; of any generation.
        name: of the webhook.
        token: of who sends: another process has another one.
        lease_ms: how long others wait after the last word of one that holds it.
    """

    def __init__(self, client: Client, where: Names, name: str, token: str, lease_ms: int) -> None:
        self._client, self._where, self._name, self._token, self._lease = client, where, name, token, lease_ms

    def hold(
        self,
        fields: Mapping[str, Any] | None = None,
        letter: Mapping[str, Any] | None = None,
        *,
        take: bool = False,
    ) -> bool:
        """Make the lease longer, and write fields in the same step.

        Args:
            fields: values by field; None removes one.
            letter: fields of a letter that is kept, and counted.
            take: also where another has held it last, or nobody. Whoever takes it reads what is ``kept`` anew.

        Returns:
            False when somebody else may send, or has sent meanwhile: nothing was written.

        Raises:
            redis.RedisError: the server went away; what was written is not known.
        """
        said = [(name, "" if value is None else value) for name, value in (fields or {}).items()]
        flat = [part for pair in (*said, *(letter or {}).items()) for part in pair]
        return bool(
            self._client.eval(
                _HOLD,
                2,
                self._where.hooks,
                self._where.letters,
                self._name,
                self._token,
                self._lease,
                KEEP_LETTERS,
                int(take),
                len(said),
                *flat,
            )
        )

    def kept(self) -> dict[str, str]:
        """What is written, by field.

        Raises:
            redis.RedisError: the server went away; call again.
        """
        own = f"{self._name}:".encode()
        found = self._client.hgetall(self._where.hooks)
        return {field[len(own) :].decode(): value.decode() for field, value in found.items() if field.startswith(own)}

    def release(self) -> None:
        """Give the lease back. Idempotent.

        Raises:
            redis.RedisError: the server went away; the lease ends by itself.
        """
        self._client.eval(_RELEASE, 1, self._where.hooks, self._name, self._token)


class Refused(NamedTuple):
    """A batch that was not taken, as it was put aside.

    Attributes:
        place: in the stream.
        hook: the name of the webhook or topic.
        id: of the batch.
        why: in words.
        at: when, epoch seconds.
        events: how many.
        body: JSON; empty when it was not kept.
    """

    place: bytes
    hook: str
    id: str
    why: str
    at: float
    events: int
    body: bytes


def read_letters(client: Client, where: Names) -> list[Refused]:
    """What was put aside of a view, the oldest first.

    Raises:
        redis.RedisError: the server went away; call again.
    """
    return [_refused(place, fields) for place, fields in client.xrange(where.letters)]


def drop_letters(client: Client, where: Names, places: Sequence[bytes]) -> int:
    """Forget some; how many there were. Idempotent.

    Raises:
        redis.RedisError: the server went away; call again.
    """
    return int(client.xdel(where.letters, *places)) if places else 0


def _refused(place: bytes, fields: Mapping[bytes, bytes]) -> Refused:
    said = {name.decode(): value for name, value in fields.items()}
    return Refused(
        place,
        said["hook"].decode(),
        said["id"].decode(),
        said["why"].decode(),
        float(said["at"]),
        int(said["events"]),
        said["body"],
    )
