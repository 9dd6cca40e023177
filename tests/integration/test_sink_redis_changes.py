"""What a Redis sink tells of its changes: folded they are its documents, each change once, whatever is repeated."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.errors import ConfigError, SinkUnavailable
from sinks.contract import UNVERSIONED, Item
from sinks.redis import RedisSink
from sinks.redis.read import NoChanges
from sinks.redis.stream.tail import Entry, Standing, Tail
from tests.support.redis_server import redis_servers
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, subject_on

pytestmark = pytest.mark.stack

KEYS = ("a", "b|c", "{d}%", "")
ITEM = st.builds(
    lambda key, version, n: Item(key, version, None if n is None else doc(n)),
    st.sampled_from(KEYS),
    st.integers(0, 9) | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1]),
    st.none() | st.integers(0, 3),
)
BATCH = st.lists(
    ITEM | st.builds(lambda key: Item(key, UNVERSIONED, None), st.sampled_from(KEYS)),
    min_size=1,
    max_size=4,
    unique_by=lambda item: item.key,
)


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    with subject_on(servers(), "redis") as made:
        yield made


@pytest.fixture
def client(subject: Subject) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(subject.url) as made:
        for found in made.scan_iter(match=f"*{subject.name}*", count=1000):
            made.delete(found)
        yield made


def begun(subject: Subject, generation: int = 1, keep: int = 1_000, **over: object) -> RedisSink:
    sink = subject.open(generation, keep=keep, **over)
    assert isinstance(sink, RedisSink)
    sink.setup()
    return sink


def tail_of(subject: Subject, client: redis.Redis) -> tuple[Tail, Standing]:
    tail = Tail(client, f"{subject.name}:", VIEW)
    return tail, tail.standing()


def everything(tail: Tail, standing: Standing, first: bytes, each: int = 2) -> list[Entry]:
    """By pages, as a reader that falls behind takes them."""
    found: list[Entry] = []
    while page := tail.after(standing, found[-1].place if found else first, each):
        found += page
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(BATCH, min_size=1, max_size=10), data=st.data())
def test_changes_folded_are_the_documents_and_none_is_told_twice(
    subject: Subject, client: redis.Redis, batches: list[list[Item]], data: st.DataObject
) -> None:
    """Batches of a log, any of them again after any other (a crash, two processes), in pipelines of one and of many."""
    for found in client.scan_iter(match=f"*{subject.name}*", count=1000):
        client.delete(found)
    sinks = [begun(subject), begun(subject, pipeline_count=1)]
    tail, standing = tail_of(subject, client)
    first = tail.newest(standing)
    order = [*range(len(batches)), *data.draw(st.lists(st.integers(0, len(batches) - 1), max_size=8))]
    for place in data.draw(st.permutations(order)):
        data.draw(st.sampled_from(sinks)).write(VIEW, batches[place])
    if data.draw(st.booleans()):
        sinks[0].forget(VIEW, [data.draw(st.sampled_from(KEYS))])
    told = everything(tail, standing, first)
    state: dict[str, bytes] = {}
    versions: dict[str, int] = {}
    for entry in told:
        assert entry.before == state.get(entry.key), "each follows from the one before"
        assert entry.before != entry.after, "nothing is told that changes nothing"
        assert entry.version >= versions.get(entry.key, 0), "in the order of versions"
        versions[entry.key] = entry.version
        state |= {entry.key: entry.after} if entry.after is not None else {}
        if entry.after is None:
            del state[entry.key]
    assert state == {key: document for key, (_, document) in held(sinks[0]).items()}
    for place, entry in enumerate(told):  # and from each of them on, exactly the rest
        assert everything(tail, standing, entry.place) == told[place + 1 :]


def test_a_batch_again_adds_nothing(subject: Subject, client: redis.Redis) -> None:
    sink = begun(subject)
    tail, standing = tail_of(subject, client)
    first = tail.newest(standing)
    batch = [Item(f"k{n}", 5, doc(n)) for n in range(40)]
    for _ in range(3):
        sink.write(VIEW, batch)
    assert len(tail.after(standing, first, 100)) == 40
    sink.write(VIEW, [Item("k1", 9, doc(1))])  # newer, and the same
    assert len(tail.after(standing, first, 100)) == 40
    assert held(sink)["k1"] == (9, doc(1))


def number(place: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in place.split(b"-"))


def written_until(ended: threading.Event, sink: RedisSink) -> None:
    """Changes, deletes and new ones, a few at a time."""
    chance = random.Random(1)
    for version in itertools.count(2):
        keys = {f"k{chance.randrange(7_000)}" for _ in range(50)}
        sink.write(VIEW, [Item(key, version, None if chance.random() < 0.2 else doc(version)) for key in keys])
        if ended.is_set():
            return


def test_a_page_of_documents_has_exactly_the_changes_up_to_its_place(subject: Subject, client: redis.Redis) -> None:
    sink = begun(subject, keep=1_000_000)
    tail, standing = tail_of(subject, client)
    sink.write(VIEW, [Item(f"k{n}", 1, doc(n)) for n in range(6_000)])
    place, state, ended = tail.newest(standing), dict[str, bytes](), threading.Event()
    writer = threading.Thread(target=written_until, args=(ended, sink))
    writer.start()

    def fold(until: tuple[int, ...] | None) -> None:
        for entry in everything(tail, standing, place, 1_000):
            if until is None or number(entry.place) <= until:
                state.pop(entry.key, None)
                state.update({entry.key: entry.after} if entry.after else {})

    for at, documents in tail.pages(standing):
        fold(number(at))
        place = at
        state |= {one.key: one.document for one in documents if isinstance(one.document, bytes)}
    ended.set()
    writer.join()
    fold(None)
    assert state == {key: document for key, (_, document) in held(sink).items()}


def test_a_place_that_is_gone_is_said_to_be(subject: Subject, client: redis.Redis) -> None:
    sink = begun(subject, keep=100)
    tail, standing = tail_of(subject, client)
    first = tail.newest(standing)
    for version in range(30):
        sink.write(VIEW, [Item(f"k{n}", version, doc(version)) for n in range(50)])
    assert int(client.xlen(f"{subject.name}:{VIEW}@1@changes")) < 300
    with pytest.raises(NoChanges):
        tail.after(standing, first, 10)
    newest = tail.newest(standing)
    assert tail.after(standing, newest, 10) == []
    client.delete(f"{subject.name}:{VIEW}@1@changes")  # evicted, say; then one more
    sink.write(VIEW, [Item("x", 99, doc(1))])
    with pytest.raises(NoChanges):
        tail.after(standing, newest, 10)


def test_each_stream_has_a_mark_of_its_own(subject: Subject, client: redis.Redis) -> None:
    sink = begun(subject)
    tail, standing = tail_of(subject, client)
    begun(subject, keep=500)  # another start: the same one
    assert tail.standing() == standing
    sink.write(VIEW, [Item("x", 1, doc(1))])
    sink.empty(VIEW)
    emptied = tail.standing()
    assert emptied.mark not in (None, standing.mark)
    with pytest.raises(NoChanges):
        tail.after(standing, tail.newest(emptied), 1)
    begun(subject, keep=0)  # the file says so no more
    assert tail.standing().mark is None
    assert not client.exists(f"{subject.name}:{VIEW}@1@changes")
    begun(subject)
    assert tail.standing().mark not in (None, standing.mark, emptied.mark)


def test_a_repair_that_knows_nothing_of_changes_tells_them_too(subject: Subject, client: redis.Redis) -> None:
    begun(subject)
    tail, standing = tail_of(subject, client)
    first = tail.newest(standing)
    other = subject.open()  # of a file that says nothing of changes, and not set up
    other.write(VIEW, [Item("x", 1, doc(1))])
    other.forget(VIEW, ["x"])
    assert [(entry.before, entry.after) for entry in tail.after(standing, first, 9)] == [(None, doc(1)), (doc(1), None)]


def test_promotion_leads_to_the_other_generations_changes(subject: Subject, client: redis.Redis) -> None:
    first, second = begun(subject), begun(subject, 2)
    tail, standing = tail_of(subject, client)
    first.write(VIEW, [Item("x", 1, doc(1))])
    second.write(VIEW, [Item("x", 1, doc(2))])
    at = tail.newest(standing)
    second.promote(VIEW, 1)
    promoted = tail.standing()
    assert (standing.generation, promoted.generation) == (1, 2) and promoted.mark != standing.mark
    with pytest.raises(NoChanges):
        tail.after(standing, at, 1)
    at = tail.newest(promoted)
    second.write(VIEW, [Item("x", 2, doc(3))])  # its values lie at the plain names now
    first.write(VIEW, [Item("x", 2, doc(4))])
    [told] = tail.after(promoted, at, 9)
    assert (told.key, told.before, told.after) == ("x", doc(2), doc(3))
    first.drop(VIEW)
    assert not client.exists(f"{subject.name}:{VIEW}@1@changes") and client.exists(f"{subject.name}:{VIEW}@2@changes")
    second.drop(VIEW)
    assert not list(client.scan_iter(match=f"*{subject.name}*", count=1000))


def test_they_are_no_documents_but_count_as_what_is_held(subject: Subject, client: redis.Redis) -> None:
    sink = begun(subject)
    sink.write(VIEW, [Item("x", 1, doc(1, "y" * 10_000))])
    before = sink.size(VIEW)
    sink.write(VIEW, [Item("x", 2, doc(2, "z" * 10_000))])
    assert list(held(sink)) == ["x"] and sink.size(VIEW) > before + 15_000


def test_no_memory_changes_neither_document_nor_stream(subject: Subject, tmp_path: Path) -> None:
    with redis_servers(tmp_path) as start:
        own = Subject("redis", start("--maxmemory-policy", "noeviction"))
        sink = begun(own, give_up_seconds=1.0)
        with redis.Redis.from_url(own.url) as client:
            tail, standing = tail_of(own, client)
            first = tail.newest(standing)
            sink.write(VIEW, [Item("x", 1, doc(1))])
            client.config_set("maxmemory", "1")
            with pytest.raises(SinkUnavailable, match=r"OOM|maxmemory"):
                sink.write(VIEW, [Item("x", 2, doc(2)), Item("y", 2, doc(2))])
            client.config_set("maxmemory", "0")
            assert held(sink) == {"x": (1, doc(1))} and len(tail.after(standing, first, 9)) == 1
            sink.close()


def test_a_server_without_memory_takes_deletes_that_are_told(subject: Subject, tmp_path: Path) -> None:
    """Nothing else frees memory; and behind a delete that is held all others are."""
    with redis_servers(tmp_path) as start:
        own = Subject("redis", start("--maxmemory-policy", "noeviction"))
        sink = begun(own, give_up_seconds=1.0)
        with redis.Redis.from_url(own.url) as client:
            tail, standing = tail_of(own, client)
            sink.write(VIEW, [Item(key, 1, doc(1)) for key in "xyz"])
            first = tail.newest(standing)
            client.config_set("maxmemory", "1")
            deletes = [Item("x", 2, None), Item("y", UNVERSIONED, None)]
            assert [one.outcome.value for one in sink.write(VIEW, deletes)] == ["written"] * 2
            sink.forget(VIEW, ["z"])
            with pytest.raises(SinkUnavailable, match=r"OOM|maxmemory"):
                sink.write(VIEW, [Item("x", 3, doc(3))])
            client.config_set("maxmemory", "0")  # nor does it take a MULTI, with which changes are read
            assert held(sink) == {}
            assert [(entry.key, entry.after) for entry in tail.after(standing, first, 9)] == [
                (key, None) for key in "xyz"
            ]
            sink.close()


def test_a_cluster_or_a_ttl_keeps_none(subject: Subject) -> None:
    for over in ({"cluster": True}, {"ttl_seconds": 9}):
        with pytest.raises(ConfigError, match="not kept"):
            subject.open(keep=10, **over)
