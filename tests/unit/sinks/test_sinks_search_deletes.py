"""A search server makes an index for deletes that find none: ours ask it not to. The server is played."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders
from elastic_transport._node import NodeApiResponse
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import STALE, UNVERSIONED, WRITTEN, Item
from sinks.elasticsearch import sink
from sinks.elasticsearch.bulk import GUARD, encode, operations
from sinks.elasticsearch.client import RawSourceSerializer
from sinks.elasticsearch.sink import ElasticsearchSink

CONFIG: dict[str, Any] = {
    "type": "elasticsearch",
    "name": "search",
    "url": "http://h:9200",
    "targets": {"thing": {}},
    "give_up_seconds": 5,
}
WRITER, FENCES = "thing_g1_w0", "thing_g1_fences_w0"
GONE = {"status": 404, "error": {"type": "index_not_found_exception", "reason": "no such index [thing_g1_w0]"}}
NOT_THERE = {"status": 404, "error": {"type": "document_missing_exception", "reason": "[headwater]: missing"}}


class Server:
    """A server that knows aliases, versions of documents, and what is in the place of an alias that is gone.

    Attributes:
        aliases: that lead somewhere.
        indices: those that a request has made, and others: name -> how many documents.
        versions: of documents that are there.
        requests: which actions each bulk request for documents had.
        guard: what becomes of an update.
    """

    def __init__(self, *aliases: str) -> None:
        self.aliases, self.indices = set(aliases), dict[str, int]()
        self.versions = {"a": 3, "b": 3}
        self.requests: list[list[str]] = []
        self.dropped: list[str] = []
        self.guard: dict[str, Any] = NOT_THERE

    def client(self, _settings: Any = None) -> Elasticsearch:
        """A client of it."""
        answer = self.answer

        class Node(BaseNode):
            def perform_request(self, method: str, target: str, body: Any = None, *_: Any, **__: Any) -> Any:
                said = answer(method, target, body or b"")
                status = 200
                if said is None:
                    status, said = 404, {}
                kind = "application/json"
                headers = HttpHeaders({"x-elastic-product": "Elasticsearch", "content-type": kind})
                return NodeApiResponse(ApiResponseMeta(status, "1.1", headers, 0.0, self.config), orjson.dumps(said))

            def close(self) -> None:
                pass

        serializers = {"application/json": RawSourceSerializer()}
        return Elasticsearch(CONFIG["url"], node_class=Node, serializers=serializers, max_retries=0)

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """None for 404."""
        index = path.split("/")[1].partition("?")[0]
        if "_bulk" in path:
            return self.bulk(index, body)
        if "_mget" in path:
            return {"docs": [self.document(one["_id"]) for one in orjson.loads(body)["docs"]]}
        if method == "DELETE":
            self.dropped.append(index)
        return None if method == "HEAD" else self.told(index, path)

    def told(self, index: str, path: str) -> dict[str, Any]:
        if "_count" in path:
            return {"count": self.indices[index]}
        if index.endswith("*"):
            return {name: {"mappings": {}} for name in self.indices if name.startswith(index.removesuffix("*"))}
        return {index: {"settings": {"index": {}}}, "hits": {"hits": []}}

    def document(self, key: str) -> dict[str, Any]:
        held = self.versions.get(key)
        return {"_id": key, "found": False} if held is None else {"_id": key, "found": True, "_version": held}

    def bulk(self, index: str, body: bytes) -> dict[str, Any]:
        actions = [
            next(iter(one.items())) for one in map(orjson.loads, body.splitlines()) if not {"doc", "at"} & set(one)
        ]
        if index == FENCES:
            return {"errors": False, "items": [{verb: {"status": 201}} for verb, _ in actions]}
        self.requests.append([verb for verb, _ in actions])
        if index not in self.aliases:
            if all(verb == "delete" for verb, _ in actions):
                self.indices[index] = 0  # since their version is an external one
            found = {"status": 404} if index in self.indices else GONE
            items = [{verb: found if verb == "delete" else GONE} for verb, _ in actions]
            return {"errors": items != [{"delete": {"status": 404}}] * len(items), "items": items}
        items = [{verb: self.apply(verb, how)} for verb, how in actions]
        return {"errors": any("error" in next(iter(one.values())) for one in items), "items": items}

    def apply(self, verb: str, how: dict[str, Any]) -> dict[str, Any]:
        if verb == "update":
            return self.guard
        if self.versions.get(how["_id"], 0) > how["version"]:
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "newer"}}
        return {"status": 404 if self.versions.pop(how["_id"], None) is None else 200}


def opened(monkeypatch: pytest.MonkeyPatch, server: Server) -> ElasticsearchSink:
    monkeypatch.setattr(sink, "connect", server.client)
    return ElasticsearchSink(CONFIG)


def test_only_a_request_of_deletes_alone_has_an_item_that_requires_the_alias() -> None:
    ended, there = encode(0, Item("a", 1, None)), encode(1, Item("b", 1, b'{"delete":{}}'))
    assert operations([ended, ended]) == ended.data * 2 + GUARD
    assert operations([ended, there]) == ended.data + there.data
    assert operations([there]) == there.data


@pytest.mark.parametrize("item", [Item("a", 4, None), Item("a", UNVERSIONED, None)], ids=["delete", "tombstone"])
def test_deletes_alone_are_refused_if_their_index_is_gone(monkeypatch: pytest.MonkeyPatch, item: Item) -> None:
    server = Server(FENCES)
    with pytest.raises(SinkRefused, match="the index to write to is gone"):
        opened(monkeypatch, server).write("thing", [item])
    assert server.indices == {}


def test_deletes_alone_are_refused_if_an_index_is_in_the_place_of_the_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the server takes the deletes; only the item that requires the alias knows better."""
    server = Server(FENCES)
    server.indices[WRITER] = 0
    with pytest.raises(SinkRefused, match="the index to write to is gone"):
        opened(monkeypatch, server).write("thing", [Item("a", 4, None)])
    with pytest.raises(SinkRefused, match="the index to write to is gone"):
        opened(monkeypatch, server).forget("thing", ["a"])
    assert server.requests == [["delete", "update"]] * 2


