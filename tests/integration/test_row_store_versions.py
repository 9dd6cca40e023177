"""Versions of documents in a row store on Redis: raised as they always were, with fewer calls and lines in its log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from sinks.rowstore.scripts import GUARD, RAISE
from tests.support.redis_server import redis_servers

# As it was: three calls for each document, two of them written to the server's log.
BEFORE = (
    GUARD
    + """\
local out = {}
for i = 2, #KEYS do
  local key, position = KEYS[i], ARGV[i + 2]
  redis.call('INCR', key)
  local now = redis.call('GET', key)
  if #now < #position or (#now == #position and now < position) then now = position end
  redis.call('SET', key, now)
  out[i - 1] = now
end
return out
"""
)
# From nothing over where doubles end to where 64 bits do.
EDGES = [0, 1, 2, 9, 10, 99, 100, 2**53 - 1, 2**53, 2**53 + 1, 2**56 + 1, 10**18 - 1, 10**18, 2**63 - 3, 2**63 - 2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with redis_servers(tmp_path_factory.mktemp("versions")) as start, redis.Redis.from_url(start()) as client:
        yield client


def _raised(server: Any, text: str | bytes, held: list[int | None], positions: list[int], fades: list[bool]) -> Any:
    server.flushall()
    names = [f"v:{number}" for number in range(len(held))]
    for name, value, fading in zip(names, held, fades, strict=True):
        if value is not None:
            server.set(name, value, ex=1000 if fading else None)
    answer = server.eval(text, 1 + len(names), "marks", *names, "0", "", "0", *positions)
    return answer, server.mget(names), [server.ttl(name) for name in names]


def test_versions_are_raised_as_ever(server: Any) -> None:
    """To the position, or by one: over all edges, and over random ones, also of keys that were to be forgotten."""
    rng = random.Random(7)
    pairs: list[tuple[int | None, int]] = [(held, position) for held in (None, *EDGES) for position in EDGES]
    for _ in range(3_000):
        position = rng.randrange(1, 2 ** rng.randrange(1, 63))
        held = rng.choice((None, position, position - 1, position + 1, rng.randrange(2 ** rng.randrange(1, 63))))
        pairs.append((held, position))
    for at in range(0, len(pairs), 200):
        held, positions = zip(*pairs[at : at + 200], strict=True)
        fades = [rng.random() < 0.3 for _ in held]
        before = _raised(server, BEFORE, list(held), list(positions), fades)
        after = _raised(server, RAISE.source, list(held), list(positions), fades)
        assert after == before
        wanted = [max((old or 0) + 1, position) for old, position in zip(held, positions, strict=True)]
        assert [int(value) for value in after[0]] == wanted
        assert set(after[2]) == {-1}


def test_one_after_the_other_on_one_key(server: Any) -> None:
    """The same key several times in a call, and a version that stands at the end of 64 bits."""
    for text in (BEFORE, RAISE.source):
        server.flushall()
        assert server.eval(text, 4, "marks", "v", "v", "v", "0", "", "0", 5, 5, 3) == [b"5", b"6", b"7"]
        server.set("v", 2**63 - 1)
        with pytest.raises(redis.ResponseError, match="overflow"):
            server.eval(text, 2, "marks", "v", "0", "", "0", 5)


def test_a_newer_position_costs_one_look_and_one_write(server: Any) -> None:
    server.flushall()
    server.set("v", 7)
    server.config_resetstat()
    server.eval(RAISE.source, 2, "marks", "v", "0", "", "0", 2**60)
    calls = {name.removeprefix("cmdstat_"): one["calls"] for name, one in server.info("commandstats").items()}
    assert (calls.get("get"), calls.get("set"), calls.get("incr")) == (1, 1, None)
