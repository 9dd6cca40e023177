"""Who matches which standing query, kept beside the view's changes, and a stream of what has become of that.

======================  ========================================================================================
``<view>@matcher``      hash: ``step`` (how many were done), ``mark`` (of this state, and of its stream), and what the
                        matcher notes: how far it has read (operations/standing)
``<view>@matched``      hash: ``m`` the mark; ``d<id>`` version and names of the queries that a document matches,
                        spaces between; a document that matches none has no field
``<view>@standing``     hash: name of a query -> what was judged of it (JSON)
``<view>@matches``      stream: ``k`` id, ``v`` version, ``d`` document (empty: deleted), ``q`` JSON {query: op}, ``c``
                        cause: ``change`` of the document, or of the ``query``; the first has the version -1
======================  ========================================================================================

All of it moves in one script, and only from the step that whoever calls it has seen: of two who match the same view,
and of a step that is done again after a crash, one comes through. They belong to the view, not to a generation of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sinks.redis.client import Client
from sinks.redis.names import Names, encoded, id_of
from sinks.redis.read import one_run, raised

# Documents of one look at all that match.
PAGE = 1_000

# KEYS: matcher, matched, standing, matches. ARGV: the mark that is known (empty: none), a new one. Answers 0 when
# somebody else was quicker.
_BEGIN = b"""\
if (redis.call('HGET', KEYS[1], 'mark') or '') ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[1], 'step', '0', 'mark', ARGV[2])
redis.call('HSET', KEYS[2], 'm', ARGV[2])
redis.call('XADD', KEYS[4], '*', 'k', '', 'v', '-1', 'd', '', 'q', '', 'c', '')
return 1
"""
# KEYS as above. ARGV: step, mark, how many events are kept, how many values follow for each of the first three keys;
# then these (field, value; an empty value removes), then events (k, v, d, q, c). Answers 0 when the step was done
# already. What could fail for want of memory does so at the first of them, before anything has happened.
_STEP = b"""\
local held = redis.call('HMGET', KEYS[1], 'step', 'mark')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] or redis.call('HGET', KEYS[2], 'm') ~= ARGV[2] then return 0 end
local at = 7
for n = 1, 3 do
  for _ = 1, tonumber(ARGV[3 + n]) do
    if ARGV[at + 1] == '' then redis.call('HDEL', KEYS[n], ARGV[at])
    else redis.call('HSET', KEYS[n], ARGV[at], ARGV[at + 1]) end
    at = at + 2
  end
end
while at < #ARGV do
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[3], '*', 'k', ARGV[at], 'v', ARGV[at + 1], 'd', ARGV[at + 2],
    'q', ARGV[at + 3], 'c', ARGV[at + 4])
  at = at + 5
