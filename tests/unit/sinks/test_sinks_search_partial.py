"""A search server of which a shard is away answers with what it has: nobody takes that for the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders
from elastic_transport._node import NodeApiResponse
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.contract import UNVERSIONED, Item
from sinks.elasticsearch import expunge, sink
from sinks.elasticsearch.client import RawSourceSerializer
from sinks.elasticsearch.expunge import Expunger
from sinks.elasticsearch.opensearch import OpenSearch, open_point
from sinks.elasticsearch.settings import read_settings
from sinks.elasticsearch.sink import ElasticsearchSink
from sinks.elasticsearch.standing.queries import QueryStore
from sinks.elasticsearch.standing.searched import Searched

CONFIG: dict[str, Any] = {
    "type": "elasticsearch",
    "name": "search",
    "url": "http://h:9200",
    "targets": {"thing": {}},
    "give_up_seconds": 5,
}
# A status and a body for a path and the text that was sent.
Answers = Callable[[str, str], tuple[int, Any]]
STARTING = "no_shard_available_action_exception"
PASSING = [STARTING, "node_disconnected_exception"]
KEPT: dict[str, Any] = {"_id": "a", "_version": 3, "found": True, "_source": {}}


def client(answers: Answers, product: type[Elasticsearch] = Elasticsearch) -> Elasticsearch:
    """A client whose server answers so."""

    class Node(BaseNode):
        def perform_request(self, method: str, target: str, body: Any = None, *_: Any, **__: Any) -> Any:
            status, said = answers(target, (body or b"").decode())
            kind = "application/json"
            headers = HttpHeaders({"x-elastic-product": "Elasticsearch", "content-type": kind})
            meta = ApiResponseMeta(status, "1.1", headers, 0.0, self.config)
            return NodeApiResponse(meta, orjson.dumps(said))

        def close(self) -> None:
            pass

    serializers = {"application/json": RawSourceSerializer()}
    return product(CONFIG["url"], node_class=Node, serializers=serializers, max_retries=0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ElasticsearchSink]:
    def open_(answers: Answers, **over: Any) -> ElasticsearchSink:
        monkeypatch.setattr(sink, "connect", lambda _settings: client(answers))
        return ElasticsearchSink(CONFIG | over)

    return open_


def unread(kind: str) -> dict[str, Any]:
    cause = {"type": kind, "reason": "why"}
    return {"_index": "thing_g1", "_id": "a", "error": {"root_cause": [cause], **cause}}


# --- documents that were asked for by their keys ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize(
    ("verb", "which"), [("get", "thing_g1/"), ("versions", "thing_g1/"), ("versions", "thing_g1_fences/")]
)
def test_a_document_of_a_shard_that_is_not_there_yet_is_not_absent_and_its_index_is_not_gone(
    opened: Callable[..., ElasticsearchSink], verb: str, which: str, kind: str
) -> None:
    subject = opened(lambda path, _: (200, {"docs": [unread(kind) if which in path else KEPT]}))
    with pytest.raises(SinkUnavailable, match=f"503 {kind}: why"):
        getattr(subject, verb)("thing", ["a"])


@pytest.mark.parametrize("item", [Item("a", 4, b"{}"), Item("a", UNVERSIONED, None)], ids=["fence", "held version"])
def test_a_write_waits_for_a_document_of_a_shard_that_is_not_there_yet(
    opened: Callable[..., ElasticsearchSink], item: Item
) -> None:
    asked = []

    def answers(path: str, _body: str) -> tuple[int, Any]:
        if "_mget" in path:
            asked.append(path)
            return 200, {"docs": [unread(STARTING) if len(asked) < 3 else KEPT]}
        if "_doc/highest" in path:
            return 200, {"_version": 9, "found": True}
        return 200, {"errors": False, "items": [], "hits": {"hits": []}}  # the last is what housekeeping asks for

    assert len(opened(answers).write("thing", [item])) == 1
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("kind", "said"), [("security_exception", "rights of that user"), ("illegal_argument_exception", "will not accept")]
)
def test_a_document_that_can_not_be_read_later_either_is_refused(
    opened: Callable[..., ElasticsearchSink], kind: str, said: str
) -> None:
    with pytest.raises(SinkRefused, match=kind) as caught:
        opened(lambda _path, _body: (200, {"docs": [unread(kind)]})).versions("thing", ["a"])
    assert said in str(caught.value)


def test_an_index_that_is_gone_holds_nothing_and_has_no_versions(opened: Callable[..., ElasticsearchSink]) -> None:
    gone = opened(lambda _path, _body: (200, {"docs": [unread("index_not_found_exception")]}))
    assert gone.get("thing", ["a"]) == {}
    with pytest.raises(SinkRefused, match="thing_g1 can't be read: why"):
        gone.versions("thing", ["a"])
    closed = opened(lambda _path, _body: (200, {"docs": [unread("index_closed_exception")]}))
    with pytest.raises(SinkRefused, match="can't be read"):
        closed.get("thing", ["a"])


@pytest.mark.parametrize("kind", ["index_not_found_exception", "index_closed_exception"])
def test_fences_that_are_gone_are_refused(opened: Callable[..., ElasticsearchSink], kind: str) -> None:
    fences = opened(lambda path, _: (200, {"docs": [unread(kind) if "_fences/" in path else KEPT]}))
    with pytest.raises(SinkRefused, match="index thing_g1_fences is gone"):
        fences.versions("thing", ["a"])


# --- scans ------------------------------------------------------------------------------------------------------------


class Scanned:
    """A server with two pages; the second can't be had."""

    def __init__(self, status: int, cause: str, refreshed: int = 0) -> None:
        self.status, self.cause, self.refreshed = status, cause, refreshed
        self.asked: list[str] = []

    def __call__(self, path: str, _body: str) -> tuple[int, Any]:
        self.asked.append(path)
        if "_refresh" in path:
            return 200, {"_shards": {"failed": self.refreshed}}
        if "_pit" in path:
            return 200, {"id": "p"}
        if "_search" not in path:
            return 200, {}
        if sum("_search" in one for one in self.asked) == 1:
            hit = {"_id": "a", "_version": 1, "_source": {}, "sort": [1]}
            return 200, {"pit_id": "p", "hits": {"hits": [hit]}}
        if "allow_partial_search_results=false" not in path:
            return 200, {"pit_id": "p", "_shards": {"failed": 1}, "hits": {"hits": []}}
        root = {"type": self.cause, "reason": "why"}
        error = {"type": "search_phase_execution_exception", "reason": "Partial shards failure", "root_cause": [root]}
        return self.status, {"error": error, "status": self.status}


