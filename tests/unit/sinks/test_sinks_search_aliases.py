"""An index that was restored under another name brings the write alias along: nothing is lost by it. The server is
played, with the words of Elasticsearch 8.19."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders
from elastic_transport._node import NodeApiResponse
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import Item
from sinks.elasticsearch import sink
from sinks.elasticsearch.bulk import Bulk
from sinks.elasticsearch.fences import Fences
from sinks.elasticsearch.lease import Lease
from sinks.elasticsearch.settings import Target
from sinks.elasticsearch.sink import ElasticsearchSink
from sinks.retry import Patience

CONFIG: dict[str, Any] = {
    "type": "elasticsearch",
    "name": "search",
    "url": "http://h:9200",
    "targets": {"thing": {}},
    "give_up_seconds": 5,
}
WRITER, FENCE_WRITER = "thing_g1_w0", "thing_g1_fences_w0"
NO_WRITE_INDEX = (
    f"no write index is defined for alias [{WRITER}]. The write index may be explicitly disabled using "
    "is_write_index=false or the alias points to multiple indices without one being designated as a write index"
)
ARGUMENT = "illegal_argument_exception"


class Server:
    """A server that knows aliases: index -> alias -> what is said of it."""

    def __init__(self, **aliases: dict[str, dict[str, Any]]) -> None:
        self.aliases = aliases
        self.actions: list[dict[str, Any]] = []
        self.old = 3  # fences that are old, and that it does not let go

    def client(self, _settings: Any = None) -> Elasticsearch:
        """A client of it."""
        answer = self.answer

        class Node(BaseNode):
            def perform_request(self, method: str, target: str, body: Any = None, *_: Any, **__: Any) -> Any:
                status, said = answer(method, target, body or b"")
                headers = HttpHeaders({"x-elastic-product": "Elasticsearch", "content-type": "application/json"})
                return NodeApiResponse(ApiResponseMeta(status, "1.1", headers, 0.0, self.config), orjson.dumps(said))

            def close(self) -> None:
                pass

        return Elasticsearch(CONFIG["url"], node_class=Node, max_retries=0)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = path.partition("?")[0].split("/")[1:]
        if parts == ["_aliases"]:
            for one in orjson.loads(body)["actions"]:
                self.actions.append(one)
                self.aliases[one["add"]["index"]][one["add"]["alias"]] = one["add"]
        elif parts[0] == "_alias":
            return 200, {index: {"aliases": found} for index in self.aliases if (found := self.named(index, parts[1]))}
        elif parts[-1] == "_alias":
            return 200, {index: {"aliases": self.aliases.get(index, {})} for index in parts[0].split(",")}
        elif parts[-1] == "_bulk":
            return 200, self.bulk(parts[0], body)
        elif parts[-1] == "_search":
            return 200, {"hits": {"hits": [{"_id": f".{n}", "_version": 1} for n in range(self.old)]}}
        elif parts[-1] == "_mget":
            return 200, {"docs": [{"_id": one["_id"], "found": False} for one in orjson.loads(body)["docs"]]}
        return 200, {"found": False}

    def named(self, index: str, names: str) -> dict[str, Any]:
        return {name: said for name, said in self.aliases[index].items() if name in names.split(",")}

    def bulk(self, index: str, body: bytes) -> dict[str, Any]:
        verbs = [next(iter(one)) for one in map(orjson.loads, body.splitlines()) if not {"doc", "at", "n"} & set(one)]
        told: dict[str, Any] = {"status": 201}
        if sum(index in names for names in self.aliases.values()) > 1:
            told = {"status": 400, "error": {"type": ARGUMENT, "reason": NO_WRITE_INDEX}}
        elif index == FENCE_WRITER:
            told = {"status": 400, "error": {"type": ARGUMENT, "reason": "no fence goes"}}
        return {"errors": "error" in told, "items": [{verb: told} for verb in verbs]}


def opened(monkeypatch: pytest.MonkeyPatch, server: Server) -> ElasticsearchSink:
    monkeypatch.setattr(sink, "connect", server.client)
    return ElasticsearchSink(CONFIG)


@pytest.mark.parametrize("item", [Item("a", 4, b'{"n":1}'), Item("stray", -1, None)], ids=["upsert", "tombstone"])
def test_items_wait_while_the_write_alias_leads_to_a_restored_index_too(
    monkeypatch: pytest.MonkeyPatch, item: Item
) -> None:
    """Each was a dead letter, by 'no write index is defined', and the flow went on."""
    server = Server(thing_g1={WRITER: {}, "thing": {}}, thing_g1_fences={FENCE_WRITER: {}}, restored_g1={WRITER: {}})
    subject = opened(monkeypatch, server)
    if item.document is None:
        monkeypatch.setattr(subject, "_held_versions", lambda *_: {"stray": 3})
        monkeypatch.setattr(subject._fences, "raise_for", lambda *_: None)
    with pytest.raises(SinkRefused, match=f"the alias {WRITER}, by which thing_g1 is written, leads to restored_g1"):
        subject.write("thing", [item])


def test_an_alias_that_leads_to_one_index_and_writes_nowhere_is_told_in_the_servers_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(thing_g1={WRITER: {}}, thing_g1_fences={FENCE_WRITER: {}})
    told = {"status": 400, "error": {"type": ARGUMENT, "reason": NO_WRITE_INDEX}}
    monkeypatch.setattr(server, "bulk", lambda *_: {"errors": True, "items": [{"index": told}]})
    with pytest.raises(SinkRefused, match=r"leads to several indices.*is_write_index=false"):
        opened(monkeypatch, server).write("thing", [Item("a", 4, b'{"n":1}')])


def test_who_claims_says_where_writes_go_also_of_an_alias_that_is_there_already() -> None:
    """Then a restored index of the same alias gets none, and stops none."""
    target = Target("thing", "thing", 1, {})
    ours = {"thing_g1": WRITER, "thing_g1_fences": FENCE_WRITER}
    added = [{"add": {"index": i, "alias": a, "is_hidden": True, "is_write_index": True}} for i, a in ours.items()]
    for known, wanted in (({}, added), ({"is_hidden": True}, added), ({"is_write_index": True}, [])):
        server = Server(**{index: {alias: known} if known else {} for index, alias in ours.items()})
        Lease(server.client(), "search").claim(target)
        assert server.actions == wanted


def test_a_purge_ends_where_the_server_keeps_old_fences(caplog: pytest.LogCaptureFixture) -> None:
    """The same page was asked for again for ever, and nothing told of it."""
    server = Server()
    client = server.client()
    patience = Patience("search", give_up_seconds=5)
    rounds: list[float] = []

    def pause(seconds: float) -> bool:
        rounds.append(seconds)
        return len(rounds) > 9

    fences = Fences(client, Bulk(client, "search"), "search")
    assert fences.purge(Target("thing", "thing", 1, {}), 60, patience, pause) == 0
    assert rounds == [] and "can't be removed: 400 illegal_argument_exception: no fence goes" in caplog.text
