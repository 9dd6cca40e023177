"""A cursor is one server's: keys of a Redis are gone through in one run of it, and of a cluster while no slot moves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis._parsers.helpers import parse_cluster_nodes
from redis.cluster import ClusterNode, RedisCluster

from cdc.errors import SinkUnavailable
from sinks.redis import names
from sinks.redis.promotion import finish
from sinks.redis.read import Reads, keys_below
from sinks.redis.sink import RedisSink


class Restarted:
    """A server of a key a page, and the same after a restart: the pool has replaced its connection without a word.

    Args:
        at: before which page; none for never.
    """

    def __init__(self, at: int | None) -> None:
        self.keys, self.at, self.asked = [b"p:v:%d" % number for number in range(4)], at, 0
        self.ran: list[bytes] = []

    def info(self) -> dict[str, str]:
        self.asked += 1
        return {"run_id": "new" if self.at is not None and self.at < 0 else "former", "role": "master"}

    def scan(self, cursor: int, **_: Any) -> tuple[int, list[bytes]]:
        if self.at is not None:
            self.at -= 1
            if self.at == -1:
                self.keys = [*self.keys[2:], *self.keys[:2]]
        return (cursor + 1) % len(self.keys), [self.keys[cursor]]

    def scan_iter(self, **_: Any) -> Iterator[bytes]:
        cursor, (page,) = self.scan(0)
        yield page
        while cursor:
            cursor, (page,) = self.scan(cursor)
            yield page

    def hmget(self, _key: bytes, names: Any) -> list[bytes | None]:
        return [None for _ in names]

    def eval(self, script: bytes, *_: Any) -> int:
        self.ran.append(script)
        return 0

    def pipeline(self, transaction: bool) -> Any:
        values: list[Any] = []
        read = SimpleNamespace(
            hmget=lambda *_: values.append([None] * 4),
            get=lambda key: values.append(b"1" if key.startswith(b"hw:") else b"{}"),
            execute=lambda raise_on_error: values,
        )
        return read


def restarted_sink(monkeypatch: pytest.MonkeyPatch, client: Restarted) -> RedisSink:
    sink = RedisSink({"type": "redis", "name": "c", "url": "redis://h", "key_prefix": "p:", "targets": {"v": {}}})
    monkeypatch.setattr(sink._server, "client", lambda: client)
    monkeypatch.setattr(sink, "_refuse_others", lambda *_: None)
    return sink


def test_a_scan_is_of_one_run_of_the_server_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """verify would take documents that were passed over for ones that Postgres has not either."""
    whole = Restarted(None)
    assert {held.key for held in restarted_sink(monkeypatch, whole).scan("v")} == {"0", "1", "2", "3"}
    assert whole.asked == 2, "not with each page"
    for at in range(1, 4):
        with pytest.raises(SinkUnavailable, match=r"scan: .*restarted"):
            list(restarted_sink(monkeypatch, Restarted(at)).scan("v"))
    early = restarted_sink(monkeypatch, Restarted(2)).scan("v")
    next(early)
    early.close()  # type: ignore[attr-defined]  # who has seen enough is told nothing


def test_keys_are_gone_through_in_one_run_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be removed, or to be renamed by a promotion: what is passed over would be nobody's."""
    assert len(list(keys_below(Restarted(None), (b"p:",)))) == 4
    with pytest.raises(redis.ConnectionError, match="restarted"):
        list(keys_below(Restarted(2), (b"p:",)))
    moving = Restarted(2)
    moving.hmget = lambda *_: [b"2", b"1", b"2", b"2", b"turn"]  # type: ignore[method-assign]
    with pytest.raises(redis.ConnectionError, match="restarted"):
        finish(moving, names.Names("p:", "v"))
    assert len(moving.ran) == 1, "what was on that one page; not that it has ended"


def refuses(*_: Any, **__: Any) -> Any:
    raise redis.exceptions.NoPermissionError("User reader has no permissions to run this command")


def test_who_may_not_ask_which_server_it_is_reads_as_before_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sinks.redis.read._SAID", set())
    client = Restarted(2)
    client.info = refuses  # type: ignore[method-assign]
    for _ in range(2):
        assert len(list(keys_below(client, (b"p:",)))) == 4
    assert caplog.text.count("+info") == 1


