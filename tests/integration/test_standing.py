"""Standing queries on a real Redis and a real search server: entered, changed, left, each told once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
import requests
from click.testing import CliRunner

from cdc.errors import QueryRefused
from console.cli.queries import command
from console.http.server import serving
from operations.generations.targets import drop_sink_state
from operations.standing.note import read_notes
from operations.standing.place import Searching, standing_place
from operations.standing.watch import matching as matching_beside
from sinks.contract import Item
from sinks.elasticsearch.standing.searched import Searched
from sinks.redis import RedisSink
from tests.support.json_examples import example
from tests.support.pushed import Listening
from tests.support.sampling import in_turn
from tests.support.servers import servers
from tests.support.sinks import SEARCH, VIEW, client_of, subject_on
from tests.support.source import eventually
from tests.support.standing import SAVED, Matching, StandingWorld, folded

pytestmark = pytest.mark.stack


@pytest.fixture(params=in_turn(*SEARCH))
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StandingWorld]:
    """OpenSearch has a percolator; the local Elasticsearch, a minimal one, has none, and documents are searched."""
    with subject_on(servers(), "redis") as cache, subject_on(servers(), request.param) as search:
        made = StandingWorld(cache, search, tmp_path)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def matching(world: StandingWorld) -> Iterator[Matching]:
    made = world.matching()
    yield made
    made.close()


def test_a_document_enters_changes_and_leaves(world: StandingWorld, matching: Matching) -> None:
    world.put("big", range={"n": {"gte": 10}})
    world.put("word", match={"t": "blue"})
    assert world.states() == {"big": "pending", "word": "pending"}
    matching.until_idle()
    assert world.states() == {"big": "active", "word": "active"}
    world.write(1, a={"n": 10, "t": "red"}, b={"n": 1, "t": "blue sky"})
    matching.until_idle()
    world.write(2, a={"n": 11, "t": "blue"}, b=None)
    world.write(3, a={"n": 1, "t": "blue"})
    matching.until_idle()
    assert [(one["key"], one["version"], one["queries"]) for one in world.told()] == [
        ("a", 1, {"big": "entered"}),
        ("b", 1, {"word": "entered"}),
        ("a", 2, {"big": "changed", "word": "entered"}),
        ("b", 2, {"word": "left"}),
        ("a", 3, {"big": "left", "word": "changed"}),
    ]
    assert world.told()[3]["document"] is None and world.told()[4]["document"] == {"n": 1, "t": "blue"}
    assert folded(world.told()) == world.snapshot() == {"a": {"word"}}


def test_a_query_that_can_not_be_parsed_is_refused_in_the_servers_words(world: StandingWorld) -> None:
    for query, words in (
        ({"terrm": {"n": 1}}, "unknown query [terrm]"),
        ({"range": {"nobody": {"gte": 1}}}, "nobody"),  # a field that no document has
        ({"range": {"n": {"gte": "much"}}}, "much"),
    ):
        with pytest.raises(QueryRefused) as refused:
            world.put("wrong", **query)
        assert words in str(refused.value), refused.value
    assert world.states() == {}


@pytest.mark.parametrize("searched", [False, True], ids=["percolator", "search"])
def test_a_query_that_fails_on_a_document_is_refused_alone(
    world: StandingWorld, matching: Matching, searched: bool
) -> None:
    """One with a script, as an earlier version has registered it; Elasticsearch's minimal distribution runs none."""
    if world.search.kind != "opensearch":
        pytest.skip("no scripts there")
    if searched:
        matching.searches._searching._made_by = Searched
    script = {"script": {"script": "doc['n'].value > 10"}}
    with pytest.raises(QueryRefused, match="has a script"):
        world.put("odd", **script)
    world.put("blue", match={"t": "blue"})
    server = Searching(standing_place(world.pipeline, VIEW))
    server.store.put(None, "odd", json.dumps(script).encode())
    server.close()
    world.write(1, a={"n": 11, "t": "blue"})
    matching.until_idle()
    assert world.states() == {"blue": "active", "odd": "active"}
    world.write(2, b={"t": "blue"}, c={"n": 12, "t": "red"})
    matching.until_idle()
    assert world.states() == {"blue": "active", "odd": "refused"}
    (odd,) = [one for one in world.listed() if one["name"] == "odd"]
    assert odd["refused"].startswith("it fails on a document: script_exception: runtime error"), odd
    assert folded(world.told()) == world.snapshot() == {"a": {"blue"}, "b": {"blue"}}
    before = len(world.told())
    world.put("red", match={"t": "red"})
    matching.until_idle()
    assert len(world.told()) == before + 1 and world.states()["odd"] == "refused"


