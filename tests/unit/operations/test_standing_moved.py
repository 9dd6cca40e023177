"""Standing queries of a sink whose index, or a cache whose keys, are called otherwise by now. No server is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkUnavailable
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import defined_as
from operations.generations import promote as promoting
from operations.generations import retire as retiring
from operations.generations import targets
from operations.generations.promote import promote
from operations.generations.retire import retire
from operations.standing import watch
from operations.standing.matcher import Matcher
from operations.standing.place import StandingPlace, standing_place
from operations.standing.registered import Registered
from operations.standing.watch import ViewMatcher
from operations.state.folder import register_of
from sinks.elasticsearch.standing import carrying, queries
from sinks.redis.read import Moving
from sinks.redis.stream.matches import State
from sinks.redis.stream.tail import Standing
from spark.disk import made_of
from spark.disk.made_of import define
from tests.support.promoted import promoted
from tests.support.query_server import QueryServer

FILE = """\
version: 1
name: p
source: {{host: 127.0.0.1, port: 1, database: d, user: u, password: x, tables: [public.t]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{v: {{root: t}}}}
sinks:
  search: {{type: elasticsearch, url: "http://127.0.0.1:1", view: v, {index}}}
  cache: {{type: redis, url: "redis://127.0.0.1:1", view: v, changes: {{}}, key_prefix: "{keys}"}}
queries: {{v: {{search: search, changes: cache}}}}
engine: {{state_dir: {folder}}}
"""


def load(folder: Path, index: str = 'index_prefix: ""', keys: str = "") -> Pipeline:
    return loads(FILE.format(folder=folder / "state", index=index, keys=keys), "p.yaml")


def begin(pipeline: Pipeline, sink: str, number: int = 1) -> None:
    """A generation that has written, and notes which views it has."""
    generation = register_of(pipeline, sink).generation(number)
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(generation, pipeline, [])
    generation.note_views(["v"])


def next_shown(pipeline: Pipeline, sink: str) -> None:
    """The next generation of a sink, of this file, which readers see."""
    register = register_of(pipeline, sink)
    begin(pipeline, sink, register.create("changed").number)
    promoted(register, register.last())


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[StandingPlace]:
    """Where a matcher has begun."""
    begun: list[StandingPlace] = []

    def caching(place: StandingPlace) -> Any:
        begun.append(place)
        return SimpleNamespace(tail=None, matches=None, refusals=lambda _: {}, close=lambda: None)

    monkeypatch.setattr(watch, "Caching", caching)
    monkeypatch.setattr(watch, "Searching", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(watch, "ServerSearches", lambda _: None)
    idle = {"lag_seconds": 0.0, "queries": 0, "pending": 0, "refused": 0, "documents": 0, "told": 0, "unread": 0}
    step = lambda: time.sleep(0.01)  # noqa: E731
    monkeypatch.setattr(watch, "Matcher", lambda *_: SimpleNamespace(**idle, batch=1, step=step))
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(watch, "PAUSE_SECONDS", 0.01)
    return begun


@contextmanager
def matching(pipeline: Pipeline) -> Iterator[None]:
    matcher = ViewMatcher(pipeline, "v")
    try:
        yield
    finally:
        matcher.stop()
        matcher.join(10)


def soon(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


def test_a_matcher_goes_where_readers_are_led(tmp_path: Path, places: list[StandingPlace]) -> None:
    """It went on with the queries of the former index, and wrote under the former keys, where nobody reads any more,
    until `run` was started again."""
    old = load(tmp_path)
    for sink in ("search", "cache"):
        begin(old, sink)
    new = load(tmp_path, 'index_prefix: "shop-"', "shop:")
    with matching(new):
        assert soon(lambda: len(places) == 1)
        time.sleep(0.2)
        assert [one.target.queries for one in places] == ["v_queries"]  # and stays while nothing has changed
        next_shown(new, "search")
        assert soon(lambda: len(places) == 2)
        next_shown(new, "cache")
        assert soon(lambda: len(places) == 3)
    assert [(one.target.queries, one.settings.key_prefix) for one in places[1:]] == [
        ("shop-v_queries", ""),
        ("shop-v_queries", "shop:"),
    ]
    assert places[-1] == standing_place(new, "v")


def test_a_promotion_is_said_with_its_words_and_is_no_warning(
    tmp_path: Path, places: list[StandingPlace], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each promotion of a cache warned of `Moving: `, without a word of what that is."""
    made = load(tmp_path)
    for sink in ("search", "cache"):
        begin(made, sink)

    def step() -> None:
        raise Moving

    monkeypatch.setattr(watch, "Matcher", lambda *_: SimpleNamespace(documents=0, told=0, unread=0, batch=1, step=step))
    with caplog.at_level(logging.INFO, "operations.standing.watch"), matching(made):
        assert soon(lambda: len(places) > 1)
    why = "sink 'cache' (Redis at 127.0.0.1:1): keys of v are being renamed by a promotion"
    said = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert said == [("INFO", f"standing queries of v are not judged: {why}")]


def test_before_changes_are_kept_that_is_said_and_not_that_something_is_gone() -> None:
    """`status` said "no changes are kept now" at each first start, as where `run` is missing."""
    tail = SimpleNamespace(standing=lambda: Standing(0, None))
    matches = SimpleNamespace(state=lambda: State(1, "1", {"registered": "1"}, {}))
    found = Registered("1", "", {})
    searches = SimpleNamespace(look=lambda _: found, follow=lambda *_: found)
    with pytest.raises(SinkUnavailable) as refused:
        Matcher(*cast(Any, (searches, tail, matches))).step()
    assert refused.value.what == "`run` has not begun to keep the view's changes yet"


def test_a_look_makes_the_file_as_a_generation_was_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each view's look made all views anew, twice: 50 of them took a tenth of a processor, beside the flows."""
    made: list[str] = []

    def counted(pipeline: Pipeline, sink: str, *rest: Any) -> Pipeline:
        made.append(sink)
        return defined_as(pipeline, sink, *rest)

    pipeline, again = load(tmp_path), load(tmp_path)
    for sink in ("search", "cache"):
        begin(pipeline, sink)
    monkeypatch.setattr(made_of, "defined_as", counted)
    assert all(standing_place(pipeline, "v") == standing_place(again, "v") for _ in range(1))
    assert made == ["cache", "search"] * 2  # and once of another file
    generation = register_of(pipeline, "search").generation()
    moved = load(tmp_path, 'index_prefix: "shop-"')
    assert standing_place(moved, "v").target.queries == "v_queries"
    made_of.keep_definition(generation, made_of.proposed(generation, moved, []))
    assert standing_place(moved, "v").target.queries == "shop-v_queries"


# -- queries that were put by hand -------------------------------------------------------------------------------------

MOVED = 'index_prefix: "shop-"'


class Readers:
    """The aliases of a sink, by which readers see a generation; who registers queries meanwhile is called."""

    def __init__(self) -> None:
        self.seen = 1
        self.meanwhile: Callable[[], object] = lambda: None

    def living(self, _view: str) -> int:
        return self.seen

    def promote(self, _view: str, _expected: int) -> None:
        self.meanwhile()

    def close(self) -> None:
        pass


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Readers:
    made = Readers()
    monkeypatch.setattr(promoting, "open_target", lambda _: made)
    monkeypatch.setattr(retiring, "drop_generation", lambda *_: None)
    monkeypatch.setattr(targets, "drop_generation", lambda *_: None)
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> QueryServer:
    made = QueryServer()
    for module in (carrying, queries):
        monkeypatch.setattr(module, "connect", lambda _: made)
    return made


def second(tmp_path: Path, index: str = MOVED) -> Pipeline:
    """A file whose generation 2 is filled, beside the first one, which readers see."""
    begin(load(tmp_path), "search")
    pipeline = load(tmp_path, index)
    register = register_of(pipeline, "search")
    number = register.create("changed").number
    begin(pipeline, "search", number)
    register.move(number, "ready")
    return pipeline


def show(pipeline: Pipeline, number: int) -> list[str]:
    """Readers are led to a generation; what was said."""
    said: list[str] = []
    promote(pipeline, "search", number, said.append, behind_too=True)
    return said


def test_queries_go_along_to_another_index_and_back(tmp_path: Path, readers: Readers, server: QueryServer) -> None:
    """They were left behind: all that had matched was told as left, and `put` went to where nobody looked."""
    pipeline = second(tmp_path)
    server.register("v_queries", "big", 7, term={"a": 1})
    server.register("v_queries", "small", 8, term={"a": 2})
    show(pipeline, 2)
    assert server.stored["shop-v_queries"] == server.stored["v_queries"]  # also of their revisions
    assert standing_place(pipeline, "v").target.queries == "shop-v_queries"
    server.register("shop-v_queries", "new")
    server.register("shop-v_queries", "big", 9, term={"a": 3})
    del server.stored["shop-v_queries"]["small"]
    show(pipeline, 1)
    assert server.stored["v_queries"] == server.stored["shop-v_queries"]
    assert server.names("v_queries") == {"big", "new"}


def test_what_is_registered_while_readers_are_led_over_is_not_left_behind(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    pipeline = second(tmp_path)
    server.register("v_queries", "big", 7)
    server.register("v_queries", "gone", 8)

    def meanwhile() -> None:
        assert server.names("shop-v_queries") == {"big", "gone"}  # who judges there misses none
        server.register("v_queries", "late", 9)
        del server.stored["v_queries"]["gone"]

    readers.meanwhile = meanwhile
    assert show(pipeline, 2) == ["sink search: readers see generation 2 (generation 1 stays, for `headwater rollback`)"]
    assert server.names("shop-v_queries") == {"big", "late"}


def test_who_has_gone_back_is_told_the_way_forward(tmp_path: Path, readers: Readers, server: QueryServer) -> None:
    """The generation that was left stayed "for `headwater rollback`", which is what had just been done."""
    pipeline = second(tmp_path)
    show(pipeline, 2)
    back, *_ = show(pipeline, 1)
    way = "`headwater promote p.yaml search --generation 2` shows it again"
    assert back == f"sink search: readers see generation 1 (generation 2 stays: {way})"
    forth, *_ = show(pipeline, 2)
    assert forth.endswith("(generation 1 stays, for `headwater rollback`)")


def test_readers_stay_where_they_are_while_queries_can_not_be_taken_along(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    pipeline = second(tmp_path)
    server.register("v_queries", "big")
    server.failing = {"status": 429, "error": {"type": "circuit_breaking_exception", "reason": "full"}}
    with pytest.raises(SinkUnavailable, match="standing query big could not be taken along: circuit_breaking"):
        show(pipeline, 2)
    register = register_of(pipeline, "search")
    assert (register.living(), register.promotion()) == (1, None)
    server.failing = None
    show(pipeline, 2)
    assert server.names("shop-v_queries") == {"big"}


def test_who_is_led_over_hears_of_queries_that_were_left_behind(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    pipeline = second(tmp_path)

    def meanwhile() -> None:
        server.register("v_queries", "late")
        server.failing = {"status": 403, "error": {"type": "security_exception", "reason": "no"}}

    readers.meanwhile = meanwhile
    said = show(pipeline, 2)
    assert "what was put or removed in these seconds is not (sink 'search'" in said[0]
    assert register_of(pipeline, "search").living() == 2


def test_of_the_same_index_no_server_is_asked(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "connect", lambda _: pytest.fail("it is asked"))
    show(second(tmp_path, "bulk_count: 7"), 2)


def test_queries_at_a_former_index_go_with_the_last_generation_that_is_there(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    pipeline = second(tmp_path)
    server.register("v_queries", "big")
    show(pipeline, 2)
    register = register_of(pipeline, "search")
    begin(load(tmp_path), "search", register.create("as before").number)
    said: list[str] = []
    retire(pipeline, "search", 3, said.append)
    assert server.names("v_queries") == {"big"}  # generation 1 is there still
    retire(pipeline, "search", 1, said.append)
    gone = "generation 1 removed, and the standing queries that it had at v_queries"
    assert said == ["sink search: generation 3 removed", f"sink search: {gone}"]
    assert server.stored.keys() == {"shop-v_queries"}


def test_an_index_of_somebody_else_that_is_called_so_is_left_alone(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    """No query was ever registered: it is neither read as queries nor removed, and keeps nothing from its work."""
    pipeline = second(tmp_path)
    server.foreign, server.stored["v_queries"] = {"v_queries"}, {"1": {"what": "ever"}}
    show(pipeline, 2)
    retire(pipeline, "search", 1, lambda _: None)
    targets.drop_sink_state(pipeline, ["search"])
    assert server.stored == {"v_queries": {"1": {"what": "ever"}}}


def test_a_sink_that_is_dropped_leaves_no_queries_at_a_former_index(
    tmp_path: Path, readers: Readers, server: QueryServer
) -> None:
    pipeline = second(tmp_path)
    server.register("v_queries", "big")
    targets.drop_sink_state(pipeline, ["search"])
    assert server.stored == {}
