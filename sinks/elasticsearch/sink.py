"""The Elasticsearch sink: the contract's verbs over index, bulk, fences and reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from elastic_transport import TransportError
from elasticsearch import ApiError

from cdc.errors import ConfigError, SinkRefused
from cdc.keys import id_bytes, is_stray
from sinks.contract import STALE, UNVERSIONED, WRITTEN, Answer, Held, Item, OnWait, rejected, size_fault, version_fault
from sinks.elasticsearch import generations, read
from sinks.elasticsearch.bulk import Bulk, Line, chunks, encode
from sinks.elasticsearch.client import connect, is_passing, reason_of, refused, translated
from sinks.elasticsearch.fences import KEY_PREFIX, Fences
from sinks.elasticsearch.forget import forget
from sinks.elasticsearch.housekeeping import Housekeeping
from sinks.elasticsearch.index import Indices, at_once
from sinks.elasticsearch.lease import Lease
from sinks.elasticsearch.settings import Target, read_settings
from sinks.retry import Patience, quiet
from sinks.rounds import rounds

T = TypeVar("T")

# For the fences that a start finds; what is left of millions goes beside the writes.
SETUP_SECONDS = 5.0
# A purge that the server does not take for so long is left for the next time.
FORGET_SECONDS = 60.0

# The server's limit is 512 bytes; a fence's id has one more than its key.
MAX_KEY_BYTES = 512 - len(KEY_PREFIX)


class ElasticsearchSink:
    """Keeps views in Elasticsearch indices. Thread-safe: writes from several threads share connections.

    Args:
        config: plain data, see ``sinks.elasticsearch.settings``.
        on_wait: told the reason whenever the server makes it wait.

    Raises:
        ConfigError: a setting is wrong. No connection is made yet.
    """

    def __init__(self, config: Mapping[str, Any], on_wait: OnWait = quiet) -> None:
        self._settings = read_settings(config)
        self._on_wait = on_wait
        self._client = connect(self._settings)
        self._bulk = Bulk(self._client, self._settings.who)
        self._fences = Fences(self._client, self._bulk, self._settings.who)
        self._lease = Lease(self._client, self._settings.who)
        self._indices = Indices(self._client, self._settings, self._lease)
        self._stop = threading.Event()
        self._housekeeping = Housekeeping(self._forget, self._settings.purge_seconds)
        self._pool: ThreadPoolExecutor | None = None

    def setup(self) -> None:
        """See the contract; also forgets fences older than ``fence_seconds``, for a moment: nobody is served yet."""
        self._indices.setup()
        with translated(self._settings.who, "purge of old fences"):
            until = time.monotonic() + SETUP_SECONDS
            at_once(partial(self._purge, until=until), self._settings.targets.values())

    def write(self, target: str, items: Sequence[Item]) -> list[Answer]:
        """See the contract. A refusal may mean that another process has taken over, or that somebody has removed an
        alias or given it to another index: then it is called that."""
        place = self._target(target)
        try:
            answers = self._write(place, items)
        except SinkRefused as refusal:
            lease = self._lease
            why = self._retrying(lambda: lease.fenced(place) or lease.removed(place) or lease.shared(place))
            if why is not None:
                raise why from refusal
            raise
        self._housekeeping.look(place)
        return answers

    def _purge(self, place: Target, until: float) -> None:
        self._fences.purge(place, self._settings.fence_seconds, self._patience(), lambda _: time.monotonic() >= until)

    def _forget(self, place: Target) -> None:
        """Old fences go while others are written: half of the time is theirs, and nobody waits for it."""
        if self._fences.take_turn(place, self._settings.purge_seconds):
            patience = Patience(self._settings.who, give_up_seconds=FORGET_SECONDS, stop=self._stop)
            self._fences.purge(place, self._settings.fence_seconds, patience, self._stop.wait)

    def _write(self, place: Target, items: Sequence[Item]) -> list[Answer]:
        answers: list[Answer | None] = [self._refuse(item) for item in items]
        plan = rounds(items, (number for number, answer in enumerate(answers) if answer is None))
        for number in plan.superseded:
            answers[number] = STALE
        for turn in plan.sent:
            self._round(place, items, turn, answers)
        done = [answer for answer in answers if answer is not None]
        if len(done) != len(items):
            raise AssertionError(f"{len(items) - len(done)} items were not answered")
        return done

    def _round(self, place: Target, items: Sequence[Item], turn: Sequence[int], answers: list[Answer | None]) -> None:
        """Items of different keys, in this order: look up fences, leave fences, then the bulk requests."""
        upserts = [items[number] for number in turn if items[number].document is not None]
        fenced = self._retrying(lambda: self._fences.above(place, upserts)) if upserts else {}
        held = self._held_versions(
            place, [items[number].key for number in turn if items[number].version == UNVERSIONED]
        )
        deletes: list[Item] = []
        lines: list[Line] = []
        for number in turn:
            item = items[number]
            if item.version == UNVERSIONED:
                if item.key not in held:
                    answers[number] = WRITTEN
                    continue
                item = Item(item.key, held[item.key], None)
            if item.document is None:
                if not is_stray(item.key):  # no change of ours can bring it back
                    deletes.append(item)
            elif fenced.get(item.key, -1) > item.version:
                answers[number] = STALE
                continue
            lines.append(encode(number, item, place.address(item.key)))
        if deletes:
            self._fences.raise_for(place, deletes, self._patience())
        self._send_all(place.writer, lines, answers)

    def _held_versions(self, target: Target, keys: list[str]) -> dict[str, int]:
        """For UNVERSIONED deletes. The held version is used again: a plain delete would raise it by one, and a replay
        of the document's own write would then be refused."""
        return self._retrying(lambda: read.versions(self._client, target, target.writer, keys)) if keys else {}

    def get(self, target: str, keys: Sequence[str], at_once: int = 1) -> dict[str, Held]:
        """See the contract. Nothing has the empty id, and a question for it would be refused with all the others; one
        that is longer than ours may be is asked for, because somebody else may have put it there."""
        with translated(self._settings.who, "get"):
            return read.get(self._client, self._target(target), [key for key in keys if key], at_once)

    def versions(self, target: str, keys: Sequence[str]) -> dict[str, int]:
        """See the contract: documents and fences. A key that no document can have is not asked for."""
        place, asked = self._target(target), [key for key in keys if self._key_fault(key) is None]
        with translated(self._settings.who, "look-up of versions"):
            held = read.versions(self._client, place, place.concrete, asked)
            fenced = self._fences.of(place, asked, place.fences)
        return {key: max(held.get(key, -1), fenced.get(key, -1)) for key in held.keys() | fenced.keys()}

    def scan(self, target: str) -> Iterator[Held]:
        """See the contract."""
        with translated(self._settings.who, "scan"):
            yield from read.scan(self._client, self._target(target))

    def filled(self, targets: Sequence[str]) -> str | None:
        """See the contract."""
        return next((target for target in targets if next(iter(self.scan(target)), None) is not None), None)

    def sample(self, target: str, count: int, seed: int) -> Iterator[Held]:
        """See the contract."""
        with translated(self._settings.who, "sample"):
            yield from read.sample(self._client, self._target(target), count, seed)

    def forget(self, target: str, keys: Sequence[str]) -> None:
        """See the contract."""
        with translated(self._settings.who, "forget"):
            forget(self._client, self._target(target), keys, self._send_all)

    def refresh(self, target: str) -> None:
        """See the contract: a search finds what was written before the index's last refresh."""
        with translated(self._settings.who, "refresh"):
            read.refresh(self._client, self._target(target).concrete)

    def bulk_load(self, target: str, on: bool) -> None:
        """See the contract: refresh is off meanwhile."""
        self._indices.bulk_load(self._target(target), on)

    def promote(self, target: str, old: int) -> None:
        """See the contract: one call moves the readers' alias."""
        self._indices.promote(self._target(target), old)

    def settle(self, target: str) -> None:
        """See the contract: nobody waits."""

    def living(self, target: str) -> int | None:
        """See the contract."""
        return self._indices.living(self._target(target))

    def there(self, target: str) -> bool:
        """See the contract: both indices, the documents' and the fences'."""
        return self._indices.there(self._target(target))

    def numbered(self, targets: Collection[str]) -> dict[int, set[str]]:
        """See the contract: the documents' indices."""
        found = dict[int, set[str]]()
        with translated(self._settings.who, "look-up of the indices"):
            for target in targets:
                for number in generations.made(self._client, self._target(target)):
                    found.setdefault(number, set()).add(target)
        return found

    def size(self, target: str) -> int:
        """See the contract: the documents' index with its replicas."""
        with translated(self._settings.who, "look-up of its size"):
            return self._indices.size(self._target(target))

    def claimed(self, target: str) -> int | None:
        """See the contract."""
        with translated(self._settings.who, "look-up of the lease"):
            return self._lease.newest(self._target(target))

    def oldest_claim(self, target: str) -> int | None:
        """See the contract; no index shows an older one by itself."""
        with translated(self._settings.who, "look-up of the lease"):
            return self._lease.oldest(self._target(target))

    def drop(self, target: str) -> None:
        """See the contract; the aliases go with their indices."""
        self._indices.drop(self._target(target))

    def empty(self, target: str) -> None:
        """See the contract: one index less is emptier, and cheaper, than one without documents."""
        self.drop(target)

    def close(self) -> None:
        """See the contract."""
        self._stop.set()
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _target(self, view: str) -> Target:
        try:
            return self._settings.targets[view]
        except KeyError:
            raise ConfigError(f"{self._settings.who} has no view {view!r}") from None

    def _patience(self) -> Patience:
        return Patience(
            self._settings.who, give_up_seconds=self._settings.give_up_seconds, on_wait=self._on_wait, stop=self._stop
        )

    def _refuse(self, item: Item) -> Answer | None:
        """What Elasticsearch would refuse together with the whole request must not reach it."""
        fault = self._key_fault(item.key) or version_fault(item) or size_fault(item, self._settings.max_document_bytes)
        return rejected(fault) if fault else None

    @staticmethod
    def _key_fault(key: str) -> str | None:
        if not key or (len(key) * 4 > MAX_KEY_BYTES and len(id_bytes(key)) > MAX_KEY_BYTES):
            return f"the key must have 1 to {MAX_KEY_BYTES} bytes, this one has {len(id_bytes(key))}"
        return None

    def _retrying(self, read_verb: Callable[[], T]) -> T:
        """A look-up that a write needs, repeated while the server is away."""
        patience = self._patience()
        while True:
            try:
                return read_verb()
            except (ApiError, TransportError) as error:
                if not is_passing(error):
                    raise refused(f"{self._settings.who}: {reason_of(error)}", error) from error
                patience.hold(f"{self._settings.who}: {reason_of(error)}")

    def _send_all(self, index: str, lines: list[Line], answers: list[Answer | None]) -> None:
        """One request from this very thread; several through the pool, some in flight at once."""
        requests = list(chunks(lines, self._settings.bulk_bytes, self._settings.bulk_count))
        deliver = answers.__setitem__
        if len(requests) <= 1:
            for request in requests:
                self._bulk.send(index, request, self._patience(), deliver)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._settings.bulk_workers, f"bulk-{self._settings.name}")
        running = [self._pool.submit(self._bulk.send, index, part, self._patience(), deliver) for part in requests]
        try:
            for future in running:
                future.result()
        except BaseException:
            for future in running:
                future.cancel()
            raise
