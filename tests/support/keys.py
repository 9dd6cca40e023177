"""Every key of a Redis server as JSON, and back: into a server, or into the row store's double in memory."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sinks.rowstore.memory import MemoryStore

# One key: {"key": text, "type": string|hash|set|zset, "ttl_ms": milliseconds or -1, "value": base64 inside}.
Entry = dict[str, Any]


def plain(value: bytes) -> str:
    """Bytes as JSON can hold them."""
    return base64.b64encode(value).decode()


def raw(value: str) -> bytes:
    """What ``plain`` was given."""
    return base64.b64decode(value)


def dump(client: Any, pattern: str = "*") -> list[Entry]:
    """Every key that fits a pattern, in the order of their names; the client must not decode answers."""
    found = []
    for key in sorted(client.scan_iter(pattern, count=1000)):
        kind = client.type(key).decode()
        found.append({"key": key.decode(), "type": kind, "ttl_ms": client.pttl(key), "value": _read(client, key, kind)})
    return found


def _read(client: Any, key: bytes, kind: str) -> Any:
    if kind == "string":
        return plain(client.get(key))
    if kind == "hash":
        return sorted([plain(field), plain(value)] for field, value in client.hgetall(key).items())
    if kind == "set":
        return sorted(plain(member) for member in client.smembers(key))
    assert kind == "zset", f"{key!r} is a {kind}"
    return [[plain(member), score] for member, score in client.zrange(key, 0, -1, withscores=True)]


def restore(client: Any, entries: Sequence[Entry]) -> None:
    """Write keys as they were, with what is left of their lives."""
    writers: dict[str, Callable[[str, Any], Any]] = {
        "string": lambda key, value: client.set(key, raw(value)),
        "hash": lambda key, value: client.hset(key, mapping={raw(field): raw(held) for field, held in value}),
        "set": lambda key, value: client.sadd(key, *(raw(member) for member in value)),
        "zset": lambda key, value: client.zadd(key, {raw(member): score for member, score in value}),
    }
    for entry in entries:
        writers[entry["type"]](entry["key"], entry["value"])
        if entry["ttl_ms"] > 0:
            client.pexpire(entry["key"], entry["ttl_ms"])


def namespaces(entries: Sequence[Entry]) -> dict[str, str]:
    """Prefix -> whose it is, as the row store's own register says."""
    register = next(entry for entry in entries if entry["key"] == "headwater:rowstores")
    return {raw(prefix).decode(): raw(owner).decode() for prefix, owner in register["value"]}


def in_memory(entries: Sequence[Entry], namespace: str) -> MemoryStore:
    """One view's keys in the row store's double.

    Args:
        entries: every key of the server.
        namespace: the first part of the view's keys, with its colon (see ``namespaces``).
    """
    store = MemoryStore()
    for entry in entries:
        if entry["key"].startswith(namespace):
            _place(store, entry["key"].removeprefix(namespace), entry["value"])
    return store


def _place(store: MemoryStore, key: str, value: Any) -> None:
    kind, rest = key[0], key[1:]
    if kind == "r":
        store.rows[key] = raw(value)
    elif kind == "i":
        store.sets[key] = {raw(member).decode() for member in value}
    elif kind == "c":
        store.given[rest] = {raw(child).decode(): raw(held) for child, held in value}
    elif kind in "td":
        counted = Counter({raw(field).decode(): int(raw(held)) for field, held in value})
        (store.sums if kind == "t" else store.values)[rest] = counted
    elif kind == "z":
        number, _, parent = rest.partition(":")
        group, _, aggregate = number.partition(".")
        store.sorted[f"{group}:{parent}", int(aggregate)] = {raw(member).decode(): score for member, score in value}
    elif kind == "v":
        store.versions[key] = int(raw(value))
    elif kind == "o":
        store.offsets = {raw(field).decode(): int(raw(held)) for field, held in value if raw(held).isdigit()}
    elif kind in "pq":
        shard = int(rest.removeprefix(":{").removesuffix("}"))
        waiting = {raw(root).decode(): int(raw(position)) for root, position in value}
        (store.later if kind == "p" else store.now)[shard] = waiting
