"""A row store's server that is another one by now: connections to the former one are not kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from cdc.pipeline import Pipeline, load
from operations import deferred
from operations.deferred import Deferred
from sinks.rowstore import talk
from sinks.rowstore.contract import Marks
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.scripts import SCANNED
from sinks.rowstore.settings import StoreSettings
from sinks.rowstore.talk import Talk
from spark.disk.state import Generation

FILE = """
version: 1
name: shop
source: {host: db, database: shop, user: u, password: p, setup_user: o, setup_password: p, tables: [public.t]}
kafka: {bootstrap: "k:9092"}
connect: {url: "http://c:8083"}
views: {t: {root: t}}
sinks: {search: {type: elasticsearch, url: "http://e:9200", view: t}}
row_store: {url: "redis://r:1/0"}
"""


def failing(errors: list[Exception]) -> Callable[[Any], str]:
    """Work that meets these errors first."""

    def work(_client: Any) -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    return work


@pytest.mark.parametrize(
    ("error", "cluster", "drops"),
    [
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), False, 1),
        (redis.ResponseError("Error running script: @user_script: 3: -READONLY You can't write"), False, 1),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), True, 0),
        (redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"), False, 0),
    ],
    ids=["demoted", "demoted, in a script", "a cluster's client knows its nodes", "busy"],
)
def test_a_connection_to_a_primary_that_was_demoted_is_dropped(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cluster: bool, drops: int
) -> None:
    dropped: list[str] = []
    pool = SimpleNamespace(disconnect=lambda: dropped.append("all"))
    monkeypatch.setattr(talk, "connect", lambda _login: SimpleNamespace(connection_pool=pool))
    asked = Talk(StoreSettings("redis://r:1/0", "n:", "t", cluster=cluster))
    assert asked.patiently(failing([error])) == "done"
    assert len(dropped) == drops


class Store:
    """What is asked of a row store; of the server that its connection leads to."""

    made: list[Store]
    now = "former"

    def __init__(self, _settings: StoreSettings) -> None:
        self.run, self.closed = self.now, False
        self.made.append(self)

    def waiting(self) -> int:
        return 0

    def server(self) -> str:
        return self.run

    def noted(self) -> Marks:
        return Marks(identity="x")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE)
    return load(path, {})


def test_who_asks_what_is_deferred_finds_a_new_server_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipeline: Pipeline
) -> None:
    monkeypatch.setattr(deferred, "RedisRowStore", Store)
    monkeypatch.setattr(Store, "made", [], raising=False)
    generation = Generation(tmp_path, "shop", "search")
    folder = generation.flow_folder("t")
    folder.mkdir(parents=True)
    (folder / "phase.json").write_text(json.dumps({"phase": "live"}))
    (folder / "rowstore.json").write_text(json.dumps({"server": "former"}))
    asking = Deferred(pipeline)
    assert asking.why(generation, "t") is None
    monkeypatch.setattr(Store, "now", "new")
    (folder / "rowstore.json").write_text(json.dumps({"server": "new"}))  # its flow has connected anew
    assert "was restarted" in (asking.why(generation, "t") or "")  # over the connection to the former one
    assert asking.why(generation, "t") is None
    assert [store.closed for store in Store.made] == [True, False]
    asking.close()
    assert all(store.closed for store in Store.made)


def test_a_node_that_was_added_to_a_cluster_hides_nothing_that_is_deferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipeline: Pipeline
) -> None:
    monkeypatch.setattr(deferred, "RedisRowStore", Store)
    monkeypatch.setattr(Store, "made", [], raising=False)
    monkeypatch.setattr(Store, "now", "A1 B1 C1")
    generation = Generation(tmp_path, "shop", "search")
    folder = generation.flow_folder("t")
    folder.mkdir(parents=True)
    (folder / "phase.json").write_text(json.dumps({"phase": "live"}))
    (folder / "rowstore.json").write_text(json.dumps({"server": "A1 B1"}))
    asking = Deferred(pipeline)
    assert asking.why(generation, "t") is None
    (folder / "rowstore.json").write_text(json.dumps({"server": "A1 B2"}))
    assert "was restarted" in (asking.why(generation, "t") or "")
    asking.close()


def test_a_demoted_node_of_a_cluster_is_none_of_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client goes on calling it a primary when it is redirected to a replica that it did not know."""
    said = {"a": ("A1", "slave"), "b": ("B1", "master"), "c": ("C1", "master")}
    nodes = SimpleNamespace(
        get_primaries=lambda: list(said),
        info=lambda part, target_nodes: dict(zip(("run_id", "role"), said[target_nodes], strict=True)),
    )
    monkeypatch.setattr(talk, "connect", lambda _login: nodes)
    assert RedisRowStore(StoreSettings("redis://r:1/0", "n:", "t", cluster=True)).server() == "B1 C1"


