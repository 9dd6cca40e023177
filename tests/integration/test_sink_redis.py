"""What only the Redis sink does: plain values, expiry, scripts, memory limits, cluster."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from headwater_client.cache import Cache
from redis.cluster import key_slot

from cdc.errors import Fenced, SinkRefused, SinkUnavailable
from sinks.contract import STALE, UNVERSIONED, WRITTEN, Item, Outcome
from sinks.redis import RedisSink, names
from tests.support.redis_server import free_port, redis_servers
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, items, subject_on

pytestmark = pytest.mark.stack


@pytest.fixture
def subject() -> Iterator[Subject]:
    with subject_on(servers(), "redis") as made:
        yield made


@pytest.fixture
def client(subject: Subject) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(subject.url) as made:
        yield made


Start = Callable[..., Subject]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Redis servers of the test's own; ``start("--maxmemory", "3mb")`` gives a subject on one."""
    subjects: list[Subject] = []

    with redis_servers(tmp_path) as server:

        def run(*options: str, port: int = 0) -> Subject:
            subjects.append(Subject("redis", server(*options, port=port)))
            return subjects[-1]

        yield run
        for made in subjects:
            for sink in made._open:
                sink.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


def opened(subject: Subject, generation: int = 1, **over: Any) -> RedisSink:
    sink = subject.open(generation, **over)
    assert isinstance(sink, RedisSink)
    return sink


def keys_of(subject: Subject, identity: str) -> tuple[bytes, bytes]:
    value = names.prefix_of(f"{subject.name}:", VIEW) + names.encoded(identity)
    return value, names.version_key(value)


def test_a_value_is_readable_by_plain_get(subject: Subject, client: redis.Redis) -> None:
    opened(subject).write(VIEW, [Item("N14228", 7, doc(1))])
    assert client.get(f"{subject.name}:{VIEW}:N14228") == doc(1)
    assert client.ttl(f"{subject.name}:{VIEW}:N14228") == -1


def test_fault_36_a_delete_leaves_a_fence_that_expires(subject: Subject, client: redis.Redis) -> None:
    sink = opened(subject, fence_seconds=1000)
    sink.write(VIEW, [Item("1", 7, doc(1)), Item("1b", 7, doc(1))])
    sink.write(VIEW, [Item("1", 8, None), Item("1b", UNVERSIONED, None)])
    for identity, version in (("1", b"8"), ("1b", b"7")):
        value, mark = keys_of(subject, identity)
        assert client.get(value) is None
        assert client.get(mark) == version
        assert 990 <= client.ttl(mark) <= 1000
    assert sink.write(VIEW, [Item("1", 9, doc(2))]) == [WRITTEN]
    assert client.ttl(keys_of(subject, "1")[1]) == -1, "a living document's version must not expire"


def test_fault_36_a_stale_write_after_expiry_is_refused(subject: Subject, client: redis.Redis) -> None:
    sink = opened(subject, ttl_seconds=1, fence_seconds=1000)
    sink.write(VIEW, [Item("1", 7, doc(1))])
    assert client.get(keys_of(subject, "1")[0]) == doc(1)
    time.sleep(1.3)
    assert client.get(keys_of(subject, "1")[0]) is None
    assert sink.write(VIEW, [Item("1", 6, doc(0))]) == [STALE]
    assert held(sink) == {}
    assert sink.write(VIEW, [Item("1", 8, doc(8))]) == [WRITTEN]


def test_a_value_of_another_type_is_replaced_but_a_version_of_another_type_rejects_alone(
    subject: Subject, client: redis.Redis
) -> None:
    value, _ = keys_of(subject, "1")
    _, mark = keys_of(subject, "2")
    client.rpush(value, "a list")
    client.rpush(mark, "a list")
    answers = opened(subject).write(VIEW, items(4, 5))
    assert [answer.outcome for answer in answers] == [
        Outcome.WRITTEN,
        Outcome.WRITTEN,
        Outcome.REJECTED,
        Outcome.WRITTEN,
    ]
    assert "WRONGTYPE" in (answers[2].reason or "")


def test_scan_leaves_other_prefixes_alone_and_tells_of_other_types(subject: Subject, client: redis.Redis) -> None:
    sink = opened(subject)
    sink.write(VIEW, items(2, 5))
    client.set(f"{subject.name}:{VIEW}s:1", "other view")
    client.rpush(f"{subject.name}:{VIEW}:list", "x")
    client.set(f"{subject.name}:{VIEW}:foreign", "{}")
    assert held(sink) == {"0": (5, doc(0)), "1": (5, doc(1)), "list": (0, b""), "foreign": (0, b"{}")}


