"""Standing queries without a server: what the file may say of them, what a query may be, what subscribers see."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import ConfigError, PipelineFileError, QueryRefused
from cdc.pipeline import loads
from cdc.pipeline.outlets import outlets
from console.cli.status import _unjudged
from operations.metrics.pipelines import metrics
from operations.push.cursor import Cursor
from operations.push.events import change, ready, reset, snapshot
from operations.push.lens import Lens
from operations.standing import matcher
from operations.standing.note import MatcherNote, read_notes, standing_report
from operations.standing.queries import _shown
from operations.standing.refusals import refusal, refusals
from operations.standing.register import MAX_BYTES, clause, same
from operations.standing.registered import Registered
from operations.standing.saved import SavedQueries, query_of
from operations.standing.seen import Seen
from operations.state.folder import note_captured
from operations.state.pausing import pause
from sinks.contract import Held
from sinks.elasticsearch.standing.queries import Query
from sinks.redis.stream.match_tail import Matched
from sinks.redis.stream.matches import State
from sinks.redis.stream.tail import Entry
from tests.support.standing_file import FILE, STANDING, load, noted
from tests.support.standing_model import Model, Standings


def pushed(what: str) -> str:
    """Queries whose matches are sent."""
    return f"{{order: {{search: search, changes: cache, push: {{a: {what}}}}}}}"


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ("{ordr: {search: search, changes: cache}}", ["no view 'ordr'", "did you mean 'order'"]),
        ("{order: {search: serch, changes: cache}}", ["no sink 'serch'", "did you mean 'search'"]),
        ("{order: {search: cache, changes: cache}}", ["is no search server", "choose from search"]),
        ("{order: {search: search, changes: search}}", ["is no redis sink", "choose from cache, plain"]),
        ("{order: {search: search, changes: plain}}", ["keeps no changes", "changes: {}"]),
        ("{other: {search: search, changes: cache}}", ["sinks.search has no view 'other'"]),
        ("{order: {search: search}}", ["missing key 'changes'"]),
        ("{order: {search: search, changes: cache, keep: 1}}", ["queries.order.keep"]),
        (pushed("{}"), ["queries.order.push.a: either `url` or `topic`"]),
        (pushed('{url: "http://h/", topic: t}'), ["either `url` or `topic`"]),
        (pushed('{url: "http://h/"}'), ["missing key 'secret'", "openssl"]),
        (pushed('{url: "ftp://h/", secret: "x"}'), ["http"]),
        (pushed('{topic: t, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}'), ["are not signed"]),
        (pushed("{topic: standing.dead-letters}"), ["may be a topic of the pipeline itself"]),
        (pushed("{topic: t, queries: [a b]}"), ["queries.order.push.a.queries"]),
        (pushed("{topic: t, batch: 501}"), ["500"]),
        ("{order: {search: search, changes: cache, saved: {view: othr}}}", ["no view 'othr'", "did you mean 'other'"]),
        ("{order: {search: search, changes: cache, saved: {view: order}}}", ["is the view on which they stand"]),
    ],
)
def test_what_does_not_fit_is_said_where_it_stands(queries: str, words: list[str]) -> None:
    with pytest.raises(PipelineFileError) as wrong:
        load(queries)
    assert "p.yaml:12:" in str(wrong.value) and all(word in str(wrong.value) for word in words), wrong.value


@pytest.mark.parametrize("topic", ["standing-events", "standing-events.order", "standing-events_order"])
def test_matches_do_not_become_events_of_the_outbox(topic: str) -> None:
    """They would be letters in every view over events: sent there, they have no columns of the outbox's table."""
    text = FILE.format(queries=pushed(f"{{topic: {topic}}}"), folder="s")
    assert loads(text.encode(), "p.yaml").queries, "without an outbox it is a topic like any other"
    outbox = "tables: [public.t, public.o], outbox: {table: public.o, types: [x]}"
    with_outbox = text.replace("tables: [public.t]", outbox)
    with pytest.raises(PipelineFileError, match=rf"'{topic}' may be a topic of the pipeline itself"):
        loads(with_outbox.encode(), "p.yaml")
    assert loads(with_outbox.replace(topic, "standing-eventful").encode(), "p.yaml").queries