@pytest.mark.parametrize(
    "guard",
    [
        NOT_THERE,
        {"status": 200},
        {"status": 400, "error": {"type": "routing_missing_exception", "reason": "routing is required"}},
        {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "its shard is busy"}},
        {"status": 503, "error": {"type": "unavailable_shards_exception", "reason": "its shard is away"}},
    ],
    ids=lambda guard: str(guard["status"]),
)
def test_deletes_alone_are_answered_one_by_one_as_ever(monkeypatch: pytest.MonkeyPatch, guard: dict[str, Any]) -> None:
    server = Server(FENCES, WRITER)
    server.guard = guard
    items = [Item("a", 4, None), Item("b", 2, None), Item("never there", 4, None)]
    assert opened(monkeypatch, server).write("thing", items) == [WRITTEN, STALE, WRITTEN]
    assert server.requests == [["delete", "delete", "delete", "update"]]


def test_who_forgets_documents_asks_for_the_alias_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.elasticsearch.forget.PRUNE_SECONDS", 0)
    server = Server(FENCES)
    with pytest.raises(SinkRefused, match="the index to write to is gone"):
        opened(monkeypatch, server).forget("thing", ["a"])
    assert server.indices == {}
    server.aliases.add(WRITER)
    opened(monkeypatch, server).forget("thing", ["a", "never there"])
    assert server.versions == {"b": 3} and server.requests[-1] == ["delete", "update"]
    monkeypatch.setattr(
        server, "apply", lambda *_: {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
    )
    with pytest.raises(SinkRefused, match="document b of thing_g1 can't be forgotten: somebody has written it"):
        opened(monkeypatch, server).forget("thing", ["b"])


def test_drop_removes_an_empty_index_in_the_place_of_a_write_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.indices = {"thing_g1_w17": 0, "thing_g1_fences_w9": 0, "thing_g1_w18": 1, "thing_g1_words": 0}
    opened(monkeypatch, server).drop("thing")
    assert server.dropped == ["thing_g1_w17", "thing_g1_fences_w9"]


# --- old fences -------------------------------------------------------------------------------------------------------


class Old(Server):
    """A server with so many pages of old fences."""

    pages = 30

    def told(self, index: str, path: str) -> dict[str, Any]:
        if index == FENCES and "_search" in path and self.pages:
            return {"hits": {"hits": [{"_id": ".x", "_version": 1}]}}
        return super().told(index, path)

    def bulk(self, index: str, body: bytes) -> dict[str, Any]:
        if index == FENCES and b"delete" in body:
            self.pages -= 1
        return super().bulk(index, body)


def test_a_start_does_not_wait_until_all_old_fences_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of millions it took most of an hour, at each start, and nothing was written meanwhile."""
    server = Old(WRITER, FENCES)
    subject = opened(monkeypatch, server)
    monkeypatch.setattr(sink, "SETUP_SECONDS", 0.0, raising=False)
    monkeypatch.setattr(subject._indices, "setup", lambda: None)
    subject.setup()
    assert server.pages == 29
    subject.write("thing", [Item("a", 4, None)])
    subject._housekeeping.join(30)
    assert server.pages == 0
