"""Every key of a Redis server as JSON, and back: into a server, or into the row store's double in memory."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sinks.rowstore.memory.store import MemoryStore

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
    kind, held = key[0], store.servers.of(key)
    if kind == "r":
        held[key] = raw(value)
    elif kind == "i":
        held[key] = {raw(member).decode() for member in value}
    elif kind == "c":
        held[key] = {raw(child).decode(): raw(given) for child, given in value}
    elif kind in "tdpq":
        held[key] = Counter({raw(field).decode(): int(raw(count)) for field, count in value})
    elif kind == "z":
        held[key] = {raw(member).decode(): score for member, score in value}
    elif kind == "v":
        held[key] = int(raw(value))
    elif kind == "o":
        store.servers.nodes[0]["o"] = {raw(field).decode(): int(raw(n)) for field, n in value if raw(n).isdigit()}
