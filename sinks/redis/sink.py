"""The Redis sink: the contract's verbs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from sinks.contract import STALE, Answer, Held, Item, OnWait, rejected, size_fault, version_fault
from sinks.redis import names, promotion
from sinks.redis.claims import Claims
from sinks.redis.client import REPLICAS, Client
from sinks.redis.forget import forget
from sinks.redis.names import Names
from sinks.redis.pointer import BEAT, CLAIM, FIELDS, FORGET, Pointer, claims_in
from sinks.redis.read import SCAN_COUNT, Reads, keys_below, permitted
from sinks.redis.server import Server
from sinks.redis.settings import read_settings
from sinks.redis.size import held_bytes
from sinks.redis.stream import changes
from sinks.redis.stream.matches import Matches
from sinks.redis.write import Call, Writes
from sinks.retry import quiet
from sinks.rounds import rounds

log = logging.getLogger(__name__)

MAX_KEY_BYTES = 8192  # Redis would take 512 MB; nobody means that
_SAID: set[tuple[str, str, str]] = set()  # what this process has warned of already
UNSEEN = "which version a Redis is, whether it is a replica, and whether it may evict keys can't be seen"
OLDEST = (6, 2)  # SCAN has TYPE since 6.0 (promotion.py), XRANGE ranges that leave their begin out since 6.2


class RedisSink:
    """Keeps views in Redis. Thread-safe.

    Args:
        config: plain data, see ``sinks.redis.settings``.
        on_wait: told the reason whenever the server makes it wait.

    Raises:
        ConfigError: a setting is wrong. No connection is made yet.
    """

    def __init__(self, config: Mapping[str, Any], on_wait: OnWait = quiet) -> None:
        self._settings = settings = read_settings(config)
        self._server = Server(settings, on_wait)
        self._names = {view: Names(settings.key_prefix, view, number) for view, number in settings.targets.items()}
        self._claims = Claims(settings.owner, settings.who)
        self._writes = {view: Writes(self._server, where) for view, where in self._names.items()}

    def setup(self) -> None:
        """See the contract. Says in the log when the server may evict (allowed for a cache)."""
        who = self._settings.who
        with self._server.once("setup"):
            self._server.client().ping()
            asked = None if self._settings.cluster else permitted(self._server.client().info, UNSEEN)
        info: dict[str, Any] = asked or {}
        version = str(info.get("redis_version", ""))
        numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
        if numbers and (*numbers, 0)[:2] < OLDEST:
            raise SinkRefused(f"{who} is version {version}", fix="use Redis {}.{} or newer".format(*OLDEST))
        if info.get("cluster_enabled"):
            raise SinkRefused(f"{who} is part of a Redis Cluster", fix="set `cluster: true` for this sink")
        if info.get("role") in REPLICAS:
            raise self._not_written()
        if info.get("maxmemory") and info.get("maxmemory_policy") != "noeviction":
            self._say_eviction(str(info.get("maxmemory_policy")))
        with self._server.once("setup"):
            self._claim_keys(self._server.client())
            for where in self._names.values():
                self._claim(where)

    def _not_written(self) -> SinkUnavailable | SinkRefused:
        """What a replica means: one that knows this sink is met in a fail-over, when the address leads to the former
        master still. Raises SinkRefused where its keys are another's, whose generations it may know."""
        what = f"{self._settings.who} is a replica and can't be written"
        with self._server.once("setup"):
            self._refuse_others(self._server.client(), *self._names.values())
        if any(self.living(view) is not None for view in self._names):
            return SinkUnavailable(
                what, fix="`run` goes on once its url leads to the master; if it stays so, correct it"
            )
        return SinkRefused(what, fix="give the url of its master")

    def _say_eviction(self, policy: str) -> None:
        """Once in a process: a sink is opened again and again, for each of its flows and after each failure."""
        said = (self._settings.who, self._settings.key_prefix, policy)
        if said not in _SAID:
            _SAID.add(said)
            log.warning(
                "%s may evict keys (%s): readers must take a missing key for a miss, and verify will miss it too",
                self._settings.who,
                policy,
            )

    def _claim_keys(self, client: Client) -> None:
        """Claim the keys of all views, or of none."""
        self._refuse_others(client, *self._names.values())
        for where in self._names.values():
            self._claims.claim(client, where.stem)

    def _refuse_others(self, client: Client, *those: Names) -> None:
        for where in those:
            found = self._claims.in_the_way(client, where.stem)
            if found is not None:
                raise self._claims.refused(where.stem, found)

    def _claim(self, where: Names) -> None:
        newest = self._server.client().eval(CLAIM, 1, where.pointer, where.generation, self._settings.token)
        if newest is not None:
            raise SinkRefused(
                f"{self._settings.who}: generation {where.generation} of {where.view} was claimed with lease token "
                f"{newest.decode()}, this process has {self._settings.token}",
                means="another process has taken this generation over, perhaps from another machine or state folder; "
                "nothing was changed",
                fix="nothing, if that process is meant to run; else end it and start this one again",
            )
        if not self._settings.cluster:
            changes.keep(self._server.client(), where, self._settings.keep)

    def write(self, target: str, items: Sequence[Item]) -> list[Answer]:
        """See the contract."""
        where = self._where(target)
        suffixes = [names.encoded(item.key) for item in items]
        answers: list[Answer | None] = [
            self._refuse(item, len(where.own) + len(suffix)) for item, suffix in zip(items, suffixes, strict=True)
        ]
        plan = rounds(items, (place for place, answer in enumerate(answers) if answer is None))
        for place in plan.superseded:
            answers[place] = STALE
        for turn in plan.sent:
            calls = [Call(at, suffixes[at], items[at].version, items[at].document or b"") for at in turn]
            self._deliver(self._writes[target], calls, answers)
        done = [answer for answer in answers if answer is not None]
        if len(done) != len(items):
            raise AssertionError(f"{len(items) - len(done)} items were not answered")
        return done

    def _deliver(self, writes: Writes, calls: Sequence[Call], answers: list[Answer | None]) -> None:
        """Pipelines of bounded count and size, one after the other."""
        batch: list[Call] = []
        size = 0
        for call in calls:
            length = len(call.document)
            if batch and (len(batch) >= self._settings.pipeline_count or size + length > self._settings.pipeline_bytes):
                writes.deliver(batch, answers)
                batch, size = [], 0
            batch.append(call)
            size += length
        writes.deliver(batch, answers)

    def _refuse(self, item: Item, key_bytes: int) -> Answer | None:
        if key_bytes > MAX_KEY_BYTES:
            return rejected(f"the key must be at most {MAX_KEY_BYTES} bytes long; it has {key_bytes}")
        fault = version_fault(item) or size_fault(item, self._settings.max_document_bytes)
        if item.document == b"":
            fault = "the document is empty"  # which the script would take for a delete
        return rejected(fault) if fault else None

    def get(self, target: str, keys: Sequence[str]) -> dict[str, Held]:
        """See the contract."""
        with self._server.once("get"):
            return self._reads().get(self._where(target), keys)

    def versions(self, target: str, keys: Sequence[str]) -> dict[str, int]:
        """See the contract: a version stays where its value was deleted, and never moves."""
        with self._server.once("look-up of versions"):
            return self._reads().versions(self._where(target), keys)

    def expired(self, target: str, keys: Sequence[str], *, unversioned: bool) -> set[str]:
        """Those of some keys that are not there whose documents may have expired: their versions outlive them, by the
        fence. Of those that have none left either nobody can tell.

        Args:
            target: the view.
            keys: ids.
            unversioned: count those without a version, too.
        """
        with self._server.once("look-up of lifetimes"):
            fence = self._settings.fence_seconds
            return self._reads().expired(self._where(target), keys, fence, unversioned=unversioned)

    def scan(self, target: str) -> Iterator[Held]:
        """See the contract; a key of that name which is no string has no document.

        Raises:
            SinkRefused: somebody else's keys are among them: a repair would take those for ghosts.
        """
        with self._server.once("scan"):
            self._refuse_others(self._server.client(), self._where(target))
            yield from self._reads().scan(self._where(target))

    def filled(self, targets: Sequence[str]) -> str | None:
        """See the contract; the server goes through its keys once, whosever they are, and for however many targets."""
        with self._server.once("look at"):
            client, reads, prefixes = self._server.client(), self._reads(), dict[bytes, str]()
            for target in targets:
                where = self._where(target)
                self._refuse_others(client, where)
                prefixes[reads.prefix(where)] = target
            found = next(reads.below([*prefixes]), None)
        return None if found is None else prefixes[found]

    def sample(self, target: str, count: int, seed: int) -> Iterator[Held]:
        """See the contract."""
        with self._server.once("sample"):
            self._refuse_others(self._server.client(), self._where(target))
            yield from self._reads().sample(self._where(target), count, seed)

    def forget(self, target: str, keys: Sequence[str]) -> None:
        """See the contract."""
        where, token, cluster = self._where(target), self._settings.token, self._settings.cluster
        with self._server.once("forget"):
            client = self._server.client()
            if cluster and (self.claimed(target) or 0) > token:
                raise self._writes[target].fenced()
            if not forget(client, self._reads(), where, keys, token, cluster=cluster):
                raise self._writes[target].fenced()

    def bulk_load(self, target: str, on: bool) -> None:
        """See the contract: there is nothing to turn off."""

    def promote(self, target: str, old: int) -> None:
        """See the contract: the pointer switches at once, then keys are renamed (``promotion.py``)."""
        settings = self._settings
        with self._server.once("promote"):
            self._refuse_others(self._server.client(), self._where(target))
            promotion.promote(self._server.client(), self._where(target), settings.who, old, settings.cluster)

    def settle(self, target: str) -> None:
        """See the contract: writers of both generations wait as long as keys are renamed."""
        with self._server.once("settle"):
            self._refuse_others(self._server.client(), self._where(target))
            promotion.finish(self._server.client(), self._where(target))

    def living(self, target: str) -> int | None:
        """See the contract. Readers take an absent pointer for generation 1; it is that one only if somebody has set it
        up. Else the server has forgotten, and nobody knows whose values, if any, are at the plain names."""
        where = self._where(target)
        with self._server.once("living"):
            promoted, first = self._server.client().hmget(where.pointer, ("generation", "lease:1"))
        if promoted:
            return int(promoted)
        return None if first is None else 1

    def there(self, target: str) -> bool:
        """See the contract: whoever sets it up claims it, and a server that has forgotten that has forgotten more."""
        return self.claimed(target) is not None

    def numbered(self, targets: Collection[str]) -> dict[int, set[str]]:
        """See the contract: who has set up a generation has claimed it."""
        found = dict[int, set[str]]()
        with self._server.once("look-up of generations"):
            client = self._server.client()
            for target in targets:
                for number in claims_in(client.hkeys(self._where(target).pointer)):
                    found.setdefault(number, set()).add(target)
        return found

    def refresh(self, target: str) -> None:
        """See the contract: what was written is read at once, unless the server has forgotten it."""
        if not self.there(target):
            raise SinkRefused(f"{self._settings.who}: what was written to {target} is gone")

    def size(self, target: str) -> int:
        """See the contract: documents and fences alike."""
        with self._server.once("look-up of its size"):
            client, where = self._server.client(), self._where(target)
            told = 0 if self._settings.cluster else client.memory_usage(where.changes) or 0
            return held_bytes(client, self._reads().prefix(where)) + int(told)

    def beat(self, target: str, number: int, before: int = 0) -> int | None:
        """Leave a number with a generation, larger each time; returns the one that was there.

        One that is lower than what was left last tells of a server that was restored from an older state, although
        the generation itself is there. It is left as it is then, so that whoever asks next sees it too. 0 before the
        first; None when the generation is not there.

        Args:
            target: the view.
            number: to be left.
            before: the one that was left last, as far as is known.

        Raises:
            SinkUnavailable: the server went away (transient).
        """
        where = self._where(target)
        with self._server.once("beat"):
            held = self._server.client().eval(BEAT, 1, where.pointer, where.generation, number, before)
        return None if held is None else int(held)

    def claimed(self, target: str) -> int | None:
        """See the contract."""
        where = self._where(target)
        with self._server.once("claimed"):
            token = self._server.client().hget(where.pointer, f"lease:{where.generation}")
        return None if token is None else int(token)

    def oldest_claim(self, target: str) -> int | None:
        """See the contract: a server that fails over or is started again may lose its newest writes, this one with
        them; that is noticed by other means."""
        return None

    def drop(self, target: str) -> None:
        """See the contract; a promotion that was cut is finished first, so that it is known whose values are where.
        UNLINK frees the memory in the background, so that the server goes on answering. Where somebody else has claimed
        keys among these, nothing is removed: they may be his."""
        where = self._where(target)
        with self._server.once("drop"):
            client = self._server.client()
            if not self._unlink_all(client, where):
                return
            client.unlink(where.changes)
            client.eval(FORGET, 1, where.pointer, where.generation)
            if not client.exists(where.pointer):  # no generation is left
                client.unlink(where.hooks)
                client.unlink(where.letters)
                if not self._settings.cluster:
                    self._matches(client, where).drop()
                self._claims.release(client, where.stem)

    def empty(self, target: str) -> None:
        """See the contract; the pointer is left as it is, but for the changes: who has seen documents that are gone
        now must read all of them again."""
        with self._server.once("empty"):
            client, where = self._server.client(), self._where(target)
            if self._unlink_all(client, where) and not self._settings.cluster:
                changes.begin_anew(client, where)

    def kept_changes(self, target: str) -> int:
        """How many changes of its documents are kept, for subscribers or as letters, and matches; 0 where none are.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
        """
        with self._server.once("look at"):
            if self._settings.cluster:
                return 0
            client, where = self._server.client(), self._where(target)
            return changes.kept(client, where) + self._matches(client, where).count()

    def forget_changes(self, target: str) -> None:
        """Forget all of them, and matches: who subscribes is sent all documents anew.

        Raises:
            SinkUnavailable: the server went away (transient); call again.
        """
        if not self._settings.cluster:
            with self._server.once("forget changes of"):
                client, where = self._server.client(), self._where(target)
                changes.begin_anew(client, where)
                self._matches(client, where).forget_events()

    def _matches(self, client: Client, where: Names) -> Matches:
        return Matches(client, self._settings.key_prefix, where.view, 0)

    def _unlink_all(self, client: Client, where: Names) -> bool:
        """Remove a generation's values; False, and nothing is done, where somebody else's may be among them."""
        found = self._claims.in_the_way(client, where.stem)
        if found is not None:
            log.warning("what is there is left: %s", self._claims.refused(where.stem, found).what)
            return False
        promotion.finish(client, where)
        pointer = Pointer.of(client.hmget(where.pointer, FIELDS))
        places = {where.hidden}
        if self._settings.cluster:
            places.add(where.own)
        elif pointer.generation == where.generation:
            places.add(where.plain)
        self._unlink(client, tuple(places))
        self._unlink(client, (names.VERSION_PREFIX + where.own,))
        return True

    @staticmethod
    def _unlink(client: Client, prefixes: tuple[bytes, ...]) -> None:
        keys = keys_below(client, prefixes)
        while page := list(islice(keys, SCAN_COUNT)):
            pipe = client.pipeline(transaction=False)
            for key in page:
                pipe.unlink(key)
            pipe.execute()

    def close(self) -> None:
        """See the contract."""
        self._server.close()

    def _reads(self) -> Reads:
        return Reads(self._server.client(), self._settings.cluster)

    def _where(self, view: str) -> Names:
        try:
            return self._names[view]
        except KeyError:
            raise ConfigError(f"{self._settings.who} has no view {view!r}") from None