@pytest.mark.parametrize(
    ("status", "cause"), [(503, "node_disconnected_exception"), (404, "search_context_missing_exception")]
)
def test_a_scan_whose_shard_is_lost_under_way_is_not_over(
    opened: Callable[..., ElasticsearchSink], status: int, cause: str
) -> None:
    pages = opened(Scanned(status, cause)).scan("thing")
    assert next(pages).key == "a"
    with pytest.raises(SinkUnavailable, match="Partial shards failure"):
        next(pages)


def test_a_scan_begins_with_all_shards_refreshed(opened: Callable[..., ElasticsearchSink]) -> None:
    with pytest.raises(SinkUnavailable, match="1 shards of thing_g1 were not refreshed"):
        list(opened(Scanned(503, "x", refreshed=1)).scan("thing"))


def test_a_point_in_time_of_opensearch_is_of_all_shards() -> None:
    asked: list[str] = []

    def answers(path: str, _body: str) -> tuple[int, Any]:
        asked.append(path)
        return 200, {"pit_id": "p"}

    assert open_point(client(answers, OpenSearch), "i", "5m") == "p"
    assert asked == ["/i/_search/point_in_time?keep_alive=5m&allow_partial_pit_creation=false"]


# --- what is told of an index -----------------------------------------------------------------------------------------


def statistics(shards: dict[str, Any]) -> Answers:
    """Of an index of two shards, of which the server tells these."""

    def answers(path: str, _body: str) -> tuple[int, Any]:
        if "_settings" in path:
            return 200, {"thing_g1": {"settings": {"index.number_of_shards": "2"}}}
        total = {"docs": {"deleted": 0}, "store": {"size_in_bytes": 7}} if shards else {}
        return 200, {"_all": {"total": total}, "indices": {"thing_g1": {"shards": shards}} if shards else {}}

    return answers


@pytest.mark.parametrize("shards", [{}, {"0": []}], ids=["none", "one of two"])
def test_an_index_with_a_shard_that_is_away_is_not_free_of_deleted_documents(
    monkeypatch: pytest.MonkeyPatch, shards: dict[str, Any]
) -> None:
    monkeypatch.setattr(expunge, "connect", lambda _settings: client(statistics(shards)))
    subject = Expunger(CONFIG)
    for ask in (subject.deleted, subject.written, lambda index: subject.expunge(index, {}, print, 0.0)):
        with pytest.raises(SinkUnavailable, match="no copy of a shard of index thing_g1"):
            ask("thing_g1")


def test_an_index_with_all_its_shards_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expunge, "connect", lambda _settings: client(statistics({"0": [{}], "1": [{}]})))
    subject = Expunger(CONFIG)
    assert subject.deleted("thing_g1") == 0 and subject.written("thing_g1") == {"0": -1, "1": -1}


def test_the_size_of_an_index_that_has_not_started_is_not_told(opened: Callable[..., ElasticsearchSink]) -> None:
    with pytest.raises(SinkUnavailable, match="no copy of a shard"):
        opened(statistics({})).size("thing")
    assert opened(statistics({"0": []})).size("thing") == 7


# --- standing queries -------------------------------------------------------------------------------------------------


def test_queries_whose_index_has_not_started_are_not_none() -> None:
    settings = read_settings(CONFIG)
    (target,) = settings.targets.values()
    with pytest.raises(SinkUnavailable, match="no copy of a shard"):
        QueryStore(client(statistics({})), settings, target).change()
    missing = (404, {"error": {"type": "index_not_found_exception"}, "status": 404})
    assert QueryStore(client(lambda _path, _body: missing), settings, target).change() is None


@pytest.mark.parametrize(
    ("status", "raised"), [(503, SinkUnavailable), (429, SinkUnavailable), (403, SinkRefused)], ids=str
)
def test_a_query_that_can_not_be_run_just_now_waits(status: int, raised: type[Exception]) -> None:
    settings = read_settings(CONFIG)
    (target,) = settings.targets.values()
    sent: list[str] = []

    def answers(path: str, body: str) -> tuple[int, Any]:
        if "_msearch" in path:
            sent.append(body)
            error = {"type": "search_phase_execution_exception", "reason": "all shards failed"}
            return 200, {"responses": [{"error": error, "status": status}]}
        return 200, {"items": []}

    judge = Searched(client(answers), settings, target)
    judge._known = {"q@1": b'{"match_all":{}}'}
    with pytest.raises(raised, match="could not be run: search_phase_execution_exception"):
        judge.judge([b"{}"])
    assert orjson.loads(sent[0].splitlines()[0]) == {"allow_partial_search_results": False}