def test_a_query_that_trips_the_server_is_refused_alone(world: StandingWorld, matching: Matching) -> None:
    world.put("odd", function_score={"field_value_factor": {"field": "n"}, "min_score": 1})
    world.put("blue", match={"t": "blue"})
    world.write(1, a={"n": 11, "t": "blue"})
    matching.until_idle()
    world.write(2, b={"t": "blue"})
    matching.until_idle()
    assert world.states() == {"blue": "active", "odd": "refused"}
    assert folded(world.told()) == world.snapshot() == {"a": {"blue"}, "b": {"blue"}}


def test_changing_and_removing_a_query_tells_what_enters_and_leaves(world: StandingWorld, matching: Matching) -> None:
    matching.until_idle()
    world.write(1, **{f"k{n}": {"n": n} for n in range(5)})
    matching.until_idle()
    world.put("some", range={"n": {"lte": 2}})
    matching.until_idle()
    world.put("some", range={"n": {"gte": 2}})
    world.put("some", range={"n": {"gte": 2}})  # the same again is none
    assert world.states() == {"some": "pending"}
    matching.until_idle()
    world.remove("some")
    matching.until_idle()
    told = [
        {(one["key"], op) for one in world.told() for op in one["queries"].values()},
        {one["cause"] for one in world.told()},
    ]
    assert told[1] == {"query"} and len(world.told()) == 3 + 4 + 3
    assert ("k2", "changed") not in told[0] and ("k0", "left") in told[0] and ("k4", "left") in told[0]
    assert world.snapshot() == {} and world.states() == {}
    assert all(one["document"] == {"n": int(one["key"][1:])} for one in world.told()), "they are still there"


def test_one_that_is_cut_between_judging_and_writing_tells_everything_once(world: StandingWorld) -> None:
    """Whether the cut comes before the step or behind it, a second one goes on; one that comes late tells nothing."""
    world.put("big", range={"n": {"gte": 10}})
    late = world.matching()
    late.until_idle()
    for version, behind in ((1, False), (2, True)):
        world.write(version, a={"n": 10 + version}, b={"n": 1})
        cut = world.matching()
        step = cut.matches.step

        def ends(*given: Any, _step: Any = step, _behind: bool = behind) -> Any:
            if _behind:
                _step(*given)
            raise KeyboardInterrupt

        cut.matches.step = ends  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            cut.until_idle()
        cut.close()
        assert len(world.told()) == version - (not behind)
        other = world.matching()
        other.until_idle()
        other.close()
        assert len(world.told()) == version
    late.until_idle()  # it was as far as before all of that
    late.close()
    assert [(one["version"], one["queries"]) for one in world.told()] == [
        (1, {"big": "entered"}),
        (2, {"big": "changed"}),
    ]


def test_other_generations_of_either_side(world: StandingWorld, matching: Matching) -> None:
    world.put("big", range={"n": {"gte": 10}})
    world.put("word", match={"t": "blue"})
    world.write(1, a={"n": 10, "t": "blue"}, b={"n": 10}, c={"n": 10})
    matching.until_idle()
    told = len(world.told())
    # The cache is led to documents of which one is the same, one newer, one gone.
    other = world.generation(2)
    items = [Item("a", 1, b'{"n":10,"t":"blue"}'), Item("b", 2, b'{"n":11}'), Item("d", 2, b'{"n":10}')]
    other.write(VIEW, items)
    other.promote(VIEW, 1)
    world.sink = other
    matching.until_idle()
    assert {one["key"]: one["queries"] for one in world.told()[told:]} == {
        "b": {"big": "changed"},
        "c": {"big": "left"},
        "d": {"big": "entered"},
    }
    # The index is led to one in which `t` is no text: its words are not found any more, and one has no range of it.
    told = len(world.told())
    world.put("range", range={"t": {"gte": "a"}})
    matching.until_idle()
    world.properties = {"n": {"type": "long"}, "t": {"type": "keyword"}}
    world.write(3, a={"n": 10, "t": "blue sky"})
    matching.until_idle()
    assert world.told()[-1]["queries"] == {"big": "changed", "range": "changed", "word": "changed"}
    world.index(2).promote(VIEW, 1)
    matching.until_idle()
    assert world.told()[-1]["queries"] == {"word": "left"} and world.told()[-1]["cause"] == "query"
    assert folded(world.told()) == world.snapshot() and set(world.states().values()) == {"active"}


