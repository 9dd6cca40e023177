"""Calls of the Redis client as plain functions, and how questions and answers are cut for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sinks.rowstore.contract import Contribution

# Members that one command may name; an even number, because those of a sorted set come with their scores.
MEMBERS = 1000

Item = TypeVar("Item")
Command = tuple[Any, ...]


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Pieces of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def unlink(client: Any, keys: Sequence[bytes]) -> int:
    """Remove keys; how many there were."""
    return sum(pipelined(client, [("UNLINK", key) for key in keys])) if keys else 0


def pipelined(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Run commands in one round trip."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    answers: list[Any] = pipeline.execute(raise_on_error=True)
    return answers


def mget(client: Any, keys: Sequence[str]) -> list[bytes | None]:
    """Values of keys."""
    found: list[bytes | None] = client.mget(keys)
    return found


def by_key(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Members by index, no more than a command takes at once."""
    found: dict[str, list[str]] = {}
    for key, member in pairs:
        found.setdefault(key, []).append(member)
    return cut(list(found.items()))


def cut(asked: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, list[str]]]:
    """Long lists in several commands: Lua unpacks no more than some thousand arguments."""
    return [(key, list(part)) for key, members in asked for part in batches(members, MEMBERS)]


def joined(asked: Sequence[tuple[str, Sequence[str]]], answers: list[list[bytes]]) -> list[list[bytes]]:
    """The answers to ``cut`` questions, one list a question again."""
    parts = iter(answers)
    return [[value for _ in batches(members, MEMBERS) for value in next(parts)] for _, members in asked]


def job(change: Contribution) -> dict[str, Any]:
    """A contribution as the script takes it."""
    return {
        "c": [(child, before.decode(), after.decode()) for child, before, after in change.children],
        "t": [(name, str(delta)) for name, delta in change.totals.items() if delta],
        "d": [(name, str(delta), counter) for name, delta, counter in change.distinct if delta],
        "z": [(repr(at), value, str(delta), f"z{number}:{value}") for number, at, value, delta in change.ordered],
    }


def pairs(answer: Any) -> list[tuple[bytes, bytes]]:
    """HGETALL's answer, which the client makes a dict of when it knows the command."""
    if isinstance(answer, dict):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))


def policy(answer: Mapping[Any, Any]) -> str:
    """The policy in CONFIG GET's answer; a server without that setting never evicts."""
    found = answer.get("maxmemory-policy", answer.get(b"maxmemory-policy", "noeviction"))
    return found.decode() if isinstance(found, bytes) else str(found)
