"""A flow's start that its server answers after the flow was told to end writes nothing more."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import StateError
from cdc.pipeline import Pipeline, load
from operations.generations import elsewhere
from operations.opened import Opened
from operations.run import flows, history
from operations.run.history import OpenedHistory
from operations.state.folder import register_of
from spark import flow as flow_module
from spark.flow import Flow, Reading
from spark.join import start as joined
from spark.reading.spec import FlowSpec
from spark.wanted import begin_start, refuse_unwanted
from spark.warehouse import merge
from spark.warehouse.history import history as of_history
from tests.support.lone_cache import written


class Slow:
    """A sink that answers its first question as nobody waits for that any more."""

    def __init__(self, unwanted: Event) -> None:
        self.unwanted, self.done = unwanted, list[str]()

    def there(self, *_: Any) -> bool:
        self.unwanted.set()
        return False

    def claimed(self, _view: str) -> None:
        self.unwanted.set()

    def living(self, _view: str) -> None:
        return None

    def setup(self) -> None:
        self.done.append("set up")

    def make(self, *_: Any) -> None:
        self.done.append("made")

    def filled(self, _views: Any) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load(written(tmp_path))


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    spec = FlowSpec("cache", cast(Any, {"v": SimpleNamespace(name="v")}), {"t": ()}, {}, {}, {})
    return Flow("main", spec, Reading("", {}, None), tmp_path / "g1" / "main")


def refused(unwanted: Event, start: Callable[[], Any]) -> None:
    """The start ends with a refusal, in a context of its own, as a thread has it."""

    def begun() -> None:
        begin_start(unwanted)
        with pytest.raises(StateError, match="told to end while it was being started"):
            start()

    copy_context().run(begun)


def test_it_does_not_note_a_claim(pipeline: Pipeline, flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(Event())
    monkeypatch.setattr(elsewhere, "open_target", lambda _config: slow)
    build = Opened(pipeline, register_of(pipeline, "cache").generation(1), [], 1)
    start = flows._ours(build, lambda *_: cast(Any, slow.done.append("begun")))
    refused(slow.unwanted, lambda: start(cast(Any, None), flow))
    assert not flow.folder.exists() and not slow.done


def test_it_does_not_make_a_target_of_documents(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(Event())

    def awaited(_folder: Path) -> set[str]:
        slow.unwanted.set()
        return set()

    monkeypatch.setattr(flows, "open_sink", lambda _config: slow)
    monkeypatch.setattr(flows, "taken_up", awaited)
    start = flows._with_setup(lambda *_: cast(Any, slow.done.append("begun")))
    refused(slow.unwanted, lambda: start(cast(Any, None), flow))
    assert not slow.done


def test_it_does_not_make_a_table(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, lease = Slow(Event()), SimpleNamespace(token=1, check=lambda: None)
    monkeypatch.setattr(merge, "TablePlace", lambda *_: slow)
    refused(slow.unwanted, lambda: merge.ready_place(cast(Any, None), flow, None, "c", cast(Any, lease), "p/cache"))
    assert not slow.done


def test_it_begins_no_query(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    unwanted, told = Event(), list[str]()
    unwanted.set()
    monkeypatch.setattr(flow_module, "tell_applied", lambda *_: told.append("told"))
    refused(unwanted, lambda: flow_module.begin(cast(Any, SimpleNamespace(_spark=None)), flow))
    assert not told


def test_its_history_notes_no_claim(pipeline: Pipeline, flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    unwanted, noted = Event(), list[str]()
    spec = SimpleNamespace(topics={}, views={})
    for name in ("source_catalogue", "_bind_again", "root_tables"):
        monkeypatch.setattr(history, name, lambda *_: None)
    monkeypatch.setattr(history, "spec_of", lambda *_: spec)
    monkeypatch.setattr(history, "_refuse_elsewhere", lambda *_: unwanted.set())
    monkeypatch.setattr(history, "note_claim", lambda *_: noted.append("claim"))
    # What would come next.
    monkeypatch.setattr(history, "HistoryPlace", lambda *_: refuse_unwanted())
    of = SimpleNamespace(sinks={"lake": SimpleNamespace(namespace="n")})
    opened = OpenedHistory(cast(Any, of), "lake", flow.folder, cast(Any, None), 1, "s")
    monkeypatch.setattr(history, "catalog_name", lambda _sink: "c")
    refused(unwanted, lambda: history._start(opened, lambda: 1, cast(Any, None), flow))
    assert not noted


def test_its_history_makes_no_table(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(Event())
    monkeypatch.setattr(of_history, "_put_aside", lambda *_: None)
    monkeypatch.setattr(of_history, "still_written", lambda *_: flow.spec)
    monkeypatch.setattr(of_history, "read_again", lambda *_: slow.unwanted.set())
    place = SimpleNamespace(make=lambda *_, **__: slow.make() or refuse_unwanted(), name=lambda _view: "t")
    lease: Any = SimpleNamespace(check=lambda: None)
    start = of_history.start_history
    refused(slow.unwanted, lambda: start(cast(Any, None), flow, cast(Any, place), lease, [], cast(Any, None)))
    assert not slow.done


@pytest.mark.parametrize("answers", ["before", "there", "prepare"])
def test_a_joined_one_makes_nothing(flow: Flow, monkeypatch: pytest.MonkeyPatch, answers: str) -> None:
    """Neither row store nor target, nor its query, after the answer that came too late."""
    unwanted, done = Event(), list[str]()

    def answered(name: str) -> None:
        if name == answers:
            unwanted.set()

    answered("before")
    sink = SimpleNamespace(
        there=lambda _view: answered("there") or True, setup=lambda: done.append("sink"), close=lambda: None
    )
    store = SimpleNamespace(setup=lambda: done.append("store"), close=lambda: None)
    view = SimpleNamespace(name="v", layout=None)
    monkeypatch.setattr(joined, "went_live", lambda _flow: False)
    monkeypatch.setattr(joined, "open_sink", lambda _config: sink)
    monkeypatch.setattr(joined, "open_store", lambda *_: store)
    monkeypatch.setattr(joined, "view_of", lambda _spec: view)
    monkeypatch.setattr(joined, "prepare", lambda *_: answered("prepare"))
    monkeypatch.setattr(joined.health, "check_layout", lambda *_: None)
    monkeypatch.setattr(joined.health, "arranged", lambda *_: False)
    monkeypatch.setattr(joined, "JoinedQuery", lambda *_: done.append("query"))
    refused(unwanted, lambda: joined.start_joined(cast(Any, None), flow))
    assert done == {"before": [], "there": ["store"], "prepare": ["store", "sink"]}[answers]
