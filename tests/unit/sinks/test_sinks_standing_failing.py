"""A standing query that can't be run over a document is found and named; the server is played."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders
from elastic_transport._node import NodeApiResponse
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused, SinkUnavailable
from cdc.json_text import read
from sinks.elasticsearch.client import RawSourceSerializer
from sinks.elasticsearch.settings import read_settings
from sinks.elasticsearch.standing.percolator import Percolator
from sinks.elasticsearch.standing.searched import Searched

SETTINGS = read_settings(
    {"type": "elasticsearch", "name": "s", "url": "http://h:9200", "targets": {"thing": {}}, "give_up_seconds": 5}
)
CAUSE = {"type": "illegal_argument_exception", "reason": "A document doesn't have a value for a field!"}
SCRIPT = {"type": "script_exception", "reason": "runtime error", "caused_by": CAUSE}
FAILURE = {
    "root_cause": [{"type": "script_exception", "reason": "runtime error"}],
    "type": "search_phase_execution_exception",
    "reason": "all shards failed",
    "failed_shards": [{"shard": 0, "reason": SCRIPT}],
}
MISSING = {"type": "exception", "reason": "Missing value for field [n]"}
TRIPPED = {**FAILURE, "root_cause": [MISSING], "failed_shards": [{"shard": 0, "reason": MISSING}]}
WORDS = f"script_exception: runtime error; illegal_argument_exception: {CAUSE['reason']}"
# What OpenSearch 3.6 says of a search with a document that has a number of more than a thousand digits, or more than a
# thousand levels with those of the request.
TOO_LONG = {"type": "stream_constraints_exception", "reason": "Number value length (5000) exceeds the maximum allowed"}
FIELD = {"type": "x_content_parse_exception", "reason": "[1:79] [percolate] failed to parse field [documents]"}
LONG = {**FIELD, "root_cause": [FIELD], "caused_by": {**FIELD, "caused_by": TOO_LONG}}
CLOSED = {"type": "index_closed_exception", "reason": "closed"}


class Server:
    """A server of some queries, by their ids, of which some fail."""

    def __init__(self, queries: list[str], failing: set[str], closed: bool = False) -> None:
        self.queries, self.failing, self.closed = queries, failing, closed
        self.asked = 0
        self.failure: tuple[int, dict[str, Any]] = (400, FAILURE)

    def client(self) -> Elasticsearch:
        """A client of it."""
        answer = self.answer

        class Node(BaseNode):
            def perform_request(self, method: str, target: str, body: Any = None, *_: Any, **__: Any) -> Any:
                status, said = answer(target, body or b"")
                headers = HttpHeaders({"x-elastic-product": "Elasticsearch", "content-type": "application/json"})
                return NodeApiResponse(ApiResponseMeta(status, "1.1", headers, 0.0, self.config), orjson.dumps(said))

            def close(self) -> None:
                pass

        serializers = {"application/json": RawSourceSerializer()}
        return Elasticsearch("http://h:9200", node_class=Node, serializers=serializers, max_retries=0)

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        if "_bulk" in path:
            return 200, {"errors": False, "items": []}
        if "_msearch" in path:
            return 200, {"responses": [self.searched(line) for line in body.splitlines()[1::2]]}
        self.asked += 1
        if b"percolate" not in body:  # which there are
            return 200, {"hits": {"hits": [{"_id": one, "sort": [one]} for one in self.queries]}}
        if re.search(rb"[0-9]{1001}", body) or body.count(b"[") > 992:
            return 400, {"error": LONG, "status": 400}
        filters = read(body)["query"]["bool"]["filter"]
        status, error, hits = self.found(self.chosen(filters), len(filters[-1]["percolate"]["documents"]))
        return (status, {"error": error, "status": status}) if error else (200, hits)

    def searched(self, line: bytes) -> dict[str, Any]:
        query = orjson.loads(line)["query"]["bool"]["filter"][1]
        status, error, hits = self.found([query["term"]["q"]] if "term" in query else [])
        if error:
            return {"error": error, "status": status}
        return {"hits": {"hits": [{"_id": "mark-0"} for _ in hits["hits"]["hits"]]}, "status": 200}

    def chosen(self, filters: list[dict[str, Any]]) -> list[str]:
        return [*self.queries, "all"] if len(filters) == 1 else filters[0]["terms"]["@headwater.id"]

    def found(self, ids: list[str], documents: int = 1) -> tuple[int, Any, dict[str, Any]]:
        if self.closed:
            return 400, CLOSED, {}
        if self.failing & set(ids):
            return *self.failure, {}
        slots = {"_percolator_document_slot": list(range(documents))}
        return 200, None, {"hits": {"hits": [{"_id": one, "fields": slots} for one in ids]}}


def judge(server: Server, kind: type[Percolator]) -> Percolator:
    made = kind(server.client(), SETTINGS, SETTINGS.targets["thing"])
    if isinstance(made, Searched):
        made._known = {one: orjson.dumps({"term": {"q": one}}) for one in server.queries}
    return made


@pytest.mark.parametrize("kind", [Percolator, Searched])
@pytest.mark.parametrize("asked", [None, ["q1@1", "q7@1", "q9@1"]])
def test_queries_that_fail_on_a_document_are_found(kind: type[Percolator], asked: list[str] | None) -> None:
    """The percolator failed for all, at each try; where queries are searched, all documents counted as not matching."""
    names = [f"q{number}@1" for number in range(40)]
    server = Server(names, {"q7@1", "q8@1"})
    said = judge(server, kind).judge([b'{"n":1}'], asked)
    assert said.failed == dict.fromkeys(["q7@1"] if asked else ["q7@1", "q8@1"], WORDS)
    assert server.asked < 30
    server.failing = set()
    again = judge(server, kind).judge([b'{"n":1}'], asked)
    assert again.failed == {} and again.ids[0] - {"all"} == set(asked or names)


@pytest.mark.parametrize("kind", [Percolator, Searched])
def test_one_that_trips_the_server_is_found_too_and_an_outage_is_no_querys(kind: type[Percolator]) -> None:
    """`field_value_factor` with `min_score` over a document without the field: 500, which was an outage for ever."""
    server = Server(["q1@1", "q2@1"], {"q2@1"})
    server.failure = 500, TRIPPED
    said = judge(server, kind).judge([b'{"n":1}'])
    assert said.failed == {"q2@1": "exception: Missing value for field [n]"}
    if kind is Percolator:  # what fails once, and not when it is looked for, is no answer of 'nothing matches' either
        server.failing = {"all"}
        with pytest.raises(SinkUnavailable):
            judge(server, kind).judge([b'{"n":1}'])
        server.failing = {"q2@1"}
    for failure in ((500, FAILURE | {"failed_shards": [], "root_cause": [{"type": "i_o_exception"}]}), (503, TRIPPED)):
        server.failure = failure
        with pytest.raises(SinkUnavailable):
            judge(server, kind).judge([b'{"n":1}'])


ODD = [b'{"n":1e400}', b'{"t":"\\ud800"}', b'{"n":%s}' % (b"1" * 400)]
DEEP = [b'{"a":%b}' % (b"[" * levels + b"]" * levels) for levels in (1_000, 1_100, 5_000)]


@pytest.mark.parametrize("document", ODD)
@pytest.mark.parametrize("kind", [Percolator, Searched])
def test_json_that_postgres_and_the_server_take_is_judged(kind: type[Percolator], document: bytes) -> None:
    """A search found the document, and the standing query never."""
    for wrong in (b"[%b]" % document, document[:-1], b""):
        assert judge(Server(["q1@1"], set()), kind).judge([wrong]) == ([frozenset()], 1, {})
    found = judge(Server(["q1@1"], set()), kind).judge([document], ["q1@1"])
    assert found == ([frozenset(["q1@1"])], 0, {})


@pytest.mark.parametrize("long", [b'{"n":%s}' % (b"1" * 1_100), b'{"n":0.%s}' % (b"1" * 1_100), *DEEP])
def test_a_document_that_fails_the_whole_request_matches_nothing_and_the_others_are_judged(long: bytes) -> None:
    """Of a fraction of more than a thousand digits it was refused for good, and with it all that came behind it."""
    server = Server(["q1@1"], set())
    found = judge(server, Percolator).judge([b'{"n":1}', long, *ODD], ["q1@1"])
    q1 = frozenset(["q1@1"])
    assert found == ([q1, frozenset(), q1, q1, q1], 1, {})


@pytest.mark.parametrize("kind", [Percolator, Searched])
def test_no_query_is_blamed_for_what_is_refused_whatever_is_asked(kind: type[Percolator]) -> None:
    with pytest.raises(SinkRefused, match="index_closed_exception"):
        judge(Server(["q1@1"], set(), closed=True), kind).judge([b'{"n":1}'])
