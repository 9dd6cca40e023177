"""What the sinks' tests share: sinks on real servers under names of their own, cleaned up afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import redis
from elasticsearch import Elasticsearch

from cdc.keyspaces import CLAIMS
from deploy.local.services.registry import SERVICES
from sinks.contract import UNVERSIONED, Item, Sink
from sinks.elasticsearch import ElasticsearchSink
from sinks.elasticsearch.opensearch import unsigned
from sinks.factory import open_sink
from tests.support.servers import Servers, require

VIEW = "thing"
# Search servers that one sink writes to: by the names of the local stack's.
SEARCH = ("elasticsearch", "elasticsearch-9", "opensearch")
PROPERTIES: dict[str, Any] = {"n": {"type": "long"}, "t": {"type": "text"}}
# A test that waits for a server longer than this has failed.
GIVE_UP_SECONDS = 90.0


@dataclass
class Subject:
    """One kind of sink on one server (by the server's name), with a name space of its own.

    ``open`` gives a new sink on the same documents each time; ``waits`` collects what ``on_wait`` was told.
    """

    kind: str
    url: str
    name: str = field(default_factory=lambda: f"hwtest-{uuid.uuid4().hex[:10]}")
    waits: list[str] = field(default_factory=list)
    _open: list[Sink] = field(default_factory=list)

    @property
    def is_search(self) -> bool:
        return self.kind in SEARCH

    @property
    def type(self) -> str:
        """As the pipeline file has it."""
        return self.kind.removesuffix("-9")

    def config(self, generation: int = 1, **over: Any) -> dict[str, Any]:
        target: dict[str, Any] = {}
        own: dict[str, Any] = {"key_prefix": f"{self.name}:"}
        if self.is_search:
            target, own = {"index": self.name, "properties": PROPERTIES}, {}
        base = {
            "type": self.type,
            "name": "tested",
            "url": self.url,
            "targets": {VIEW: target | {"generation": generation}},
            "give_up_seconds": GIVE_UP_SECONDS,
        }
        return base | own | over

    def open(self, generation: int = 1, **over: Any) -> Sink:
        sink = open_sink(self.config(generation, **over), self.waits.append)
        self._open.append(sink)
        return sink

    def via(self, port: int) -> str:
        """This server's url through another local port."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"127.0.0.1:{port}").geturl()

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    def clean(self) -> None:
        for sink in self._open:
            sink.close()
        if self.is_search:
            with client_of(self) as client:
                names = f"{self.name},{self.name}_g*"
                found = client.indices.get(index=names, ignore_unavailable=True, expand_wildcards="all").body
                for index in found:
                    client.indices.delete(index=index)
        else:
            with redis.Redis.from_url(self.url) as client:
                for pattern in (f"{self.name}:*", f"hw:v:{{{self.name}:*"):
                    for key in client.scan_iter(match=pattern, count=1000):
                        client.delete(key)
                for stem in client.hkeys(CLAIMS):
                    if stem.startswith(self.name.encode()):
                        client.hdel(CLAIMS, stem)


def client_of(subject: Subject) -> Elasticsearch:
    """A search server, asked directly."""
    if subject.type == "opensearch":
        return unsigned(subject.url)
    return Elasticsearch(subject.url, request_timeout=60)


def service_of(kind: str) -> str:
    """The server that a kind of sink writes to."""
    return kind if kind in SEARCH else "redis-cache"


def address_of(stack: Servers, kind: str) -> str:
    return stack.endpoints.redis_cache_url if kind == "redis" else SERVICES[kind].address(stack.site)


@contextmanager
def subject_on(stack: Servers, kind: str) -> Iterator[Subject]:
    require(stack, service_of(kind))
    stack.up([service_of(kind)])
    subject = Subject(kind, address_of(stack, kind))
    try:
        yield subject
    finally:
        subject.clean()


def opened(subject: Subject, **over: Any) -> ElasticsearchSink:
    """An Elasticsearch sink, as what it is."""
    sink = subject.open(**over)
    assert isinstance(sink, ElasticsearchSink)
    return sink


def doc(n: int, text: str = "x") -> bytes:
    return b'{"n":%d,"t":"%s"}' % (n, text.encode())


def items(count: int, version: int, make: Callable[[int], bytes] = doc) -> list[Item]:
    return [Item(str(number), version, make(number)) for number in range(count)]


def held(sink: Sink, view: str = VIEW) -> dict[str, tuple[int, bytes]]:
    """Everything a sink holds of a view, by scan."""
    return {one.key: (one.version, one.document) for one in sink.scan(view)}


# What a target holds under a key: the version that it remembers, and the document (None: deleted).
State = dict[str, tuple[int, bytes | None]]


def one_by_one(state: State, items: Iterable[Item]) -> State:
    """What must hold after items were written, each by a call of its own: the contract in six lines."""
    after = dict(state)
    for item in items:
        known = after.get(item.key)
        if item.version == UNVERSIONED:
            if known is not None:
                after[item.key] = (known[0], None)
        elif known is None or item.version >= known[0]:
            after[item.key] = (item.version, item.document)
    return after
