"""Promotion under readers: a client that reads in a loop sees no failure and no wrong document."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from elasticsearch import Elasticsearch
from headwater_client.cache import FOLLOW, Cache

from sinks.contract import WRITTEN, Item, Sink
from sinks.elasticsearch.sink import ElasticsearchSink
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, subject_on

pytestmark = pytest.mark.stack

COUNT = 3000
# What each generation holds: 0 to 2999 in the old, 500 to 3499 in the new one.
OLD, NEW = range(COUNT), range(500, COUNT + 500)

Read = Callable[[str], bytes | None]


class Loop:
    """A reader in a thread: what it saw, and what went wrong."""

    def __init__(self, read: Callable[[int], list[bytes | None]]) -> None:
        self.failed: list[BaseException] = []
        self.answers: list[tuple[float, int, list[bytes | None]]] = []
        self._read, self._over = read, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._over.is_set():
            number = turn * 397 % (COUNT + 500)
            turn += 1
            try:
                started = time.monotonic()
                self.answers.append((started, number, self._read(number)))
            except Exception as error:
                self.failed.append(error)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def texts(number: int) -> tuple[bytes | None, bytes | None]:
    """What the old and the new generation say about a key; None: nothing."""
    return doc(number, "old") if number in OLD else None, doc(number, "new") if number in NEW else None


def numbers(first: int) -> list[int]:
    """Keys of one read: from both ends and the middle, so that they are renamed at different times."""
    return [(first + n * 700) % (COUNT + 500) for n in range(5)]


@pytest.fixture(params=["elasticsearch", "redis"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with subject_on(servers(), request.param) as made:
        yield made


def filled(subject: Subject) -> tuple[Sink, Sink]:
    sinks = subject.open(), subject.open(generation=2)
    for sink, keys, text in zip(sinks, (OLD, NEW), ("old", "new"), strict=True):
        sink.setup()
        assert set(sink.write(VIEW, [Item(str(n), 5, doc(n, text)) for n in keys])) == {WRITTEN}
        if isinstance(sink, ElasticsearchSink):
            sink.refresh(VIEW)  # a search right after the load finds nothing: that is not what promotions are about
    return sinks


@pytest.fixture
def ways(subject: Subject) -> Iterator[dict[str, Callable[[int], list[bytes | None]]]]:
    """How clients read: name -> a function from a number to some documents."""
    if subject.kind == "redis":
        yield from redis_ways(subject)
    else:
        yield from elasticsearch_ways(subject)


def redis_ways(subject: Subject) -> Iterator[dict[str, Callable[[int], list[bytes | None]]]]:
    name = f"{subject.name}:{VIEW}"
    with redis.Redis.from_url(subject.url) as client:
        cache = Cache(client, VIEW, key_prefix=f"{subject.name}:")

        def many(number: int) -> list[bytes | None]:
            found = cache.get_many([str(n) for n in numbers(number)])
            return [found.get(str(n)) for n in numbers(number)]

        yield {
            "plain": lambda number: [client.get(f"{name}:{n}") for n in numbers(number)],
            "reader": many,
            "script": lambda number: client.eval(FOLLOW, 1, f"{name}@live", name, *numbers(number)),
        }


def elasticsearch_ways(subject: Subject) -> Iterator[dict[str, Callable[[int], list[bytes | None]]]]:
    with Elasticsearch(subject.url, request_timeout=60) as client:

        def source(found: Any) -> bytes | None:
            return doc(found["_source"]["n"], found["_source"]["t"]) if found else None

        def by_id(number: int) -> list[bytes | None]:
            found = client.options(ignore_status=404).get(index=subject.name, id=str(number)).body
            assert "error" not in found
            return [source(found if found["found"] else None)]

        def search(number: int) -> list[bytes | None]:
            hits = client.search(
                index=subject.name, query={"terms": {"n": numbers(number)}}, allow_partial_search_results=False
            ).body["hits"]["hits"]
            by_key = {int(hit["_id"]): source(hit) for hit in hits}
            return [by_key.get(n) for n in numbers(number)]

        yield {"get": by_id, "search": search}


def test_readers_see_no_failure_and_no_wrong_document(subject: Subject, ways: dict[str, Any]) -> None:
    first, second = filled(subject)
    loops = {name: Loop(read) for name, read in ways.items()}
    writers = {
        "old": Loop(lambda number: [write_again(first, "old", OLD, number)]),
        "new": Loop(lambda number: [write_again(second, "new", NEW, number)]),
    }
    switched: list[tuple[float, float]] = []
    try:
        for promoted, old in ((second, 1), (first, 2), (second, 1)):
            time.sleep(0.5)
            began = time.monotonic()
            promoted.promote(VIEW, old)
            switched.append((began, time.monotonic()))
        time.sleep(0.5)
    finally:
        for loop in (*loops.values(), *writers.values()):
            loop.stop()
    for name, loop in {**loops, **writers}.items():
        assert loop.failed == [], name
        assert len(loop.answers) > 20, name
    for name, loop in loops.items():
        for started, number, answers in loop.answers:
            keys = numbers(number) if len(answers) > 1 else [number]
            seen = {generations_of(n, answer) for n, answer in zip(keys, answers, strict=True)}
            assert frozenset() not in seen, f"{name}: {number}: {answers}"
            if name in ("reader", "script", "search"):
                assert frozenset.intersection(*seen), f"{name}: two generations in one answer: {answers}"
            if started > switched[-1][1]:
                assert all("new" in one for one in seen), f"{name}: the old one after the promotion"
    assert first.living(VIEW) == 2
    assert held(second) == {str(n): (5, doc(n, "new")) for n in NEW}


def write_again(sink: Sink, text: str, keys: range, number: int) -> None:
    """Writers go on while readers read: the same contents again."""
    batch = [Item(str(n), 5, doc(n, text)) for n in numbers(number) if n in keys]
    assert sink.write(VIEW, batch) == [WRITTEN] * len(batch)


def generations_of(number: int, answer: bytes | None) -> frozenset[str]:
    """Which generations would have answered so; none: the answer is wrong."""
    return frozenset(name for name, text in zip(("old", "new"), texts(number), strict=True) if text == answer)