def test_names_of_all_that_is_sent_are_one_name_space() -> None:
    hook = '{view: order, sink: cache, url: "http://h/", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}'
    text = FILE.format(queries=pushed("{topic: t}"), folder="s") + f"push: {{a: {hook}}}\n"
    with pytest.raises(PipelineFileError, match=r"queries\.order\.push\.a: push\.a has this name too"):
        loads(text.encode(), "p.yaml")


def test_all_that_follows_a_view_is_listed_and_shown_without_secrets() -> None:
    hook = '{url: "http://h/hidden", secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}'
    part = f"{{search: search, changes: cache, saved: {{view: other}}, push: {{a: {hook}, b: {{topic: t}}}}}}"
    made = load(f"{{order: {part}}}")
    assert [one[:5] for one in outlets(made)] == [
        ("a", "order", "cache", "matches", "webhook"),
        ("b", "order", "cache", "matches", "topic"),
        ("queries.order", "other", "cache", "queries", "search"),
    ]
    assert "hidden" not in made.model_dump_json() + repr(made) and "MfKQ" not in made.model_dump_json() + repr(made)


def test_a_documents_query_is_json_or_text_that_is_some() -> None:
    for found in ({"term": {"n": 1}}, '{"term": {"n": 1}}', {"query": {"term": {"n": 1}}}):
        for document in ({"query": found}, {"odd": 1e999, "query": found}):  # Infinity, where Postgres has 1e400
            text = json.dumps(document).replace("Infinity", "1e400")
            assert json.loads(query_of("a", text, "query")) == {"term": {"n": 1}}
    wrong: list[Any] = [{}, {"query": None}, {"query": 7}, {"query": "words"}, [1], "text", {"other": {"term": {}}}]
    for document in (
        *wrong,
        {"query": "\ud800"},
        {"query": {"term": {"n": "\ud800"}}},
        {"query": {"term": {"n": 2**64}}},
    ):
        with pytest.raises(QueryRefused):
            query_of("a", json.dumps(document), "query")
    noted = {**refusal("a:b c", "why"), "cursor": "x", "refused": "y"}
    assert refusals({name: str(said) for name, said in noted.items()}) == {"a:b c": "why"}


def test_queries_do_not_decide_what_a_sink_holds() -> None:
    with_queries = load(STANDING)
    assert all(with_queries.spec_hash(name) == load("{}").spec_hash(name) for name in with_queries.sinks)
    assert with_queries.queries["order"].keep == 100_000


def test_a_query_that_the_server_takes_again_is_held_against_all_documents_again() -> None:
    query = Query("a", 7, b'{"term": {"n": 1}}')
    refusing = Registered("m1", "i", {"a": query}, {"a": "No field mapping can be found"})
    taking = Registered("m2", "i", {"a": query})

    def after(registered: Registered) -> State:
        return State(1, "m", {"index": "i"}, {"a": registered.judged("a")})

    assert _shown(query, after(refusing))["state"] == "refused"
    assert refusing.pending(after(refusing)) == []
    assert taking.pending(after(refusing)) == ["a"]
    assert taking.pending(after(taking)) == [] and _shown(query, after(taking))["state"] == "active"
    assert refusing.pending(after(taking)) == ["a"]  # what matched it matches it no more
    other_words = Registered("m3", "i", {"a": query}, {"a": "it can't be found"})
    assert other_words.pending(after(refusing)) == []