class Spread(RedisCluster):
    """The keys of six slots on two nodes, a key a page: what redis-py makes of commands is its own.

    Args:
        at: before which SCAN a slot moves; None for never.
        slot: which one.
        to: where to, a node that nobody knows or one of the two.
    """

    def __init__(self, at: int | None = None, slot: int = 5, to: int = 1) -> None:
        self.homes, self.at, self.slot, self.to = {number: 1 + number // 3 for number in range(6)}, at, slot, to
        self.open: dict[int, str] = {}
        self.known = {port: ClusterNode("h", port, "primary") for port in (1, 2)}
        self.nodes_manager = SimpleNamespace(initialize=self.looks_anew, close=lambda: None)

    def looks_anew(self) -> None:
        for port in self.homes.values():
            self.known.setdefault(port, ClusterNode("h", port, "primary"))

    def get_primaries(self) -> list[ClusterNode]:
        return list(self.known.values())

    def get_default_node(self) -> ClusterNode:
        return self.known[1]

    def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> ClusterNode | None:
        return self.known.get(port or int(node_name.partition(":")[2]))

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        there: Any = kwargs.get("target_nodes")
        match args:
            case ("CLUSTER SLOTS",):
                return {(slot, slot): {"primary": ("h", port), "replicas": []} for slot, port in self.homes.items()}
            case ("CLUSTER NODES",):
                mine = " ".join(str(slot) for slot, port in self.homes.items() if port == there.port)
                line = f"id{there.port} h:{there.port}@9 myself,master - 0 0 1 connected {mine}"
                others = [f"id{at} h:{at}@9 master - 0 0 1 connected" for at in self.known if at != there.port]
                return parse_cluster_nodes("\n".join([*others, f"{line} {self.open.get(there.port, '')}".rstrip()]))
            case ("INFO",):
                return {"run_id": f"run{there.port}", "role": "master"}
            case ("SCAN", cursor, *_):
                if self.at == 0:
                    self.homes[self.slot] = self.to
                self.at = None if self.at is None else self.at - 1
                keys = [b"p:v:%d" % slot for slot, port in self.homes.items() if port == there.port]
                after = int(cursor) + 1
                return {there.name: after if after < len(keys) else 0}, keys[int(cursor) : after]
        raise AssertionError(args)


def gone_through(client: Spread) -> set[bytes]:
    """All keys, in both ways in which they are gone through."""
    one = {key for page in Reads(client, cluster=True)._keys(b"p:v:") for key in page}
    assert {b"p:v:" + key for key in one} == set(keys_below(client, (b"p:",)))
    return one


@pytest.mark.parametrize(
    ("slot", "to", "at"), [(5, 1, 3), (5, 1, 4), (5, 3, 2), (1, 3, 1)], ids=["told", "amid", "new", "new, and amid"]
)
def test_slots_that_move_under_a_scan_of_a_cluster_fail_it(
    monkeypatch: pytest.MonkeyPatch, slot: int, to: int, at: int
) -> None:
    """To a node that was gone through already, or to one that is not asked: no SCAN says so."""
    assert gone_through(Spread()) == {b"%d" % number for number in range(6)}
    with pytest.raises(redis.ConnectionError, match="slots were moved"):
        list(keys_below(Spread(at, slot, to), (b"p:",)))
    with pytest.raises(redis.ConnectionError, match="slots were moved"):
        list(Reads(Spread(at, slot, to), cluster=True)._keys(b"p:v:"))


def test_nodes_of_a_cluster_that_the_client_does_not_know_yet_are_gone_through() -> None:
    client = Spread()
    client.homes[5] = client.homes[4] = 3
    assert [node.port for node in client.get_primaries()] == [1, 2]
    assert len(gone_through(client)) == 6


@pytest.mark.parametrize(
    ("left", "named"),
    [
        ({1: "[2->-id2]", 2: "[2-<-id1]"}, "slot 2 of the cluster is being moved from h:1 to h:2"),
        ({2: "[2-<-id1]"}, "slot 2 of the cluster is being moved from h:1 to h:2"),
        ({2: "[4->-id1]"}, "slot 4 of the cluster is being moved from h:2 to h:1"),
        ({1: "[2->-id9]"}, "slot 2 of the cluster is being moved from h:1 to id9"),
    ],
    ids=["both", "only imported", "only migrated", "to a node that left"],
)
def test_a_cluster_of_which_slots_are_being_moved_is_not_gone_through(
    monkeypatch: pytest.MonkeyPatch, left: dict[int, str], named: str
) -> None:
    """A slot's keys go one by one, and until the last has gone nobody calls it another node's. One that was left open
    by a move that was cut is so for good: to come again is no way out."""
    client = Spread()
    client.open = left
    target = {
        "type": "redis",
        "name": "c",
        "url": "redis://h",
        "cluster": True,
        "key_prefix": "p:",
        "targets": {"v": {}},
    }
    sink = RedisSink(target)
    monkeypatch.setattr(sink._server, "client", lambda: client)
    monkeypatch.setattr(sink, "_refuse_others", lambda *_: None)
    with pytest.raises(SinkUnavailable) as raised:
        list(sink.scan("v"))
    assert named in raised.value.what
    assert "if none is under way" in raised.value.fix
    assert "redis-cli --cluster fix" in raised.value.fix


def test_a_move_that_only_its_two_nodes_know_of_fails_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers CLUSTER SLOTS hears of it by gossip, after it has ended; the sum of all slots is what it was."""
    for through in (lambda it: keys_below(it, (b"p:",)), lambda it: Reads(it, cluster=True)._keys(b"p:v:")):
        client = Spread(3, 5, 1)
        monkeypatch.setattr(client, "cluster_slots", partial(dict, client.cluster_slots()))
        with pytest.raises(redis.ConnectionError, match="slots were moved"):
            list(through(client))


def test_a_node_that_has_not_heard_of_a_move_names_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Spread()
    stale = client.cluster_slots()
    client.homes[5] = 3
    monkeypatch.setattr(client, "cluster_slots", lambda: stale)
    with pytest.raises(redis.ConnectionError, match="do not agree"):
        list(keys_below(client, (b"p:",)))


def test_slots_that_move_are_seen_without_the_right_to_ask_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*args: Any, **kwargs: Any) -> Any:
        return refuses() if args[0] in ("INFO", "CLUSTER NODES") else Spread.execute_command(client, *args, **kwargs)

    client = Spread(3)
    monkeypatch.setattr(client, "execute_command", asked)
    with pytest.raises(redis.ConnectionError, match="slots were moved"):
        list(keys_below(client, (b"p:",)))
