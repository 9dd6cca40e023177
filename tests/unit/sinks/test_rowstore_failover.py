"""A row store's server that is another one by now: connections to the former one are not kept."""

from __future__ import annotations

import json
from collections.abc import Callable
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
    """A server of ten members, two a piece, whose successor has hashed them in another order: as one that is restarted.

    Args:
        cut: after how many pieces the connection breaks, and the successor answers.
    """

    def __init__(self, cut: int) -> None:
        self.members, self.left = [f"{number}".encode() for number in range(10)], cut

    def piece(self, cursor: int) -> tuple[int, list[bytes]]:
        if self.left == 0:
            self.members = self.members[5:] + self.members[:5]
            self.left = -1
            raise redis.ConnectionError("Connection closed by server.")
        self.left -= 1
        following = cursor + 2
        return (following if following < len(self.members) else 0), self.members[cursor:following]

    def sscan(self, _key: str, cursor: int, count: int) -> tuple[int, list[bytes]]:
        return self.piece(cursor)

    def hscan(self, _key: str, cursor: int, count: int) -> tuple[int, dict[bytes, bytes]]:
        following, found = self.piece(cursor)
        return following, dict.fromkeys(found, b"7")


@pytest.mark.parametrize("cut", range(6))
def test_cursors_of_a_former_server_are_not_used_on_the_next(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    server = Scanned(cut)
    monkeypatch.setattr(talk, "connect", lambda _login: server)
    store = RedisRowStore(StoreSettings("redis://r:1/0", "n:", "t"))
    every = {str(number) for number in range(10)}
    assert {member for piece in store.scan("i", 2) for member in piece} == every
    server.left = cut
    assert {member for piece in store.claimed(0, 2) for member in piece} == every
