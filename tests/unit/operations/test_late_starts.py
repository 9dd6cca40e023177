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
from operations.run import flows
from operations.state.folder import register_of
from spark import flow as flow_module
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from spark.wanted import begin_start
from spark.warehouse import merge
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
