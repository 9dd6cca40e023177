"""The Redis sink: the contract's verbs by pipelines of one script call per item."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import redis

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from sinks.contract import STALE, WRITTEN, Answer, Held, Item, OnWait, rejected, size_fault, version_fault
from sinks.redis import names
from sinks.redis.client import (
    Client,
    connect,
    is_moved,
    is_no_script,
    is_passing,
    is_read_only,
    lacks_rights,
    reason_of,
)
from sinks.redis.script import SOURCE, Command, command
from sinks.redis.settings import read_settings
from sinks.retry import Patience, quiet

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_KEY_BYTES = 8192  # Redis would take 512 MB; nobody means that
SCAN_COUNT = 1000
OLDEST = 5  # 5.0: scripts replicate their effects, so EXPIRE and SET are exact on replicas


class RedisSink:
    """Keeps views in Redis. Thread-safe (redis-py's connection pool is).

    Args:
        config: plain data, see ``sinks.redis.settings``.
        on_wait: told the reason whenever the server makes it wait.

    Raises:
        ConfigError: a setting is wrong. No connection is made yet.
    """

    def __init__(self, config: Mapping[str, Any], on_wait: OnWait = quiet) -> None:
        self._settings = read_settings(config)
        self._on_wait = on_wait
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._made: Client = None
        self._ttl = b"%d" % (self._settings.ttl_seconds or 0)
        self._fence = b"%d" % self._settings.fence_seconds

    def setup(self) -> None:
        """See the contract. Says in the log when the server may evict (allowed for a cache)."""
        who = self._settings.who
        with self._once("setup"):
            self._client().ping()
            info: dict[str, Any] = {} if self._settings.cluster else self._client().info()
        version = str(info.get("redis_version", OLDEST))
        major = version.split(".", maxsplit=1)[0]
        if major.isdigit() and int(major) < OLDEST:
            raise SinkRefused(f"{who} is version {version}", fix=f"use Redis {OLDEST}.0 or newer")
        if info.get("cluster_enabled"):
            raise SinkRefused(f"{who} is part of a Redis Cluster", fix="set `cluster: true` for this sink")
        if info.get("role") == "slave":
            raise SinkRefused(f"{who} is a replica and can't be written", fix="give the url of its master")
        if info.get("maxmemory") and info.get("maxmemory_policy") != "noeviction":
            log.warning(
                "%s may evict keys (%s): readers must take a missing key for a miss, and verify will miss it too",
                who,
                info.get("maxmemory_policy"),
            )

    def write(self, target: str, items: Sequence[Item]) -> list[Answer]:
        """See the contract."""
        prefix = self._prefix(target)
        answers: list[Answer | None] = [None] * len(items)
        batch: list[tuple[int, Command]] = []
        size = 0
        for place, item in enumerate(items):
            value = names.value_key(prefix, item.key)
            answers[place] = self._refuse(item, value)
            if answers[place] is not None:
                continue
            weight = len(item.document or b"")
            if batch and (len(batch) >= self._settings.pipeline_count or size + weight > self._settings.pipeline_bytes):
                self._deliver(batch, answers)
                batch, size = [], 0
            batch.append((place, command(item, value, names.version_key(value), self._ttl, self._fence)))
            size += weight
        self._deliver(batch, answers)
        done = [answer for answer in answers if answer is not None]
        if len(done) != len(items):
            raise AssertionError(f"{len(items) - len(done)} items were not answered")
        return done

    def get(self, target: str, keys: Sequence[str]) -> dict[str, Held]:
        """See the contract."""
        prefix = self._prefix(target)
        found: dict[str, Held] = {}
        with self._once("get"):
            for start in range(0, len(keys), SCAN_COUNT):
                page = [names.value_key(prefix, key) for key in keys[start : start + SCAN_COUNT]]
                found.update({held.key: held for held in self._read(self._client(), prefix, page)})
        return found

    def scan(self, target: str) -> Iterator[Held]:
        """See the contract; a key of that name which is no string is left out."""
        prefix = self._prefix(target)
        pattern = names.pattern(prefix)
        with self._once("scan"):
            client = self._client()
            for node in client.get_primaries() if self._settings.cluster else [None]:
                there = {"target_nodes": node} if node else {}
                cursor = 0
                while True:
                    answer = client.scan(cursor, match=pattern, count=SCAN_COUNT, _type="STRING", **there)
                    cursor = next(iter(answer[0].values())) if node else answer[0]
                    yield from self._read(client, prefix, answer[1])
                    if cursor == 0:
                        break

    def drop(self, target: str) -> None:
        """See the contract; UNLINK frees the memory in the background, so that the server goes on answering."""
        prefix = self._prefix(target)
        with self._once("drop"):
            client = self._client()
            for pattern in (names.pattern(prefix), names.pattern(names.VERSION_PREFIX + prefix)):
                page: list[bytes] = []
                for key in client.scan_iter(match=pattern, count=SCAN_COUNT):
                    page.append(key)
                    if len(page) == SCAN_COUNT:
                        self._unlink(client, page)
                        page = []
                self._unlink(client, page)

    @staticmethod
    def _unlink(client: Client, keys: Sequence[bytes]) -> None:
        pipe = client.pipeline(transaction=False)
        for key in keys:
            pipe.unlink(key)
        pipe.execute()

    def close(self) -> None:
        """See the contract."""
        self._stop.set()
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None

    def _read(self, client: Client, prefix: bytes, page: Sequence[bytes]) -> Iterator[Held]:
        pipe = client.pipeline(transaction=False)
        for value in page:
            pipe.get(value)
            pipe.get(names.version_key(value))
        answers = pipe.execute()
        for value, document, version in zip(page, answers[::2], answers[1::2], strict=True):
            if document is not None:  # a version without a value is a fence
                yield Held(names.id_of(prefix, value), int(version or 0), document)

    @contextmanager
    def _once(self, doing: str) -> Iterator[None]:
        """For setup and reads: no waiting. (A scan must not go on after a restart: the new server's cursors differ.)"""
        try:
            yield
        except (redis.RedisError, OSError) as error:
            if lacks_rights(error) or not is_passing(error):
                self._wait_or_raise(error, self._patience())
            raise SinkUnavailable(f"{self._settings.who}: {doing}: {reason_of(error)}", fix="start it again") from error

    def _deliver(self, batch: list[tuple[int, Command]], answers: list[Answer | None]) -> None:
        """One pipeline, repeated for the items that could not be taken now."""
        patience = self._patience()
        while batch:
            try:
                results = self._execute([call for _, call in batch])
            except (redis.RedisError, OSError) as error:
                self._wait_or_raise(error, patience)
                continue
            batch = self._settle(batch, results, answers, patience)

    def _execute(self, calls: list[Command]) -> list[Any]:
        pipe = self._client().pipeline(transaction=False)
        for call in calls:
            pipe.execute_command(*call)
        results: list[Any] = pipe.execute(raise_on_error=False)
        return results

    def _settle(
        self, batch: list[tuple[int, Command]], results: list[Any], answers: list[Answer | None], patience: Patience
    ) -> list[tuple[int, Command]]:
        """Take answers over; returns the items to send again."""
        again: list[tuple[int, Command]] = []
        unknown_script = False
        passing: Exception | None = None
        for entry, result in zip(batch, results, strict=True):
            if not isinstance(result, Exception):
                answers[entry[0]] = WRITTEN if result else STALE
            elif is_no_script(result):
                unknown_script = True
                again.append(entry)
            elif is_passing(result) or lacks_rights(result):
                passing = result
                again.append(entry)
            else:
                answers[entry[0]] = rejected(reason_of(result))
        if len(again) < len(batch):
            patience.progress()
        if passing is not None:
            self._wait_or_raise(passing, patience)
        if unknown_script:
            patience.hold(f"{self._settings.who}: the server has forgotten our script (restarted?)")
            self._patiently(lambda client: client.script_load(SOURCE), patience)
        return again

    def _patiently(self, verb: Callable[[Client], T], patience: Patience | None = None) -> T:
        """Run one verb, waiting for the server as long as it takes."""
        patience = patience or self._patience()
        while True:
            try:
                return verb(self._client())
            except (redis.RedisError, OSError) as error:
                self._wait_or_raise(error, patience)

    def _wait_or_raise(self, error: Exception, patience: Patience) -> None:
        who = self._settings.who
        if lacks_rights(error):
            raise SinkRefused(f"{who}: {reason_of(error)}", fix="check this sink's user and password") from error
        if not is_passing(error):
            raise SinkRefused(f"{who}: {reason_of(error)}") from error
        if is_moved(error) and not self._settings.cluster:
            raise SinkRefused(f"{who} is part of a Redis Cluster", fix="set `cluster: true` for this sink") from error
        if is_read_only(error) and not self._settings.cluster and self._made is not None:
            self._made.connection_pool.disconnect()  # after a fail-over the name may lead to the new master
        patience.hold(f"{who}: {reason_of(error)}")

    def _client(self) -> Client:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    client = connect(self._settings)
                    try:
                        client.script_load(SOURCE)
                    except BaseException:
                        client.close()
                        raise
                    self._made = client
        return self._made

    def _prefix(self, view: str) -> bytes:
        if view not in self._settings.targets:
            raise ConfigError(f"{self._settings.who} has no view {view!r}")
        return names.prefix_of(self._settings.key_prefix, view)

    def _patience(self) -> Patience:
        return Patience(
            self._settings.who, give_up_seconds=self._settings.give_up_seconds, on_wait=self._on_wait, stop=self._stop
        )

    def _refuse(self, item: Item, value: bytes) -> Answer | None:
        if not item.key or len(value) > MAX_KEY_BYTES:
            return rejected(f"the key must not be empty and at most {MAX_KEY_BYTES} bytes long; it has {len(value)}")
        fault = version_fault(item) or size_fault(item, self._settings.max_document_bytes)
        return rejected(fault) if fault else None