def wrapped(query: dict[str, Any]) -> dict[str, Any]:
    return {"wrapper": {"query": b64encode(json.dumps(query).encode()).decode()}}


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({"script": {"script": "doc['price'].value > 10"}}, "script"),
        ({"bool": {"filter": [{"term": {"a": 1}}, {"script": {"script": {"id": "stored"}}}]}}, "script"),
        ({"script_score": {"query": {"match_all": {}}, "script": {"source": "1"}, "min_score": 1}}, "script_score"),
        ({"function_score": {"functions": [{"script_score": {"script": "1"}}]}}, "script_score"),
        ({"terms_set": {"tags": {"terms": ["a"], "minimum_should_match_script": {"source": "1"}}}}, "minimum_should"),
        ({"intervals": {"t": {"match": {"query": "a", "filter": {"script": {"source": "true"}}}}}}, "filter"),
        (
            {"nested": {"path": "p", "query": {}, "inner_hits": {"script_fields": {"x": {"script": {"source": "1"}}}}}},
            "x",
        ),
        ({"nested": {"path": "p", "query": {}, "inner_hits": {"sort": {"_script": {"script": "1"}}}}}, "_script"),
        *(
            ({"nested": {"path": "p", "query": {}, "inner_hits": {"script_fields": {"x": {"script": script}}}}}, "x")
            for script in ({"id": "stored"}, "1")
        ),
        (wrapped({"script": {"script": "while (true) {}"}}), "script"),
        ({"bool": {"must": [wrapped({"script_score": {"query": {}, "script": {"id": "s"}}})]}}, "script_score"),
        (wrapped(wrapped(wrapped({"script": {"script": {"source": "1"}}}))), "script"),
    ],
)
def test_a_query_with_a_script_is_none(query: dict[str, Any], where: str) -> None:
    """It was taken, failed on the first document without a price, and stopped all queries of the view for good."""
    with pytest.raises(QueryRefused, match=f"has a script .under '{where}"):
        clause("a", json.dumps(query).encode())


@pytest.mark.parametrize("hidden", ["eyJ0ZXJtIjp7fX0=x", "e30", b64encode(b"\xbfetype\xff").decode(), "é", "e30= "])
def test_a_wrapper_that_nobody_can_look_into_is_none(hidden: str) -> None:
    """Elasticsearch takes CBOR and YAML there, too."""
    for query in ({"wrapper": {"query": hidden}}, {"bool": {"must_not": {"wrapper": {"query": hidden}}}}):
        with pytest.raises(QueryRefused, match="'wrapper' whose query is no base64 of JSON"):
            clause("a", json.dumps(query).encode())


def test_a_field_may_be_called_script() -> None:
    for query in (
        {"match": {"wrapper": {"query": "brown paper"}}},
        {"bool": {"must": [{"match_phrase": {"wrapper": {"query": "brown"}}}, wrapped({"term": {"a": 1}})]}},
        {"terms": {"script_fields": {"index": "i", "id": "1", "path": "p"}}},
        {"term": {"script": "x"}},
        {"match": {"script": {"query": "x"}}},
        {"terms": {"script": {"index": "i", "id": "1", "path": "p"}}},
        {"bool": {"filter": {"exists": {"field": "script"}}, "must": {"range": {"filter": {"gte": 1}}}}},
        {"terms_set": {"tags": {"terms": ["a"], "minimum_should_match_field": "n"}}},
    ):
        assert json.loads(clause("a", json.dumps(query).encode())) == query


def test_a_query_that_fails_on_a_document_is_refused_and_the_others_go_on() -> None:
    """The same version was judged again for ever, and nothing said by which query."""
    model, standings = Model(), Standings()
    model.standings = standings
    standings.put("well", 1, 99)
    standings.put("odd", 1, 99)
    model.changes.write("a", 1, 5)
    model.until_idle()
    standings.failing["odd"] = 7
    model.changes.write("b", 2, 7)
    model.changes.write("c", 3, 8)
    model.until_idle()
    assert {key: set(kept.names) for key, kept in model.memory.known.items()} == {key: {"well"} for key in "abc"}
    told = [(one.key, json.loads(one.ops)) for one in model.memory.events]
    assert told[0] == ("a", {"odd": "entered", "well": "entered"})
    assert sorted(told[1:]) == [("a", {"odd": "left"}), ("b", {"well": "entered"}), ("c", {"well": "entered"})]
    assert model.memory.held is not None
    noted = json.loads(model.memory.held.standing["odd"])
    assert noted["refused"] == "it fails on a document: no price" and model.matcher().refused == 1
    # Neither another query nor another process has it tried again; who changes it does.
    standings.put("new", 1, 99)
    model.matchers.clear()
    model.until_idle()
    assert len(model.memory.events) == 7 and model.matcher().refused == 1
    standings.put("odd", 1, 6)
    standings.failing.clear()
    model.until_idle()
    assert model.matcher().refused == 0 and model.memory.known["a"].names == {"well", "new", "odd"}


