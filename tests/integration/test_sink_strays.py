"""What somebody else has put into a sink: seen by every read, never an error, and it can be removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from elasticsearch import Elasticsearch

from cdc.errors import Fenced
from cdc.keys import is_stray, shown
from sinks.contract import MAX_VERSION, STALE, UNREADABLE, WRITTEN, Item, Sink
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, subject_on

pytestmark = pytest.mark.stack

# How a value is spoilt in Redis -> what is seen of it.
VALUES: dict[str, tuple[Callable[[redis.Redis, str], object], bytes]] = {
    "half": (lambda client, key: client.set(key, b'{"aid":'), b'{"aid":'),
    "no text": (lambda client, key: client.set(key, b"\xff\xfe"), b"\xff\xfe"),
    "empty": (lambda client, key: client.set(key, b""), b""),
    "list": (lambda client, key: client.rpush(key, "x"), b""),
    "hash": (lambda client, key: client.hset(key, "a", "x"), b""),
    "set": (lambda client, key: client.sadd(key, "x"), b""),
    "sorted": (lambda client, key: client.zadd(key, {"x": 1}), b""),
    "stream": (lambda client, key: client.xadd(key, {"a": "x"}), b""),
    "bits": (lambda client, key: client.setbit(key, 7, 1), b"\x01"),
}
# Names below the prefix that no id is written as.
NAMES = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"100%", b"%41", b"{x}", b"a}", b"%7b", b"\xffa%7B")
# How a version is spoilt.
MARKS: tuple[Callable[[redis.Redis, str], object], ...] = (
    lambda client, key: client.set(key, "abc"),
    lambda client, key: client.set(key, "9" * 40),
    lambda client, key: client.set(key, "-5"),
    lambda client, key: client.rpush(key, "x"),
)


@pytest.fixture
def subject() -> Iterator[Subject]:
    with subject_on(servers(), "redis") as made:
        yield made


@pytest.fixture
def client(subject: Subject) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(subject.url) as made:
        yield made


@pytest.fixture
def sink(subject: Subject) -> Sink:
    made = subject.open()
    made.setup()
    return made


def test_a_spoilt_value_is_seen_and_replaced(subject: Subject, client: redis.Redis, sink: Sink) -> None:
    sink.write(VIEW, [Item(name, 5, doc(1)) for name in (*VALUES, "well")])
    for name, (spoil, _) in VALUES.items():
        client.delete(f"{subject.name}:{VIEW}:{name}")
        spoil(client, f"{subject.name}:{VIEW}:{name}")
    wanted = {name: (5, seen) for name, (_, seen) in VALUES.items()} | {"well": (5, doc(1))}
    assert held(sink) == wanted
    assert {key: (one.version, one.document) for key, one in sink.get(VIEW, list(wanted)).items()} == wanted
    assert {one.key for one in sink.sample(VIEW, 100, 1)} == set(wanted)
    assert sink.write(VIEW, [Item(name, 5, doc(2)) for name in VALUES]) == [WRITTEN] * len(VALUES)
    assert held(sink) == {name: (5, doc(2)) for name in VALUES} | {"well": (5, doc(1))}


def test_every_name_below_the_prefix_leads_back_to_itself(subject: Subject, client: redis.Redis, sink: Sink) -> None:
    ours = ["a", "100%", "{x}", "%41", "é|%7B", "a}"]
    sink.write(VIEW, [Item(key, 5, doc(1)) for key in ours])
    prefix = f"{subject.name}:{VIEW}:".encode()
    for name in NAMES:
        client.set(prefix + name, b"{}")
    found = held(sink)
    strays = [key for key in found if is_stray(key)]
    assert sorted(key for key in found if not is_stray(key)) == sorted(ours)
    assert len(strays) == len(NAMES) and len(set(map(shown, strays))) == len(NAMES)
    assert all(shown(key).isprintable() and shown(key).encode() for key in strays)
    assert set(sink.get(VIEW, strays)) == set(strays)
    assert sink.write(VIEW, [Item(key, 0, None) for key in strays]) == [WRITTEN] * len(strays)
    assert set(held(sink)) == set(ours) and client.exists(*(prefix + name for name in NAMES)) == 0


def test_a_spoilt_version_is_no_version_and_can_be_forgotten(subject: Subject, client: redis.Redis, sink: Sink) -> None:
    keys = [str(number) for number in range(len(MARKS))]
    sink.write(VIEW, [Item(key, 5, doc(1)) for key in [*keys, "well"]])
    for key, spoil in zip(keys, MARKS, strict=True):
        mark = f"hw:v:{{{subject.name}:{VIEW}:{key}}}"
        client.delete(mark)
        spoil(client, mark)
    assert held(sink) == dict.fromkeys(keys, (UNREADABLE, b"")) | {"well": (5, doc(1))}
    sink.forget(VIEW, keys)
    assert set(held(sink)) == {"well"}
    assert sink.write(VIEW, [Item(key, 3, doc(2)) for key in keys]) == [WRITTEN] * len(keys)


@pytest.mark.parametrize("kind", ["redis", "elasticsearch"])
def test_what_stands_at_the_highest_version_of_all_can_be_forgotten(kind: str) -> None:
    with subject_on(servers(), kind) as subject:
        sink = subject.open()
        sink.setup()
        sink.write(VIEW, [Item("top", MAX_VERSION, doc(1)), Item("well", 5, doc(1))])
        assert sink.write(VIEW, [Item("top", 7, doc(2))]) == [STALE]
        sink.forget(VIEW, ["top", "never there"])
        assert set(sink.get(VIEW, ["top", "well"])) == {"well"}
        assert sink.write(VIEW, [Item("top", 7, doc(2)), Item("well", 4, doc(2))]) == [WRITTEN, STALE]
        assert sink.get(VIEW, ["top"])["top"].version == 7


def test_who_has_lost_the_lease_makes_nothing_forgotten(subject: Subject) -> None:
    old, new = subject.open(token=1), subject.open(token=2)
    old.setup()
    new.setup()
    new.write(VIEW, [Item("a", 5, doc(1))])
    with pytest.raises(Fenced):
        old.forget(VIEW, ["a"])
    assert held(new) == {"a": (5, doc(1))}


def test_odd_documents_of_elasticsearch_are_read_as_they_stand() -> None:
    with subject_on(servers(), "elasticsearch") as subject:
        sink = subject.open()
        sink.setup()
        index = f"{subject.name}_g1"
        odd = {"empty": b"{}", "far": b'{"x":1e999}', "deep": b'{"x":' + b"[" * 30 + b"]" * 30 + b"}"}
        with Elasticsearch(subject.url, request_timeout=60) as client:
            for key, body in odd.items():
                path, headers = f"/{index}/_create/{key}?refresh=true", {"content-type": "application/json"}
                client.perform_request("PUT", path, headers={**headers, "accept": "application/json"}, body=body)
        seen = held(sink)
        assert set(seen) == set(odd) and all(version == 1 for version, _ in seen.values())
        assert set(sink.get(VIEW, list(odd))) == set(odd)
