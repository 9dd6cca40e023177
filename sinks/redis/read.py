"""Reading one generation back: by key, everything, or some. A promotion may rename keys meanwhile, so every page is
read together with the pointer; a page that lies elsewhere by now is an error, not a short answer."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis
from redis.cluster import RedisCluster

from cdc.paging import PageSize, parts
from sinks.contract import UNREADABLE, Held
from sinks.redis import names
from sinks.redis.client import Client
from sinks.redis.names import Names
from sinks.redis.pointer import FIELDS, Pointer

SCAN_COUNT = 1000
# The same where nearly all are somebody else's: they cost the server some two milliseconds, and nobody else.
PASS_COUNT = 5000
# Of a value that would have lived for so many seconds more it is certain that it has not expired.
LEAST_LEFT = 30
_TRIES = 5
_VERSION = re.compile(rb"\d{1,19}")

log = logging.getLogger(__name__)

# What could not be seen, and which right was missing for it.
_SAID: set[tuple[str, str]] = set()
_CURSORS = (
    "that a Redis is one and the same while its keys are gone through can't be seen: some may be passed over after a "
    "restart, unnoticed"
)


class SlotsMoving(redis.ConnectionError):
    """Slots of a cluster are being moved; or one was left open by a move that was cut, and stays so."""


@contextmanager
def one_run(client: Client) -> Iterator[list[Any]]:
    """Inside, something is gone through by a cursor, which is one server's own: each run hashes its keys anew.

    The client takes another connection for one that was closed, without a word, and so goes on with the cursor at a
    server that was restarted meanwhile, or at another one, which passes keys over. Of a cluster each node has a cursor
    of its own, and no node says that keys have gone to one that was gone through already, or that nobody has asked.

    Yields:
        the nodes to go through, as the cluster names them now; of a server alone None.

    Raises:
        redis.ConnectionError: it was not the same server all the time; or, of a cluster, not the same nodes, or slots
            were moved from one to another (``SlotsMoving``, where they still are).
    """
    nodes, before = _look(client)
    yield nodes
    if _look(client)[1] != before:
        raise redis.ConnectionError(
            "the server was restarted, or became another one, while its keys were gone through"
            if nodes == [None]
            else "a node of the cluster was restarted, or slots were moved, while its keys were gone through"
        )


def _look(client: Client) -> tuple[list[Any], Any]:
    """The nodes that have keys, and what changes when a cursor is of no use any more."""
    return _look_at_nodes(client) if isinstance(client, RedisCluster) else ([None], _run(client))


def _look_at_nodes(client: Client) -> tuple[list[Any], Any]:
    # The client's own list is as old as the last redirection that it has met; SCAN meets none.
    default, answer = client.get_default_node(), client.cluster_slots()
    owners = {slots: (at["primary"][0] or default.host, at["primary"][1]) for slots, at in answer.items()}
    nodes = [_node(client, *address) for address in sorted(set(owners.values()))]
    own = _own_slots(client, nodes, owners)
    # Who answered CLUSTER SLOTS may hear of a move after it has ended; the two nodes know.
    return nodes, (owners if own is None else own, [_run(client, target_nodes=node) for node in nodes])


def _node(client: Client, host: str, port: int) -> Any:
    if client.get_node(host, port) is None:
        client.nodes_manager.initialize()
    found = client.get_node(host, port)
    if found is None:
        raise redis.ConnectionError(f"the cluster names a node {host}:{port}, and then another one")
    return found


def _own_slots(client: Client, nodes: Sequence[Any], slots: Iterable[tuple[int, int]]) -> dict[str, Any] | None:
    """Which slots each node says are its own, by the node's id; None where the user may not ask.

    Raises:
        SlotsMoving: slots are being moved: a slot's keys go one by one, and it is the former node's until all have
            gone. Or the nodes do not have all the slots that are said to be theirs, because a move has just ended.
    """
    found: dict[str, Any] = {}
    for node in nodes:
        told = permitted(partial(client.execute_command, "CLUSTER NODES", target_nodes=node))
        if told is None:
            return None
        own = next(one for one in told.values() if "myself" in one["flags"])
        if own["migrations"]:
            raise SlotsMoving(_moved(node, own["migrations"][0], told))
        found[own["node_id"]] = own["slots"]
    had = sum(int(some[-1]) - int(some[0]) + 1 for own in found.values() for some in own)
    if had != sum(last - first + 1 for first, last in slots):
        raise SlotsMoving("slots of the cluster are being moved: its nodes do not agree yet whose they are")
    return found


def _moved(node: Any, move: Mapping[str, str], told: Mapping[str, Any]) -> str:
    """What a node tells of a slot that it gives or takes; a node that has left the others' list is called by its id."""
    other = next((at for at, one in told.items() if one["node_id"] == move["node_id"]), move["node_id"])
    origin, to = (node.name, other) if move["state"] == "migrating" else (other, node.name)
    return f"slot {move['slot']} of the cluster is being moved from {origin} to {to}"