def test_a_demoted_server_is_not_asked_over_the_connection_that_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that nothing was restarted."""
    said = [{"role": "slave", "run_id": "former"}, {"role": "master", "run_id": "new"}]
    pool = SimpleNamespace(disconnect=lambda: said.pop(0))
    client = SimpleNamespace(connection_pool=pool, info=lambda part: said[0])
    monkeypatch.setattr(talk, "connect", lambda _login: client)
    assert RedisRowStore(StoreSettings("redis://r:1/0", "n:", "t")).server() == "new"


class Scanned:
    """A row store's server of ten members, two a piece. Another run of one has hashed them in another order.

    Args:
        at: before which piece something happens.
        breaks: the call fails.
        moves: another run answers from then on: one that was restarted, or the node that has got the key's slot, to
            which the client follows without a word.
    """

    def __init__(self, at: int, *, breaks: bool, moves: bool) -> None:
        self.members, self.run = [f"{number}".encode() for number in range(10)], b"A1"
        self.left, self.breaks, self.moves = at, breaks, moves

    def pipeline(self, transaction: bool) -> SimpleNamespace:
        calls: list[tuple[Any, ...]] = []
        return SimpleNamespace(
            execute_command=lambda *call: calls.append(call),
            execute=lambda raise_on_error: [self.piece(*call) for call in calls],
        )

    def piece(self, _evalsha: str, sha: str, keys: int, key: str, verb: str, cursor: bytes, count: int) -> list[Any]:
        assert (sha, keys, count) == (SCANNED.sha, 1, 2)
        self.left -= 1
        if self.left == -1:
            if self.moves:
                self.members, self.run = self.members[5:] + self.members[:5], b"B1"
            if self.breaks:
                raise redis.ConnectionError("Connection closed by server.")
        begin = int(cursor)
        found, after = self.members[begin : begin + 2], begin + 2
        return [
            self.run,
            b"%d" % (after if after < len(self.members) else 0),
            found if verb == "SSCAN" else [part for member in found for part in (member, b"7")],
        ]


def scanned(
    monkeypatch: pytest.MonkeyPatch, verb: str, server: Scanned, *, cluster: bool = False
) -> tuple[list[str], int]:
    """The members in the order in which they came, and how often a piece was asked for."""
    monkeypatch.setattr(talk, "connect", lambda _login: server)
    store, at = RedisRowStore(StoreSettings("redis://r:1/0", "n:", "t", cluster=cluster)), server.left
    pieces: Iterator[Any] = store.scan("i", 2) if verb == "scan" else store.claimed(0, 2)
    return [member for piece in pieces for member in piece], at - server.left


EVERY = [str(number) for number in range(10)]


@pytest.mark.parametrize("verb", ["scan", "claimed"])
@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("breaks", [True, False], ids=["with an error", "without a word"])
@pytest.mark.parametrize("at", range(6))
def test_cursors_of_a_former_server_are_not_used_on_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at: int, breaks: bool, cluster: bool, verb: str
) -> None:
    """After a restart; and where a slot has moved, of which the client says nothing."""
    server = Scanned(at, breaks=breaks, moves=True)
    caplog.set_level("INFO")
    found, _ = scanned(monkeypatch, verb, server, cluster=cluster)
    assert set(found) == set(EVERY)
    assert ("from its beginning" in caplog.text) == (1 <= at < 5)


@pytest.mark.parametrize("verb", ["scan", "claimed"])
@pytest.mark.parametrize("at", range(6))
def test_a_call_that_has_failed_begins_no_key_anew(monkeypatch: pytest.MonkeyPatch, at: int, verb: str) -> None:
    """With one error in each pass over a large key it would come to no end."""
    found, asked = scanned(monkeypatch, verb, Scanned(at, breaks=True, moves=False))
    assert (found, asked) == (EVERY, 6 if at < 5 else 5)
