"""The row store on a server that speaks Redis's protocol, or on a cluster of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson

from cdc.errors import SinkRefused
from sinks.contract import OnWait
from sinks.redis.client import ERRORS, connect, is_no_script, is_passing, lacks_rights, reason_of
from sinks.redis.settings import Settings
from sinks.retry import Patience, quiet
from sinks.rowstore import keys
from sinks.rowstore.awake import Awake
from sinks.rowstore.commands import (
    Command,
    batches,
    by_key,
    cut,
    hscan,
    job,
    joined,
    mget,
    pairs,
    pipelined,
    policy,
    sscan,
    unlink,
)
from sinks.rowstore.contract import Contribution, Swap
from sinks.rowstore.keys import REGISTRY
from sinks.rowstore.scripts import ALL, CALL, CLAIM, CONTRIBUTE, EXTREME, MANY, NOTE, RAISE, SWAP, Script
from sinks.rowstore.settings import StoreSettings

# Items a round trip: enough to make it cheap, few enough that the answers fit in tens of megabytes.
CHUNK = 2000

T = TypeVar("T")


class RedisRowStore:
    """A RowStore on Redis, Redis Cluster or Kvrocks.

    Args:
        settings: plain data; holds secrets.
        on_wait: told a line each time it waits for its server.
    """

    def __init__(self, settings: StoreSettings, on_wait: OnWait = quiet) -> None:
        self.settings, self._on_wait = settings, on_wait
        self._ns = settings.namespace
        self._login = Settings(
            name="row store",
            url=settings.url,
            targets={},
            cluster=settings.cluster,
            user=settings.user,
            password=settings.password,
            ca_certs=settings.ca_certs,
            request_timeout_seconds=settings.request_timeout_seconds,
        )
        self._made: Any = None
        self._stop = threading.Event()
        self.awake = Awake(settings.away_seconds)

    @property
    def who(self) -> str:
        """How errors name it."""
        return self._login.who.replace("sink 'row store'", "row store")

    # -- talking to the server ----------------------------------------------------------------------------------------

    def _client(self) -> Any:
        if self._made is None:
            self._made = connect(self._login)
        return self._made

    def _patiently(self, work: Callable[[Any], T]) -> T:
        patience = Patience(
            self.who, give_up_seconds=self.settings.give_up_seconds, on_wait=self._on_wait, stop=self._stop
        )
        while True:
            self.awake.check()
            try:
                return work(self._client())
            except ERRORS as error:
                if is_no_script(error):
                    self._load_scripts()
                elif is_passing(error):
                    patience.hold(reason_of(error))
                else:
                    raise self._refused(error) from error

    def _load_scripts(self) -> None:
        self._patiently(lambda client: [client.script_load(script.source) for script in ALL])

    def _refused(self, error: Exception) -> SinkRefused:
        fix = "give row_store.user and row_store.password the right to use it" if lacks_rights(error) else ""
        return SinkRefused(f"{self.who}: {reason_of(error)}", means="nothing was skipped; the batch is held", fix=fix)

    def _all(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands and return their answers: ``(name, key, more …)``, the more being text."""
        if self.settings.cluster:
            return self._pipeline([(name, self._ns + key, *more) for name, key, *more in commands])
        calls: list[Command] = []
        for chunk in batches(commands, CALL):
            named = [self._ns + key for _, key, *_ in chunk]
            jobs = orjson.dumps([(name, *more) for name, _, *more in chunk])
            calls.append(("EVALSHA", MANY.sha, len(named), *named, jobs))
        return [answer for answers in self._pipeline(calls) for answer in answers]

    def _scripted(self, script: Script, items: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Run a script of one key an item: (key, arguments)."""
        calls: list[Command] = []
        for chunk in batches(items, 1 if self.settings.cluster else CALL):
            named = [self._ns + key for key, _ in chunk]
            calls.append(("EVALSHA", script.sha, len(named), *named, *(a for _, of in chunk for a in of)))
        return [answer for answers in self._pipeline(calls) for answer in answers]

    def _pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together; a chunk that fails is repeated whole."""
        answers: list[Any] = []
        for chunk in batches(commands, CHUNK if self.settings.cluster else CHUNK // CALL):
            answers += self._patiently(partial(pipelined, commands=chunk))
        return answers

    # -- rows ---------------------------------------------------------------------------------------------------------

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """See RowStore."""
        if self.settings.cluster:
            return self._all([("GET", key) for key in names])
        found: list[bytes | None] = []
        for chunk in batches(names, CHUNK):
            found += self._patiently(partial(mget, keys=[self._ns + key for key in chunk]))
        return found

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """See RowStore."""
        fade = str(self.settings.fade_seconds)
        items = [(swap.key, (swap.head, swap.value, fade if swap.fades else "0")) for swap in swaps]
        return [answer == 1 for answer in self._scripted(SWAP, items)]

    # -- indexes ------------------------------------------------------------------------------------------------------

    def link(self, pairs: Sequence[tuple[str, str]]) -> None:
        """See RowStore."""
        self._all([("SADD", key, *members) for key, members in by_key(pairs)])

    def unlink(self, pairs: Sequence[tuple[str, str]]) -> None:
        """See RowStore."""
        self._all([("SREM", key, *members) for key, members in by_key(pairs)])

    def sizes(self, names: Sequence[str]) -> list[int]:
        """See RowStore."""
        return self._all([("SCARD", key) for key in names])

    def members(self, names: Sequence[str]) -> list[list[str]]:
        """See RowStore."""
        return [[m.decode() for m in found] for found in self._all([("SMEMBERS", key) for key in names])]

    def scan(self, key: str, count: int) -> Iterator[list[str]]:
        """See RowStore."""
        cursor = 0
        while True:
            cursor, found = self._patiently(partial(sscan, key=self._ns + key, cursor=cursor, count=count))
            if found:
                yield [member.decode() for member in found]
            if not int(cursor):
                return

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def contributions(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[bytes]]:
        """See RowStore."""
        answers = self._all([("HMGET", f"c{key}", *children) for key, children in cut(asked)])
        return joined(asked, [[value or b"" for value in answer] for answer in answers])

    def contribute(self, changes: Sequence[Contribution]) -> list[bool]:
        """See RowStore."""
        calls: list[Command] = []
        for chunk in batches(changes, 1 if self.settings.cluster else CALL // 10):
            named = [name for change in chunk for name in self._keys(change)]
            jobs = orjson.dumps([job(change) for change in chunk])
            calls.append(("EVALSHA", CONTRIBUTE.sha, len(named), *named, jobs))
        return [answer == 1 for answers in self._pipeline(calls) for answer in answers]

    def _keys(self, change: Contribution) -> list[str]:
        number, _, parent = change.key.partition(":")
        names = [f"{self._ns}{kind}{change.key}" for kind in "ctd"]
        return names + [f"{self._ns}z{number}.{aggregate}:{parent}" for aggregate, *_ in change.ordered]

    def totals(self, names: Sequence[str]) -> list[dict[str, int]]:
        """See RowStore."""
        answers = self._all([("HGETALL", f"t{key}") for key in names])
        return [{name.decode(): int(count) for name, count in pairs(answer)} for answer in answers]

    def extremes(self, asked: Sequence[tuple[str, int, bool, bool]]) -> list[list[str]]:
        """See RowStore."""
        items = []
        for key, number, greatest, by_bytes in asked:
            group, _, parent = key.partition(":")
            items.append((f"z{group}.{number}:{parent}", ("1" if greatest else "0", "1" if by_bytes else "0")))
        return [[member.decode() for member in found] for found in self._scripted(EXTREME, items)]

    # -- versions and offsets -----------------------------------------------------------------------------------------

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """See RowStore."""
        items = [(key, (str(position),)) for key, position in pairs]
        return [int(answer) for answer in self._scripted(RAISE, items)]

    def fade(self, names: Sequence[str]) -> None:
        """See RowStore."""
        self._all([("EXPIRE", key, str(self.settings.fade_seconds)) for key in names])

    def defer(self, roots: Mapping[str, int]) -> None:
        """See RowStore."""
        by_shard: dict[int, list[str]] = {}
        for root, position in roots.items():
            by_shard.setdefault(keys.shard(root), []).extend((root, str(position)))
        named = [(f"p{keys.deferred(shard)}", pairs) for shard, pairs in by_shard.items()]
        self._all([("HSET", key, *pairs) for key, pairs in cut(named)])

    def claim(self) -> list[int]:
        """See RowStore."""
        names = [[f"{self._ns}{kind}{keys.deferred(shard)}" for kind in "pq"] for shard in range(keys.SHARDS)]
        answers = self._pipeline([("EVALSHA", CLAIM.sha, 2, *pair) for pair in names])
        return [shard for shard, has in enumerate(answers) if has]

    def claimed(self, shard: int, count: int) -> Iterator[dict[str, int]]:
        """See RowStore."""
        cursor = 0
        while True:
            key = f"{self._ns}q{keys.deferred(shard)}"
            cursor, found = self._patiently(partial(hscan, key=key, cursor=cursor, count=count))
            if found:
                yield {root.decode(): int(position) for root, position in found.items()}
            if not int(cursor):
                return

    def settle(self, shards: Sequence[int]) -> None:
        """See RowStore."""
        self._all([("UNLINK", f"q{keys.deferred(shard)}") for shard in shards])

    def waiting(self) -> int:
        """See RowStore."""
        return sum(self._all([("HLEN", f"{kind}{keys.deferred(s)}") for kind in "pq" for s in range(keys.SHARDS)]))

    def server(self) -> str:
        """See RowStore."""

        def ask(client: Any) -> str:
            if not self.settings.cluster:
                return str(client.info("server").get("run_id", ""))
            answers = client.info("server", target_nodes=client.PRIMARIES)
            found = [answers] if "run_id" in answers else answers.values()
            return " ".join(sorted(str(answer.get("run_id", "")) for answer in found))

        return self._patiently(ask)

    def note(self, fields: Mapping[str, int]) -> None:
        """See RowStore."""
        if fields:
            flat = [text for name, offset in fields.items() for text in (name, str(offset))]
            self._pipeline([("EVALSHA", NOTE.sha, 1, f"{self._ns}o", *flat)])

    def noted(self) -> dict[str, int]:
        """See RowStore."""
        (answer,) = self._all([("HGETALL", "o")])
        return {name.decode(): int(offset) for name, offset in pairs(answer)}

    # -- the whole ----------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Refuse a server that may lose rows, and say whose the namespace is. Does not wait for a server.

        Raises:
            SinkUnavailable: it does not answer (transient).
            SinkRefused: it may evict keys.
        """
        for node, found in self._policies():
            if found != "noeviction":
                raise SinkRefused(
                    f"{self.who}: maxmemory-policy of {node} is {found}",
                    means="a full server would throw rows away, and documents built from the rest would be wrong",
                    fix="set maxmemory-policy noeviction there, or point row_store.url at a server of its own",
                )
        self._load_scripts()
        self._patiently(lambda client: client.hset(REGISTRY, self._ns, self.settings.title))

    def _policies(self) -> list[tuple[str, str]]:
        def ask(client: Any) -> list[tuple[str, str]]:
            if not self.settings.cluster:
                return [("the server", policy(client.config_get("maxmemory-policy")))]
            answers = client.config_get("maxmemory-policy", target_nodes=client.PRIMARIES)
            if "maxmemory-policy" in answers:  # one node only
                return [("the server", policy(answers))]
            return [(str(node), policy(answer)) for node, answer in answers.items()]

        return self._patiently(ask)

    def drop(self) -> int:
        """Remove the whole namespace; returns how many keys went."""

        def clear(client: Any) -> int:
            gone, batch = 0, []
            for key in client.scan_iter(match=f"{self._ns}*", count=1000):
                batch.append(key)
                if len(batch) == CHUNK:
                    gone += unlink(client, batch)
                    batch = []
            gone += unlink(client, batch)
            client.hdel(REGISTRY, self._ns)
            return gone

        return self._patiently(clear)

    def close(self) -> None:
        """Give connections back and end a waiting call. Idempotent."""
        self._stop.set()
        if self._made is not None:
            self._made.close()