def _run(client: Client, **there: Any) -> str:
    """Which run of which server answers; nothing where the user may not ask."""
    told = permitted(partial(client.info, **there)) or {}
    return f"{told.get('run_id')} {told.get('role')}"


def permitted(ask: Callable[[], Any], unseen: str = _CURSORS) -> Any:
    """An answer; None, and a line in the log once in a process, where the user may not ask.

    Args:
        ask: what is asked.
        unseen: what can't be seen then.
    """
    try:
        return ask()
    except redis.exceptions.NoPermissionError as error:
        if (said := (unseen, str(error))) not in _SAID:
            _SAID.add(said)
            log.warning("%s (%s); give the user +info, and in a cluster +cluster|slots and +cluster|nodes", *said)
        return None


def keys_below(client: Any, prefixes: tuple[bytes, ...], count: int = PASS_COUNT) -> Iterator[bytes]:
    """Keys that begin with any of some prefixes, in one pass over all keys.

    Args:
        client: a ``redis.Redis`` or ``redis.RedisCluster``.
        prefixes: one or more.
        count: keys that the server looks at in one call.

    Raises:
        redis.RedisError: the server went away, or was restarted meanwhile.
    """
    found = _pages(client, names.pattern(names.common(prefixes)), count)
    return (key for page in found for key in page if key.startswith(prefixes))


def _pages(client: Any, pattern: bytes, count: int, first: int = 0) -> Iterator[list[bytes]]:
    """Keys of a pattern, page by page; ``first`` is the cursor to begin with. Raises as ``one_run``."""
    with one_run(client) as nodes:
        for node in nodes:
            there = {"target_nodes": node} if node else {}
            cursor = first
            while True:
                answer = client.scan(cursor, match=pattern, count=count, **there)
                cursor = next(iter(answer[0].values())) if node else answer[0]
                yield answer[1]
                if cursor == 0:
                    break


class NoChanges(Exception):
    """No changes are kept where they were looked for, or not those that follow the one that is known."""


class Moving(Exception):
    """Keys are being renamed, or were while they were read: the same again, later."""