def test_many_views_are_looked_for_in_one_pass(
    subject: Subject, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [f"v{number}" for number in range(30)]
    sink = opened(subject, targets={view: {"generation": 1} for view in views})
    client.mset({f"{subject.name}:w{number}:1": b"x" for number in range(12_000)})
    asked, scan = list[None](), redis.Redis.scan

    def counted(self: redis.Redis, *args: Any, **more: Any) -> Any:  # the server counts others' too
        asked.append(None)
        return scan(self, *args, **more)

    monkeypatch.setattr(redis.Redis, "scan", counted)
    assert sink.filled(views) is None
    pages = len(asked)
    assert list(client.scan_iter(f"{subject.name}:w1:1", 5_000))
    one = len(asked) - pages
    sink.write("v7", [Item("1", 5, doc(1))])
    assert sink.filled(views) == "v7"
    assert pages <= 4 * one  # a pass over all for each question, and not for each view
    client.delete(*(f"{subject.name}:w{number}:1" for number in range(12_000)))


def test_flushed_scripts_are_loaded_again(subject: Subject, client: redis.Redis) -> None:
    sink = opened(subject)
    sink.write(VIEW, items(3, 1))
    client.script_flush()
    assert sink.write(VIEW, items(3000, 2)) == [WRITTEN] * 3000


def test_eviction_is_said_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    subject = start("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with caplog.at_level(logging.WARNING):
        opened(subject).setup()
    assert "may evict" in caplog.text


def test_fault_37_full_memory_holds_the_batch_until_there_is_room(start: Start) -> None:
    subject = start("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    sink = opened(subject)
    sink.setup()
    batch = [Item(str(n), 1, doc(n, "z" * 5000)) for n in range(1000)]
    answers: list[object] = []
    writer = threading.Thread(target=lambda: answers.extend(sink.write(VIEW, batch)), daemon=True)
    writer.start()
    writer.join(1.5)
    assert writer.is_alive()
    assert any("OOM" in reason or "OutOfMemory" in reason for reason in subject.waits)
    with redis.Redis.from_url(subject.url) as client:
        present = sum(1 for _ in client.scan_iter(match=f"{subject.name}:{VIEW}:*", count=1000))
        versions = sum(1 for _ in client.scan_iter(match="hw:v:*", count=1000))
        assert 0 < present == versions < 1000, "value and version go together, also where memory ended"
        deleting = opened(subject, give_up_seconds=5.0)
        assert deleting.write(VIEW, [Item("0", 2, None)]) == [WRITTEN], (
            "a delete must pass, or nothing ever frees memory"
        )
        client.config_set("maxmemory", "0")
    writer.join(60)
    assert answers == [WRITTEN] * 1000
    assert set(held(sink)) == {str(n) for n in range(1, 1000)}


def test_wrong_password_is_refused_at_once(start: Start) -> None:
    subject = start("--requirepass", "right")
    sink = opened(subject, password="wrong", give_up_seconds=None)
    with pytest.raises(SinkRefused, match="password"):
        sink.write(VIEW, items(1, 1))
    with pytest.raises(SinkRefused, match=r"NOAUTH|Authentication"):
        opened(subject, give_up_seconds=None).setup()
    right = opened(subject, password="right")
    right.setup()
    assert right.write(VIEW, items(1, 1)) == [WRITTEN]


def test_a_replica_is_refused_by_setup_and_held_by_write(start: Start) -> None:
    subject = start()
    sink = opened(subject)
    sink.write(VIEW, items(1, 1))
    with redis.Redis.from_url(subject.url) as client:
        client.replicaof("127.0.0.1", free_port())
        with pytest.raises(SinkRefused, match="replica"):
            opened(subject).setup()
        answers: list[object] = []
        writer = threading.Thread(target=lambda: answers.extend(sink.write(VIEW, items(5, 2))), daemon=True)
        writer.start()
        writer.join(1.0)
        assert writer.is_alive(), "a fail-over in progress must hold the batch"
        client.replicaof("NO", "ONE")
    writer.join(30)
    assert answers == [WRITTEN] * 5


def make_cluster(start: Start) -> tuple[Subject, list[int]]:
    """Two nodes that share the slots."""
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "yes")
    subjects = [start(*options, port=port) for port in (free_cluster_port(), free_cluster_port())]
    ports = [subject.address[1] for subject in subjects]
    for place, port in enumerate(ports):
        with redis.Redis(port=port) as node:
            slots = range(0, 8192) if place == 0 else range(8192, 16384)
            node.execute_command("CLUSTER", "ADDSLOTS", *slots)
            node.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[1 - place])
    for port in ports:
        with redis.Redis(port=port) as node:
            for _ in range(200):
                if b"cluster_state:ok" in bytes(str(node.execute_command("CLUSTER INFO")), "utf-8").replace(
                    b"': '", b":"
                ):
                    break
                time.sleep(0.1)
            else:
                pytest.fail(f"the cluster did not form: {node.execute_command('CLUSTER INFO')}")
    return subjects[0], ports


def free_cluster_port() -> int:
    """A port whose bus port (10,000 above) exists and is free too."""
    while True:
        port = free_port()
        if port < 55_000:
            return port


def test_a_cluster_needs_to_be_said_and_then_works(start: Start) -> None:
    subject, ports = make_cluster(start)
    with pytest.raises(SinkRefused, match="cluster: true"):
        opened(subject).setup()
    sink = opened(subject, cluster=True)
    sink.setup()
    odd = [Item(key, 1, doc(0)) for key in ("{a}", "a}b", "{", "}{x}", "{}", "")]
    assert sink.write(VIEW, [*items(3000, 1), *odd]) == [WRITTEN] * 3006
    assert sink.write(VIEW, [Item("7", 0, doc(9)), Item("8", 2, None), Item("8x", UNVERSIONED, None)]) == [
        STALE,
        WRITTEN,
        WRITTEN,
    ]
    expected = {str(n): (1, doc(n)) for n in range(3000) if n != 8} | {item.key: (1, doc(0)) for item in odd}
    assert held(sink) == expected
    assert sink.get(VIEW, ["0", "8", "{a}"]) == {"0": ("0", 1, doc(0)), "{a}": ("{a}", 1, doc(0))}
    for port in ports:
        with redis.Redis(port=port) as node:
            assert node.dbsize() > 2000, "both nodes must hold their share"
            node.script_flush()
    assert sink.write(VIEW, items(3000, 3)) == [WRITTEN] * 3000


def test_a_cluster_that_is_none_is_refused_and_one_that_is_away_is_waited_for(subject: Subject) -> None:
    with pytest.raises(SinkRefused, match="Cluster mode is not enabled") as refused:
        opened(subject, cluster=True).setup()
    assert "leave `cluster` out" in str(refused.value)
    away = f"redis://127.0.0.1:{free_port()}/0"
    with pytest.raises(SinkUnavailable):
        opened(subject, url=away, cluster=True).setup()
    with pytest.raises(SinkUnavailable, match="nothing was skipped"):
        opened(subject, url=away, cluster=True, give_up_seconds=0.3).write(VIEW, items(3, 1))


def test_a_clusters_generations_are_told_apart_by_the_pointer_alone(start: Start) -> None:
    subject, ports = make_cluster(start)
    first, second = opened(subject, cluster=True), opened(subject, generation=2, cluster=True, token=5)
    first.setup()
    second.setup()
    first.write(VIEW, [Item(str(n), 1, doc(n, "old")) for n in range(200)])
    second.write(VIEW, [Item(str(n), 1, doc(n, "new")) for n in range(100, 300)])
    keys = [str(n) for n in range(300)]
    with redis.RedisCluster(host="127.0.0.1", port=ports[0]) as client:
        cache = Cache(client, VIEW, f"{subject.name}:")
        assert cache.get_many(keys) == {str(n): doc(n, "old") for n in range(200)}
        second.promote(VIEW, 1)
        assert cache.get_many(keys) == {str(n): doc(n, "new") for n in range(100, 300)}
        assert client.get(f"{subject.name}:{VIEW}:150") == doc(150, "old"), "a plain GET stays with the first"
    assert first.living(VIEW) == 2
    assert len(held(first)) == len(held(second)) == 200
    assert len(list(second.sample(VIEW, 50, 1))) == 50
    opened(subject, generation=2, cluster=True, token=6).setup()
    with pytest.raises(Fenced):
        second.write(VIEW, items(1, 9))
    assert first.write(VIEW, items(1, 9)) == [WRITTEN]
    first.drop(VIEW)
    assert (len(held(first)), len(held(second)), second.living(VIEW)) == (0, 200, 2)


def test_fault_40_a_cluster_node_that_is_away_for_a_while(start: Start) -> None:
    subject, ports = make_cluster(start)
    sink = opened(subject, cluster=True, request_timeout_seconds=2.0)
    assert sink.write(VIEW, items(100, 1)) == [WRITTEN] * 100
    with redis.Redis(port=ports[1]) as node:
        process = int(node.info("server")["process_id"])
    stop, cont = signal.SIGSTOP, signal.SIGCONT
    answers: list[object] = []
    import os

    os.kill(process, stop)
    try:
        writer = threading.Thread(target=lambda: answers.extend(sink.write(VIEW, items(100, 2))), daemon=True)
        writer.start()
        writer.join(3.0)
        assert writer.is_alive()
    finally:
        os.kill(process, cont)
    writer.join(60)
    assert answers == [WRITTEN] * 100
    assert {version for version, _ in held(sink).values()} == {2}


def test_value_and_version_share_a_slot() -> None:
    for identity in ("", "1", "a|b", "{a}", "a}b", "}{", "{}", "{", "}", "%7B", "x{y}z{w}", "ü"):
        value = b"p:thing:" + names.encoded(identity)
        assert key_slot(value) == key_slot(names.version_key(value)), identity