def test_requests_are_of_bounded_count_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "BATCH_BYTES", 10)
    documents = [b"x" * size for size in (4, 4, 4, 30, 1, 1, 1, 1)]
    parts = list(matcher._parts(documents, 3))
    assert [[len(one) for one in part] for part in parts] == [[4, 4], [4], [30], [1, 1, 1], [1]]
    assert list(matcher._parts([], 3)) == []


def test_a_query_is_a_clause_or_the_body_of_a_search() -> None:
    query = {"term": {"query": 1}}
    assert json.loads(clause("a", json.dumps(query).encode())) == query
    assert json.loads(clause("a.b-C_1", json.dumps({"query": query}).encode())) == query
    for wrong in (b"{", b"[]", b"{}", b'{"query": 1}', b'"x"', b'{"a":"' + b"x" * MAX_BYTES + b'"}'):
        with pytest.raises(QueryRefused):
            clause("a", wrong)
    for name in ("", "a b", "-a", "a@1", "a" * 65, "ä"):
        with pytest.raises(ConfigError, match="name of a query"):
            clause(name, b'{"match_all": {}}')


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b'{"term": {"a": 18446744073709551616}}', "more than 64 bits: 18446744073709551616$"),
        (b'{"term": {"a": -9223372036854775809}}', "more than 64 bits"),
        (b'{"term": {"a": 1%s}}' % (b"0" * 100), "more than 64 bits: 10{39}…$"),
        (b'{"range": {"a": {"gte": NaN}}}', "is no JSON"),
        (b'{"term": {"a": "\\ud800"}}', "is no JSON"),
        (b'{"term": {"a": 1e400}}', "is no JSON"),
        *((b'{"a": %s1%s}' % (b"[" * depth, b"]" * depth), "nested too deeply") for depth in (300, 1_000)),
    ],
)
def test_a_query_that_would_be_another_one_is_refused(wrong: bytes, why: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        clause("a", wrong)
    assert re.search(why, refused.value.what), refused.value.what


def test_a_query_is_the_same_by_its_values_and_not_by_what_python_thinks_equal() -> None:
    assert same(b'{"a": {"b": 1, "c": 2}}', b'{"a":{"c":2,"b":1}}')
    assert not same(b'{"term":{"a":1}}', b'{"term":{"a":true}}') and not same(b'{"a":[0]}', b'{"a":[false]}')
    for number in (b"18446744073709551615", b"-9223372036854775808", b"0.1"):
        assert clause("a", b'{"a":%s}' % number) == b'{"a":%s}' % number


def test_a_subscriber_sees_the_queries_that_it_asks_for() -> None:
    mark = "0123456789abcdef"
    entry = Matched(b"5-0", "k", 2**60, b'{"n":1.10}', b'{"a":"entered","b":"left"}', "change")
    seen = Seen(["a"]).change(entry, 0, mark)
    assert seen is not None and seen.name == "match" and seen.cursor == Cursor(0, mark, b"5-0").text()
    assert seen.value["queries"] == {"a": "entered"} and seen.value["version"] == str(2**60)
    assert b'"document":{"n":1.10}' in seen.data, "a number keeps its digits"
    odd = Seen(["a"]).change(entry._replace(document=b'{"n":1e400}'), 0, mark)
    assert odd is not None and b'"document":{"n":1e400}' in odd.data, "null is a document that was deleted"
    assert Seen(["c"]).change(entry, 0, mark) is None
    both = Seen().change(entry._replace(document=None), 0, mark)
    assert both is not None and both.value["document"] is None and both.value["queries"].keys() == {"a", "b"}
    held = [Held("k", 3, b'["a","b"]'), Held("l", 4, b'["b"]')]
    [told] = Seen(["a"]).snapshot(held)
    assert told.value == {"documents": [{"key": "k", "version": "3", "queries": ["a"]}]}
    assert list(Seen(["c"]).snapshot(held)) == []


class Kept:
    """Stands in for ``Following``: what was done under which name."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.done_: dict[str, str] = {}

    def all(self) -> dict[str, Query]:
        return {}

    def names(self) -> set[str]:
        return set(self.known)

    def put(self, name: str, wanted: bytes) -> None:
        self.done_[name] = wanted.decode()

    def remove(self, name: str) -> None:
        self.done_[name] = "removed"

    def refuse(self, name: str, why: str) -> None:
        self.done_[name] = why


def test_a_saved_search_stays_beside_json_that_no_reader_takes() -> None:
    """Its row was told as null, as of one that is deleted: its query was removed, and not listed as refused."""
    saved, kept = SavedQueries(cast(Any, SimpleNamespace(field="query"))), Kept("old", "gone")
    good, bad = b'{"odd":1e400,"query":{"term":{"n":1}}}', b'{"odd":1,"query":{"term":{"n":1e400}}}'
    [some] = snapshot([Held("old", 3, good), Held("bad", 3, bad)], Lens())
    changes = [
        change(Entry(b"5-0", name, 2**60, None, text), Lens(), 0, "m") for name, text in (("new", good), ("x", bad))
    ]
    for event in (reset("anew"), some, ready(Cursor(0, "0123456789abcdef", b"5-0"), "v"), *changes):
        assert event is not None
        saved._take(event, cast(Any, kept))
    assert kept.done_["old"] == kept.done_["new"] == '{"term":{"n":1}}' and kept.done_["gone"] == "removed"
    assert "is no JSON" in kept.done_["bad"] and "is no JSON" in kept.done_["x"]


def test_what_a_matcher_does_is_measured(tmp_path: Path) -> None:
    assert "headwater_standing_documents_total{" not in metrics([load(STANDING, str(tmp_path))])
    pipeline = noted(tmp_path)
    assert read_notes(pipeline)["order"].documents == 7
    told = metrics([pipeline])
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    for name, value in (
        ("documents_total", "7.0"),
        ("told_total", "3.0"),
        ("unread_total", "1.0"),
        ("lag_seconds", "2.5"),
        ("queries", "4.0"),
        ("pending", "1.0"),
        ("working", "1.0"),
    ):
        assert f'headwater_standing_{name}{{pipeline="standing",view="order"}} {value}' in told
        assert f"headwater_standing_{name}`" in page
    MatcherNote(error="away").write(pipeline, "order")
    assert 'headwater_standing_working{pipeline="standing",view="order"} 0.0' in metrics([pipeline])


def test_status_says_why_a_matcher_does_not_go_on(tmp_path: Path) -> None:
    pipeline = noted(tmp_path)
    assert standing_report(pipeline)[0]["working"] and not list(_unjudged(standing_report(pipeline)))
    for note, why in (
        (MatcherNote(error="the search server is away"), "the search server is away"),
        (MatcherNote(at=time.time() - 100), "no `headwater run` has done it for 100 s"),
        (MatcherNote(at=time.time() + 3_600), "no `headwater run` has done it for 0 s"),  # the clock was put back
    ):
        note.write(pipeline, "order")
        assert list(_unjudged(standing_report(pipeline))) == [f"standing queries of order are not judged: {why}"]
    note_captured(pipeline)
    pause(pipeline, pipeline.queries["order"].changes, "maintenance", lambda _: None)  # nobody is to judge them
    assert standing_report(pipeline)[0]["working"] is None and not list(_unjudged(standing_report(pipeline)))
    assert "headwater_standing_working{" not in metrics([pipeline])