class Reads:
    """The reads of one sink's views.

    Args:
        client: the connection.
        cluster: whether it leads to a cluster, where values never move.
    """

    def __init__(self, client: Client, cluster: bool) -> None:
        self._client, self._cluster = client, cluster

    def prefix(self, where: Names) -> bytes:
        """What this generation's value keys begin with now.

        Raises:
            Moving: they are being renamed.
        """
        return where.own if self._cluster else _prefix(where, self._client.hmget(where.pointer, FIELDS))

    def get(self, where: Names, keys: Sequence[str]) -> dict[str, Held]:
        """What is there under these keys.

        Raises:
            Moving: values are being renamed.
        """
        found: dict[str, Held] = {}
        size = PageSize(SCAN_COUNT)
        for part in parts(keys, size):
            page = self._settled(where, [names.encoded(key) for key in part])
            size.read([len(held.document) for held in page] or [0])  # who are not there are not asked for one by one
            found.update({held.key: held for held in page})
        return found

    def _settled(self, where: Names, suffixes: Sequence[bytes]) -> list[Held]:
        for _ in range(_TRIES):
            prefix = self.prefix(where)
            try:
                return self._page(where, prefix, suffixes)
            except Moving:
                continue
        raise Moving

    def versions(self, where: Names, keys: Sequence[str]) -> dict[str, int]:
        """Versions by key, also of deleted documents; what is no number is left out."""
        found: dict[str, int] = {}
        for start in range(0, len(keys), SCAN_COUNT):
            part = keys[start : start + SCAN_COUNT]
            pipe = self._client.pipeline(transaction=False)
            for key in part:
                pipe.get(where.version(names.encoded(key)))
            for key, version in zip(part, pipe.execute(raise_on_error=False), strict=True):
                if isinstance(version, Exception) and not str(version).startswith("WRONGTYPE"):
                    raise version
                if isinstance(version, bytes) and _VERSION.fullmatch(version):
                    found[key] = int(version)
        return found

    def expired(self, where: Names, keys: Sequence[str], fence_seconds: int, *, unversioned: bool) -> set[str]:
        """Those of some keys whose value may have expired: its version is left, for the fence, or gone as well.

        Raises:
            Moving: values are being renamed, or were meanwhile.
        """
        found, prefix = set[str](), self.prefix(where)
        for start in range(0, len(keys), SCAN_COUNT):
            part = keys[start : start + SCAN_COUNT]
            pipe = self._client.pipeline(transaction=False)
            for suffix in map(names.encoded, part):
                pipe.pttl(where.version(suffix))  # first: one that is written in between is there then
                pipe.exists(prefix + suffix)
            try:
                answers = pipe.execute()
            except redis.exceptions.NoPermissionError:
                return set()  # then nothing shows it
            for key, left, there in zip(part, answers[::2], answers[1::2], strict=True):
                if not there and (0 <= left <= (fence_seconds + LEAST_LEFT) * 1000 or (left == -2 and unversioned)):
                    found.add(key)
        if self.prefix(where) != prefix:
            raise Moving
        return found

    def scan(self, where: Names) -> Iterator[Held]:
        """Everything; a key of that name which is no string is there as well, without a document.

        Raises:
            Moving: values were renamed meanwhile.
        """
        prefix, size = self.prefix(where), PageSize(SCAN_COUNT)
        for suffixes in self._keys(prefix):
            yield from self._paged(where, prefix, suffixes, size)
        if self.prefix(where) != prefix:
            raise Moving

    def pages(self, where: Names) -> Iterator[tuple[bytes, list[Held]]]:
        """Everything, page by page, each with the id of the newest change that is in it: read at the same moment. Not
        for a cluster.

        Raises:
            Moving: values were renamed meanwhile.
            NoChanges: none are kept, or not any more.
        """
        prefix, size = self.prefix(where), PageSize(SCAN_COUNT)
        for suffixes in self._keys(prefix):
            for part in parts(suffixes, size):
                newest: list[Any] = []
                page = self._page(where, prefix, part, newest)
                size.read(len(held.document) for held in page)
                yield (newest[0] if newest else _no_changes(where)), page
        if self.prefix(where) != prefix:
            raise Moving

    def look(self, where: Names, keys: Sequence[str]) -> tuple[bytes, dict[str, Held]]:
        """What is there under these keys, with the id of the newest change that is in it. Not for a cluster.

        Raises:
            Moving: values are being renamed.
            NoChanges: none are kept, or not any more.
        """
        newest: list[Any] = []
        page = self._page(where, self.prefix(where), [names.encoded(key) for key in keys], newest)
        return (newest[0] if newest else _no_changes(where)), {held.key: held for held in page}

    def sample(self, where: Names, count: int, seed: int) -> Iterator[Held]:
        """Up to ``count`` of them, from a place chosen by ``seed`` on: the server keeps keys in the order of a hash.

        Raises:
            Moving: values were renamed meanwhile.
        """
        prefix, taken, size = self.prefix(where), set[bytes](), PageSize(SCAN_COUNT)
        start = 0 if self._cluster else random.Random(seed).getrandbits(48)  # noqa: S311
        for first in (start, 0):
            for page in self._keys(prefix, first):
                fresh = [suffix for suffix in dict.fromkeys(page) if suffix not in taken][: count - len(taken)]
                taken.update(fresh)
                yield from self._paged(where, prefix, fresh, size)
                if len(taken) >= count:
                    return

    def below(self, prefixes: Sequence[bytes]) -> Iterator[bytes]:
        """Those of some prefixes that keys begin with, each once; at most one pass over all keys."""
        left, base = tuple(prefixes), names.common(prefixes) if prefixes else b""
        for page in self._keys(base, count=PASS_COUNT) if left else ():
            for key in (base + suffix for suffix in page):
                if key.startswith(left):
                    found = next(prefix for prefix in left if key.startswith(prefix))
                    left = tuple(prefix for prefix in left if prefix != found)
                    yield found
                    if not left:
                        return

    def _keys(self, prefix: bytes, first: int = 0, count: int = SCAN_COUNT) -> Iterator[list[bytes]]:
        """Encoded ids below a prefix, page by page; ``first`` is the cursor to begin with. Raises as ``one_run``."""
        skip = len(prefix)
        for page in _pages(self._client, names.pattern(prefix), count, first):
            yield [key[skip:] for key in page]

    def _paged(self, where: Names, prefix: bytes, suffixes: Sequence[bytes], size: PageSize) -> Iterator[Held]:
        """What is there under keys that were found together, of which so many are read at once as ``size`` says."""
        for part in parts(suffixes, size):
            page = self._page(where, prefix, part)
            size.read(len(held.document) for held in page)
            yield from page

    def _page(
        self, where: Names, prefix: bytes, suffixes: Sequence[bytes], newest: list[Any] | None = None
    ) -> list[Held]:
        if not suffixes:
            return []
        pipe = self._client.pipeline(transaction=not self._cluster)
        if not self._cluster:
            pipe.hmget(where.pointer, FIELDS)
        for suffix in suffixes:
            pipe.get(prefix + suffix)
            pipe.get(where.version(suffix))
        if newest is not None:
            pipe.xrevrange(where.changes, count=1)
        answers = pipe.execute(raise_on_error=False)
        if newest is not None:
            newest += [found[0] for found in raised(answers.pop())]
        if not self._cluster and _prefix(where, answers.pop(0)) != prefix:
            raise Moving
        return [
            _held(names.id_of(suffix), document, version)
            for suffix, document, version in zip(suffixes, answers[::2], answers[1::2], strict=True)
            if document is not None  # a version without a value is a fence
        ]


def _held(key: str, document: Any, version: Any) -> Held:
    """What stands there, whoever wrote it: a value of another type is no document, a version may be anything."""
    for answer in (document, version):
        if isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
            raise answer
    if isinstance(version, Exception) or not _VERSION.fullmatch(version or b"0"):
        # Whatever the value is: no later change could be told from an older one.
        return Held(key, UNREADABLE, b"")
    return Held(key, int(version or 0), b"" if isinstance(document, Exception) else document)


def raised(answer: Any) -> Any:
    """An answer of a pipeline that is no error."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _no_changes(where: Names) -> bytes:
    raise NoChanges(f"no changes of view {where.view} are kept")


def _prefix(where: Names, fields: Sequence[bytes | None]) -> bytes:
    if isinstance(fields, Exception):
        raise fields
    plain = Pointer.of(fields).is_plain(where.generation)
    if plain is None:
        raise Moving
    return where.plain if plain else where.hidden