def test_documents_that_the_server_can_not_read_match_nothing(world: StandingWorld, matching: Matching) -> None:
    world.put("all", match_all={})
    matching.until_idle()
    world.write(1, a={"n": "no number"}, b={"n": 1}, c=[1, 2])
    matching.until_idle()
    assert world.snapshot() == {"b": {"all"}} and matching.matcher.unread == 2


def test_an_erasure_forgets_what_was_told_and_a_drop_leaves_nothing(world: StandingWorld, matching: Matching) -> None:
    world.put("all", match_all={})
    world.write(1, a={"n": 424242})
    matching.until_idle()
    sink = world.sink
    assert isinstance(sink, RedisSink) and sink.kept_changes(VIEW) == 2
    sink.forget_changes(VIEW)
    assert world.told() == [] and sink.kept_changes(VIEW) == 0
    matching.until_idle()
    assert world.told() == [] and world.snapshot() == {"a": {"all"}}, "it is known who matches, and not told again"
    for view in (VIEW, SAVED):
        sink.drop(view)
    with redis.Redis.from_url(world.cache.url) as client:
        assert list(client.scan_iter(f"{world.cache.name}:*")) == []
    drop_sink_state(world.pipeline, ["tested"])
    with client_of(world.search) as server:
        assert list(server.indices.get(index=f"{world.search.name}*", expand_wildcards="all").body) == []


def test_over_http_and_by_the_verb(world: StandingWorld) -> None:
    """Registered, judged by what `run` starts, followed over a connection that is cut, and removed."""
    said: list[str] = []
    with serving([world.file], "127.0.0.1", 0, said.append):
        url = said[0].rpartition(" ")[2]
        running = SimpleNamespace(pipeline=world.pipeline, only=(), paused={})
        with matching_beside(cast(Any, running)):
            answer = requests.put(
                f"{url}/v1/queries/{VIEW}/big", json={"query": {"range": {"n": {"gte": 10}}}}, timeout=10
            )
            assert answer.status_code == 200 and answer.json()["state"] == "pending", answer.text
            wrong = requests.put(f"{url}/v1/queries/{VIEW}/wrong", json={"terrm": {}}, timeout=10)
            assert wrong.status_code == 400 and wrong.json()["error"]["code"] == "query-refused"
            assert eventually(lambda: world.states() == {"big": "active"}, seconds=15)
            listening = Listening(url, path=f"/v1/matches/{VIEW}", query="big")
            listening.until("ready")
            world.write(1, a={"n": 10}, b={"n": 1})
            [first] = [one for one in listening.until("match") if one.name == "match"]
            listening.close()
            assert first.data["queries"] == {"big": "entered"} and first.data["document"] == {"n": 10}
            world.write(2, a=None)
            again = Listening(url, cursor=first.id, path=f"/v1/matches/{VIEW}")
            [left] = [one for one in again.until("match") if one.name == "match"]
            again.close()
            assert left.data["queries"] == {"big": "left"} and left.data["document"] is None
            began = time.monotonic()
        assert time.monotonic() - began < 2.5, "it ends when its process does"
        note = read_notes(world.pipeline)[VIEW]
        assert note.documents >= 1 and note.queries == 1 and note.error is None
        listed = CliRunner().invoke(command, ["list", str(world.file), VIEW, "--json"])
        report, shown = json.loads(listed.stdout), example("queries")
        assert [one["name"] for one in report["queries"]] == ["big"]
        assert report.keys() == shown.keys() and report["queries"][0].keys() == shown["queries"][0].keys()
        gone = requests.delete(f"{url}/v1/queries/{VIEW}/big", headers={"Content-Type": "application/json"}, timeout=10)
        assert gone.status_code == 200
        assert requests.get(f"{url}/v1/queries/{VIEW}/big", timeout=10).status_code == 404
