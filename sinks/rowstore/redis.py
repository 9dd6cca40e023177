"""The row store on a server that speaks Redis's protocol, or on a cluster of them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from redis.exceptions import ReadOnlyError, ResponseError

from cdc.errors import SinkRefused
from cdc.formats import ROWS
from sinks.contract import OnWait
from sinks.redis.client import REPLICAS, is_passing
from sinks.redis.read import keys_below
from sinks.redis.size import held_bytes
from sinks.retry import quiet
from sinks.rowstore import key_names
from sinks.rowstore.arranged import Arranged
from sinks.rowstore.commands import (
    Command,
    batches,
    by_key,
    cut,
    job,
    joined,
    mget,
    pairs,
    policy,
    unlink,
)
from sinks.rowstore.contract import Attempt, Contribution, Marks, Swap
from sinks.rowstore.key_names import REGISTRY
from sinks.rowstore.scripts import (
    ADOPT,
    CALL,
    CHANGE,
    CLAIM,
    CONTRIBUTE,
    EXTREME,
    FADE,
    FENCED,
    NOTE,
    OPEN,
    RAISE,
    SETTLE,
    SWAP,
    TAKE,
)
from sinks.rowstore.settings import StoreSettings
from sinks.rowstore.talk import CHUNK

log = logging.getLogger(__name__)

_SAID: set[str] = set()  # what this process has warned of already
UNSEEN = (
    "does not tell its maxmemory-policy: if it may evict keys, rows are lost and documents are wrong; see that it is "
    "noeviction, in its owner's console say"
)


def _policy(client: Any, there: Mapping[str, Any], info: Mapping[str, Any]) -> str | None:
    """What a node does when it is full; None if it does not tell. CONFIG is what owners of managed servers forbid."""
    if found := info.get("maxmemory_policy"):
        return str(found)
    try:
        return policy(client.config_get("maxmemory-policy", **there))
    except ResponseError as error:
        if is_passing(error):
            raise
        return None


class RedisRowStore(Arranged):
    """A RowStore on Redis or Redis Cluster.

    Args:
        settings: plain data; holds secrets.
        on_wait: told a line each time it waits for its server.
    """

    def __init__(self, settings: StoreSettings, on_wait: OnWait = quiet) -> None:
        super().__init__(settings, on_wait)
        self._claim = secrets.token_hex(8)

    def size(self) -> int:
        """About how many bytes this view's rows take on the server."""
        return self.patiently(lambda client: held_bytes(client, self._ns.encode()))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """See RowStore."""
        self._seen(names)
        if self.settings.cluster:
            return self.reads([("GET", key) for key in names])
        found: list[bytes | None] = []
        for chunk in batches(names, CHUNK):
            found += self.patiently(partial(mget, keys=[self._ns + key for key in chunk]))
        return found

    def confirm(self) -> None:
        """See RowStore."""
        read, self._read = self._read, set()
        if self.settings.token and read:
            for held in self.pipeline([("HGET", f"{place}o", "run") for place in read]):
                run = int(held or 0)
                if run > self.settings.token:
                    self.guarded(FENCED)
                if run != self.settings.token:
                    self.lost()

    def swap(self, swaps: Sequence[Swap], by: Attempt) -> list[bool]:
        """See RowStore."""
        fade = str(self.settings.fade_seconds)
        calls: list[Command] = []
        for chunk in self._chunks(swaps):
            place = self.beside(chunk[0].key)
            named = [f"{place}u:{by.part}", *(self.name(swap.key) for swap in chunk)]
            values = [part for s in chunk for part in (s.head, s.value, fade if s.fades else "0")]
            calls.append(self.call(SWAP, place, named, values, by))
        return [answer == 1 for answers in self.pipeline(calls) for answer in answers]

    def take(self, by: Attempt) -> list[str]:
        """See RowStore."""
        calls = [self.call(TAKE, place, [f"{place}u:{by.part}"], (), by) for place in self.places()]
        return [name.decode() for names in self.pipeline(calls) for name in names]

    def end(self, number: int) -> None:
        """See RowStore."""
        places = self.places()
        calls: list[Command] = []
        for place, marks in zip(places, self.pipeline([("HGETALL", f"{place}o") for place in places]), strict=True):
            for field, held in pairs(marks):
                if field.startswith(b"task:") and int(held) == number:
                    part = field.decode().removeprefix("task:")
                    work = orjson.dumps([("UNLINK",)])
                    calls.append(self.call(CHANGE, place, [f"{place}u:{part}"], (work,), Attempt(part, number)))
        self.pipeline(calls)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def link(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """See RowStore."""
        self.changes([("SADD", key, *members) for key, members in by_key(pairs)], by)

    def unlink(self, pairs: Sequence[tuple[str, str]], by: Attempt) -> None:
        """See RowStore."""
        self.changes([("SREM", key, *members) for key, members in by_key(pairs)], by)

    def sizes(self, names: Sequence[str]) -> list[int]:
        """See RowStore."""
        self._seen(names)
        return self.reads([("SCARD", key) for key in names])

    def members(self, names: Sequence[str]) -> list[list[str]]:
        """See RowStore."""
        self._seen(names)
        return [[m.decode() for m in found] for found in self.reads([("SMEMBERS", key) for key in names])]

    def scan(self, key: str, count: int) -> Iterator[list[str]]:
        """See RowStore."""
        for found in self.scanned("SSCAN", key, count):
            if found:
                yield [member.decode() for member in found]

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def contributions(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[bytes]]:
        """See RowStore."""
        answers = self.reads([("HMGET", f"c{key}", *children) for key, children in cut(asked)])
        return joined(asked, [[value or b"" for value in answer] for answer in answers])

    def contribute(self, changes: Sequence[Contribution], by: Attempt) -> list[bool]:
        """See RowStore."""
        calls: list[Command] = []
        for chunk in batches(changes, 1 if self.settings.cluster else CALL // 10):
            named = [name for change in chunk for name in self._keys(change)]
            jobs = orjson.dumps([job(change) for change in chunk])
            calls.append(self.call(CONTRIBUTE, self.beside(chunk[0].key), named, (jobs,), by))
        return [answer == 1 for answers in self.pipeline(calls) for answer in answers]

    def _keys(self, change: Contribution) -> list[str]:
        number, _, parent = change.key.partition(":")
        names = [self.name(f"{kind}{change.key}") for kind in "ctd"]
        return names + [self.name(f"z{number}.{aggregate}:{parent}") for aggregate, *_ in change.ordered]

    def totals(self, names: Sequence[str]) -> list[dict[str, int]]:
        """See RowStore."""
        self._seen(names)
        answers = self.reads([("HGETALL", f"t{key}") for key in names])
        return [{name.decode(): int(count) for name, count in pairs(answer)} for answer in answers]

    def extremes(self, asked: Sequence[tuple[str, int, bool, bool]]) -> list[list[str]]:
        """See RowStore."""
        self._seen([key for key, *_ in asked])
        calls: list[Command] = []
        for chunk in self._chunks(asked):
            named, values = [], []
            for key, number, greatest, by_bytes in chunk:
                group, _, parent = key.partition(":")
                named.append(self.name(f"z{group}.{number}:{parent}"))
                values += ["1" if greatest else "0", "1" if by_bytes else "0"]
            calls.append(("EVALSHA", EXTREME.sha, len(named), *named, *values))
        return [[member.decode() for member in found] for answers in self.pipeline(calls) for found in answers]

    # -- versions -----------------------------------------------------------------------------------------------------

    def raise_versions(self, pairs: Sequence[tuple[str, int]]) -> list[int]:
        """See RowStore."""
        return [int(answer) for answer in self.scripted(RAISE, [(key, (str(position),)) for key, position in pairs])]

    def fade(self, pairs: Sequence[tuple[str, int]]) -> None:
        """See RowStore."""
        self.scripted(FADE, [(key, (str(version),)) for key, version in pairs], Attempt(), self.settings.fade_seconds)

    # -- deferred documents -------------------------------------------------------------------------------------------

    def defer(self, roots: Mapping[str, int]) -> None:
        """See RowStore."""
        by_shard: dict[int, list[str]] = {}
        for root, position in roots.items():
            by_shard.setdefault(key_names.shard(root), []).extend((root, str(position)))
        named = [(f"p{key_names.deferred(shard)}", pairs) for shard, pairs in by_shard.items()]
        self.changes([("HSET", key, *pairs) for key, pairs in cut(named)])

    def claim(self) -> list[int]:
        """See RowStore."""
        calls = [self._of_shard(CLAIM, "pqx", shard) for shard in range(key_names.SHARDS)]
        return [shard for shard, has in enumerate(self.pipeline(calls)) if has]

    def _of_shard(self, script: Any, kinds: str, shard: int) -> Command:
        named = [f"{kind}{key_names.deferred(shard)}" for kind in kinds]
        return self.call(script, self.beside(named[0]), [self.name(key) for key in named], (self._claim,))

    def claimed(self, shard: int, count: int) -> Iterator[dict[str, int]]:
        """See RowStore."""
        for found in self.scanned("HSCAN", f"q{key_names.deferred(shard)}", count):
            if found:
                yield {root.decode(): int(position) for root, position in pairs(found)}

    def settle(self, shards: Sequence[int]) -> None:
        """See RowStore."""
        self.pipeline([self._of_shard(SETTLE, "qx", shard) for shard in shards])

    def waiting(self) -> int:
        """See RowStore."""
        return sum(
            self.reads([("HLEN", f"{kind}{key_names.deferred(s)}") for kind in "pq" for s in range(key_names.SHARDS)])
        )

    # -- marks --------------------------------------------------------------------------------------------------------

    def server(self) -> str:
        """See RowStore."""

        def ask(client: Any) -> str:
            if not self.settings.cluster:
                if client.info("replication").get("role") in REPLICAS:
                    # As a write would be told: the name leads elsewhere by now, and this connection does not.
                    raise ReadOnlyError("READONLY the server is a replica now")
                return str(client.info("server").get("run_id", ""))
            # A client that is redirected to a replica it did not know goes on taking the demoted node for a primary:
            # then one more would look like a node that was added, and not like a fail-over.
            runs = [
                str(client.info("server", target_nodes=node).get("run_id", ""))
                for node in client.get_primaries()
                if client.info("replication", target_nodes=node).get("role") == "master"
            ]
            return " ".join(sorted(runs))

        return self.patiently(ask)

    def open(self, identity: str) -> None:
        """See RowStore."""
        self._mark(OPEN, identity, str(ROWS))

    def adopt(self, identity: str) -> None:
        """See RowStore."""
        self._mark(ADOPT, identity)

    def _mark(self, script: Any, *arguments: str) -> None:
        token = str(self.settings.token)
        self.pipeline([("EVALSHA", script.sha, 1, f"{place}o", token, *arguments) for place in self.places()])

    def note(self, batch: int | None = None, *, epoch: int = 0, filled: bool = False) -> None:
        """See RowStore."""
        fields = ["batch", str(batch), "epoch", str(epoch)] if batch is not None else []
        fields += ["filled", "1"] if filled else []
        self.pipeline([self.call(NOTE, place, (), fields) for place in self.places()])

    def lower(self, batch: int, *, epoch: int) -> None:
        """See RowStore."""
        work = orjson.dumps([("HSET", "batch", str(batch), "epoch", str(epoch))])
        self.pipeline([self.call(CHANGE, place, [f"{place}o"], (work,)) for place in self.places()])

    def noted(self) -> Marks:
        """See RowStore."""
        wanted = ("format", "identity", "batch", "epoch", "filled")
        held = self.pipeline([("HMGET", f"{place}o", *wanted) for place in self.places()])
        if not all(marks[0] for marks in held):
            # Before there was a format, one key held it all, on a cluster too.
            (older,) = self.pipeline([("HLEN", f"{self._ns}o")])
            return Marks(format=1 if older and not any(marks[0] for marks in held) else 0)
        identities = {marks[1] for marks in held}
        identity = identities.pop().decode() if len(identities) == 1 else ""
        batch = min(-1 if marks[2] is None else int(marks[2]) for marks in held)
        epoch = min(int(marks[3] or 0) for marks in held)
        return Marks(min(int(marks[0]) for marks in held), identity, batch, epoch, all(marks[4] for marks in held))

    def late(self, part: str, at_ms: int | None = None) -> int:
        """See RowStore."""
        key, field = f"o:{part}", f"late:{part}"
        place = self.beside(key)
        if at_ms is None:
            (found,) = self.pipeline([("HGET", f"{place}o", field)])
            return int(found or 0)
        self.pipeline([self.call(NOTE, place, (), (field, str(at_ms)))])
        return at_ms

    # -- the whole ----------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Refuse a server that may lose rows, and say whose the namespace is. Does not wait for a server.

        Raises:
            SinkUnavailable: it does not answer (transient).
            SinkRefused: it may evict keys.
        """
        if (unseen := self.refuse_evicting()) and unseen not in _SAID:
            _SAID.add(unseen)
            log.warning("%s", unseen)
        self.load_scripts()
        self.patiently(lambda client: client.hset(REGISTRY, self._ns, self.settings.title))

    def refuse_evicting(self) -> str:
        """Refuse a server that may lose rows; changes nothing. Raises as ``setup``.

        Returns:
            of nodes that do not tell whether they may, what somebody has to look at; empty if all tell.
        """
        unseen = []
        for node, found in self.patiently(self._policies):
            if found is None:
                unseen.append(node)
            elif found != "noeviction":
                raise SinkRefused(
                    f"{self.who}: maxmemory-policy of {node} is {found}",
                    means="a full server would throw rows away, and documents built from the rest would be wrong",
                    fix="set maxmemory-policy noeviction there, or point row_store.url at a server of its own",
                )
        return f"{self.who}: {', '.join(unseen)} {UNSEEN}" if unseen else ""

    def _policies(self, client: Any) -> list[tuple[str, str | None]]:
        return [(name, _policy(client, there, info)) for name, there, info in self.told(client)]

    def empty(self) -> int:
        """See RowStore."""
        return self._remove({f"{place}o".encode() for place in self.places()})

    def drop(self, *others: str) -> int:
        """Remove the whole namespace, and others of the same server in the same pass over its keys.

        Args:
            others: their ``settings.namespace``.

        Returns:
            how many keys went.
        """
        gone = self._remove(set(), others)
        self.patiently(lambda client: client.hdel(REGISTRY, self._ns, *others))
        return gone

    def _remove(self, spared: set[bytes], others: Sequence[str] = ()) -> int:
        places = tuple(name.encode() for name in (self._ns, *others))

        def clear(client: Any) -> int:
            gone, batch = 0, []
            for key in keys_below(client, places, count=1000):
                if key in spared:
                    continue
                batch.append(key)
                if len(batch) == CHUNK:
                    gone += unlink(client, batch)
                    batch = []
            return gone + unlink(client, batch)

        return self.patiently(clear)

    def close(self) -> None:
        """Give connections back and end a waiting call. Idempotent."""
        self._stop.set()
        if self._made is not None:
            self._made.close()
