"""Standing queries of a sink whose index, or a cache whose keys, are called otherwise by now. No server is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.pipeline import Pipeline, loads
from operations.standing import watch
from operations.standing.place import StandingPlace, standing_place
from operations.standing.watch import ViewMatcher
from operations.state.folder import register_of
from spark.disk.made_of import define
from tests.support.promoted import promoted

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
