"""`run` ends promotions that were cut, and does everything else meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkUnavailable
from cdc.journal import what_of
from cdc.pipeline import Pipeline, loads
from operations.run import promotions as module
from operations.run.engine import Engine
from operations.run.promotions import Promotions, end_promotion
from operations.run.refusals import Refusals
from operations.state.folder import register_of
from tests.support.apart import Child
from tests.support.lone_cache import FILE
from tests.support.steps import wait


class Case:
    """A cut promotion, and processes of the test's."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.asked, self.children = pipeline, list[tuple[Any, ...]](), list[Child]()
        self.promotions = Promotions(cast(Any, self._start))

    def _start(self, work: Callable[..., Any], pipeline: Pipeline, *arguments: Any) -> Child:
        self.asked.append((work, *arguments))
        self.children.append(Child())
        return self.children[-1]

    def follow(self) -> list[str]:
        return self.promotions.follow(self.pipeline, ["cache"])


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    made = loads(FILE.format(folder=tmp_path), "shop.yaml", {})
    register = register_of(made, "cache")
    register.create("x")
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    register.move_readers(2)
    monkeypatch.setattr(module, "PROMOTION_SECONDS", 0.0)
    return made


def test_one_is_ended_at_a_time_and_what_came_of_it_is_told(pipeline: Pipeline) -> None:
    case = Case(pipeline)
    assert (case.follow(), case.follow(), case.promotions.busy) == ([], [], True)
    assert case.asked == [(end_promotion, "cache", 2)]
    (child,) = case.children
    child.said.append("sink cache: readers see generation 2")
    child.finish()
    register_of(pipeline, "cache").promote(2)
    (said,) = case.follow()
    assert said == "sink cache: readers see generation 2" and what_of(said) == {"sink": "cache", "generation": 2}
    assert (child.closed, case.promotions.busy, case.follow(), len(case.asked)) == (1, False, [], 1)


def test_what_could_not_be_ended_is_told_and_tried_later(pipeline: Pipeline) -> None:
    case = Case(pipeline)
    case.follow()
    case.children[0].finish(error=SinkUnavailable("it is away"))
    (said,) = case.follow()
    assert said == "sink cache: the promotion of generation 2 could not be finished: it is away"
    assert (case.follow(), len(case.asked)) == ([], 1)
    case.promotions._due["cache"] -= module.AGAIN_SECONDS
    assert (case.follow(), len(case.asked)) == ([], 2)


def test_an_engine_waits_for_none_and_ends_it_when_it_is_closed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million keys take minutes: no flow was started again meanwhile, no file taken up, no stop heeded."""
    none: Any = None
    runner = SimpleNamespace(stop=lambda: None)
    engine = Engine(pipeline, none, none, cast(Any, runner), [], [], 0, Refusals(pipeline))
    monkeypatch.setattr(engine, "_try", lambda *_: [])
    monkeypatch.setattr(module, "end_promotion", for_ever)
    began = time.monotonic()
    assert engine.follow() == [] and engine.promotions.busy
    engine.close()
    assert time.monotonic() - began < 30 and not engine.promotions.busy
    assert register_of(pipeline, "cache").cut_promotion(0.0) == 2, "the next start goes on with it"


def for_ever(say: Callable[[str], None], *_: Any) -> None:
    """As the renames of a large cache."""
    wait(say)