end
redis.call('HSET', KEYS[1], 'step', tonumber(ARGV[1]) + 1)
return 1
"""
# KEYS: matcher, matched, matches. ARGV: a mark. Events are forgotten; who matches what stays.
_ANEW = b"""\
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.call('UNLINK', KEYS[3]) end
redis.call('UNLINK', KEYS[3])
redis.call('XADD', KEYS[3], '*', 'k', '', 'v', '-1', 'd', '', 'q', '', 'c', '')
redis.call('HSET', KEYS[1], 'mark', ARGV[1])
redis.call('HSET', KEYS[2], 'm', ARGV[1])
return 1
"""


class Kept(NamedTuple):
    """What is known of a document.

    Attributes:
        version: under which it was judged last.
        names: the queries that it matches.
    """

    version: int
    names: frozenset[str]


class Event(NamedTuple):
    """What has become of a document under the queries.

    Attributes:
        key, version: of the document.
        document: as it is now; None for one that is gone.
        ops: JSON: query -> entered, changed or left.
        cause: ``change`` or ``query``.
    """

    key: str
    version: int
    document: bytes | None
    ops: bytes
    cause: str


@dataclass(frozen=True)
class State:
    """What the matcher has noted, as of one moment.

    Attributes:
        step: how many steps were done.
        mark: of this state.
        notes: what else stands there.
        standing: query -> what was judged of it.
    """

    step: int
    mark: str
    notes: Mapping[str, str]
    standing: Mapping[str, bytes]


class Matches:
    """The matches of one view.

    Args:
        client: of one server, not of a cluster.
        key_prefix, view: whose.
        keep: about how many events are kept.
    """

    def __init__(self, client: Client, key_prefix: str, view: str, keep: int) -> None:
        self._client, self._keep = client, keep
        self.keys = Names(key_prefix, view).matches

    def state(self) -> State | None:
        """What is noted; None when nothing is, or not all of it.

        Raises:
            redis.RedisError: the server does not answer.
        """
        pipe = self._client.pipeline(transaction=True)
        pipe.hgetall(self.keys.matcher)
        pipe.hget(self.keys.matched, "m")
        pipe.hgetall(self.keys.standing)
        pipe.exists(self.keys.matches)
        notes, mark, standing, there = (raised(answer) for answer in pipe.execute(raise_on_error=False))
        said = {name.decode(): value.decode() for name, value in notes.items()}
        if not there or mark is None or said.get("mark") != mark.decode() or "step" not in said:
            return None
        step, own = int(said.pop("step")), said.pop("mark")
        return State(step, own, said, {name.decode(): value for name, value in standing.items()})

    def begin(self) -> bool:
        """Forget everything there was; whether it was this call that did.

        Raises:
            redis.RedisError: the server does not answer.
        """
        mark = self._client.hget(self.keys.matcher, "mark") or b""
        return bool(self._client.eval(_BEGIN, 4, *self.keys, mark, secrets.token_hex(8)))

    def kept(self, keys: Sequence[str]) -> dict[str, Kept]:
        """What is known of these documents; those that match nothing are left out.

        Raises:
            redis.RedisError: the server does not answer.
        """
        found = self._client.hmget(self.keys.matched, [_field(key) for key in keys]) if keys else []
        return {key: read_kept(value) for key, value in zip(keys, found, strict=True) if value is not None}

    def pages(self) -> Iterator[dict[str, Kept]]:
        """All documents that match something, page by page; one that changes meanwhile may come twice.

        Raises:
            redis.RedisError: the server does not answer, or was restarted meanwhile.
        """
        cursor = 0
        with one_run(self._client):
            while True:
                cursor, fields = self._client.hscan(self.keys.matched, cursor, count=PAGE)
                yield {id_of(field[1:]): read_kept(value) for field, value in fields.items() if field[:1] == b"d"}
                if not cursor:
                    break

    def step(
        self,
        state: State,
        notes: Mapping[str, str],
        kept: Mapping[str, Kept | None],
        standing: Mapping[str, bytes | None],
        events: Sequence[Event],
    ) -> State | None:
        """Do one step, all of it or nothing.

        Args:
            state: what it begins with.
            notes: what is noted otherwise from now on.
            kept: of which documents something else is known now; None: they match nothing.
            standing: of which queries something else was judged; None: they are gone.
            events: what is told.

        Returns:
            What holds afterwards; None when somebody else has done a step meanwhile, and nothing was done.

        Raises:
            redis.RedisError: the server does not answer: whether it was done is known from ``state`` then.
        """
        arguments: list[bytes | str | int] = [state.step, state.mark, self._keep, len(notes), len(kept), len(standing)]
        for name, note in notes.items():
            arguments += (name, note)
        for key, value in kept.items():
            arguments += (_field(key), b"" if value is None else write_kept(value))
        for name, judged in standing.items():
            arguments += (name, judged or b"")
        for one in events:
            arguments += (encoded(one.key), one.version, one.document or b"", one.ops, one.cause)
        if not self._client.eval(_STEP, 4, *self.keys, *arguments):
            return None
        changed = {name: judged for name, judged in standing.items() if judged is not None}
        left = {name: judged for name, judged in state.standing.items() if name not in standing}
        said = {name: note for name, note in {**state.notes, **notes}.items() if note}
        return State(state.step + 1, state.mark, said, left | changed)

    def count(self) -> int:
        """How many events are kept.

        Raises:
            redis.RedisError: the server does not answer.
        """
        return max(int(self._client.xlen(self.keys.matches)) - 1, 0)

    def forget_events(self) -> None:
        """Forget what was told, with the documents in it; whoever subscribes is told anew who matches.

        Raises:
            redis.RedisError: the server does not answer; call again.
        """
        keys = (self.keys.matcher, self.keys.matched, self.keys.matches)
        self._client.eval(_ANEW, 3, *keys, secrets.token_hex(8))

    def drop(self) -> None:
        """Remove all of it.

        Raises:
            redis.RedisError: the server does not answer; call again.
        """
        self._client.unlink(*self.keys)


def _field(key: str) -> bytes:
    return b"d" + encoded(key)


def read_kept(value: bytes) -> Kept:
    """What stands in a field. Pure."""
    version, *names = value.decode().split(" ")
    return Kept(int(version), frozenset(names))


def write_kept(kept: Kept) -> bytes:
    """The inverse of ``read_kept``. Pure."""
    return " ".join([str(kept.version), *sorted(kept.names)]).encode()
