"""Promotions of a sink with several views that were cut half-way, and views that only some generations have."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import SinkRefused, StateError
from cdc.pipeline import Pipeline, loads
from operations.generations import promote as module
from operations.generations.promote import promote
from operations.generations.retire import retire
from operations.run import promotions
from operations.run.promotions import Promotions, finish_promotion
from operations.state.folder import register_of
from operations.status.generations import generations_report
from sinks.configure import plain_config
from sinks.factory import open_sink
from spark.disk.made_of import define
from tests.support.begun_beside import begun_beside
from tests.support.servers import servers
from tests.support.source import eventually

pytestmark = pytest.mark.stack

TEXT = """
version: 1
name: NAME
source: {host: h, database: shop, user: u, password: secret, tables: [public.orders, public.lines]}
kafka: {bootstrap: "b:9092"}
connect: {url: "http://c:8083"}
views: {NAME_a: {root: orders}, NAME_b: {root: lines}}
sinks: {out: {TARGET, views: [VIEWS]}}
engine: {state_dir: STATE}
"""


class Out:
    """The sink, and how its generations come to be without a log."""

    def __init__(self, target: str, state: Path) -> None:
        self.name = f"t{secrets.token_hex(4)}"
        self.target, self.state = target.replace("NAME", self.name), state
        self.views = {"a": f"{self.name}_a", "b": f"{self.name}_b"}

    def pipeline(self, views: str = "ab") -> Pipeline:
        text = TEXT.replace("TARGET", self.target).replace("STATE", str(self.state))
        text = text.replace("VIEWS", ", ".join(self.views[view] for view in views))
        return loads(text.replace("NAME", self.name), "shop.yaml", {})

    def made(self, number: int, views: str) -> None:
        pipeline = self.pipeline(views)
        register = register_of(pipeline, "out")
        if number > 1:
            assert begun_beside(register).number == number
            register.move(number, "ready")
        generation = register.generation(number)
        define(generation, pipeline, [])
        generation.note_views([self.views[view] for view in views])
        sink = open_sink(plain_config(pipeline, "out", number, generation.views()))
        sink.setup()
        sink.close()

    def shown(self) -> dict[str, int | None]:
        sink = open_sink(plain_config(self.pipeline(), "out", 1, list(self.views.values())))
        try:
            return {short: sink.living(view) for short, view in self.views.items()}
        finally:
            sink.close()

    def cut(self, number: int, old: int, *views: str) -> None:
        """What a promotion leaves that was killed after these views."""
        pipeline = self.pipeline()
        register_of(pipeline, "out").begin_promotion(number, old)
        register_of(pipeline, "out").move_readers(number)
        sink = open_sink(plain_config(pipeline, "out", number, list(self.views.values())))
        for view in views:
            sink.promote(self.views[view], old)
        sink.close()


@pytest.fixture(params=["elasticsearch", "redis"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Out]:
    stack = servers()
    stack.up([request.param if request.param == "elasticsearch" else "redis-cache"])
    ends = stack.endpoints
    targets = {
        "elasticsearch": f'type: elasticsearch, url: "{ends.elasticsearch_url}"',
        "redis": f'type: redis, url: "{ends.redis_cache_url}", key_prefix: "NAME:"',
    }
    made = Out(targets[request.param], tmp_path)
    yield made
    pipeline = made.pipeline()
    for entry in register_of(pipeline, "out").entries():
        sink = open_sink(plain_config(pipeline, "out", entry.number, list(made.views.values())))
        for view in made.views.values():
            sink.drop(view)
        sink.close()


def quiet(_line: str) -> None:
    """Say nothing."""


def test_a_cut_promotion_is_finished_or_taken_back_and_nothing_of_it_is_removed(out: Out) -> None:
    pipeline = out.pipeline()
    for number in (1, 2):
        out.made(number, "ab")
    out.cut(2, 1, "a")
    assert out.shown() == {"a": 2, "b": 1}
    (told,) = generations_report(pipeline)["sinks"]
    assert told["promotion"] == {"from": 1, "to": 2, "moving": True}
    with pytest.raises(StateError, match="has not ended"):
        retire(pipeline, "out", 2, quiet)
    # Readers were on their way to 2, and never had it: nothing that `rollback` would go back to.
    assert promote(pipeline, "out", 1, quiet)["previous"] is None
    assert out.shown() == {"a": 1, "b": 1}
    assert register_of(pipeline, "out").promotion() is None
    out.cut(2, 1, "a")
    finish_promotion(pipeline, "out", 0.0, quiet)
    assert out.shown() == {"a": 2, "b": 2}
    assert register_of(pipeline, "out").living() == 2
    assert generations_report(pipeline)["sinks"][0]["promotion"] is None
    retire(pipeline, "out", 1, quiet)
    assert out.shown() == {"a": 2, "b": 2}


def test_run_ends_a_cut_promotion_beside_its_work(out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, ending = out.pipeline(), Promotions()
    for number in (1, 2):
        out.made(number, "ab")
    out.cut(2, 1, "a")
    monkeypatch.setattr(promotions, "PROMOTION_SECONDS", 0.0)
    said = ending.follow(pipeline, ["out"])
    assert said == [] and ending.busy and out.shown()["b"] == 1, "nobody has waited for it"
    assert eventually(lambda: said.extend(ending.follow(pipeline, ["out"])) or not ending.busy, 60)
    assert said == ["sink out: readers see generation 2 (generation 1 stays, for `headwater rollback`)"]
    assert out.shown() == {"a": 2, "b": 2}
    assert register_of(pipeline, "out").living() == 2


def test_taking_back_may_itself_be_cut(out: Out) -> None:
    pipeline = out.pipeline()
    for number in (1, 2):
        out.made(number, "ab")
    out.cut(2, 1, "a", "b")
    out.cut(1, 2, "b")
    assert out.shown() == {"a": 2, "b": 1}
    finish_promotion(pipeline, "out", 0.0, quiet)
    assert out.shown() == {"a": 1, "b": 1}


def test_who_sleeps_before_the_last_step_leaves_readers_where_they_were_taken_back_to(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, lead, slept = out.pipeline(), module._lead, list[int]()
    for number in (1, 2):
        out.made(number, "ab")

    def sleepy(*given: Any) -> None:
        lead(*given)
        if not slept:
            slept.append(1)
            finish_promotion(pipeline, "out", 0.0, quiet)
            promote(pipeline, "out", 1, quiet)

    monkeypatch.setattr(module, "_lead", sleepy)
    with pytest.raises(StateError, match="by somebody else"):
        promote(pipeline, "out", 2, quiet)
    assert out.shown() == {"a": 1, "b": 1}
    assert register_of(pipeline, "out").living() == 1


def test_a_view_that_the_living_generation_does_not_have_is_no_obstacle(out: Out) -> None:
    pipeline = out.pipeline()
    out.made(1, "a")
    out.made(2, "ab")
    promote(pipeline, "out", 2, quiet)
    promote(pipeline, "out", 1, quiet)  # back: the first one has no b
    assert out.shown()["a"] == 1
    out.made(3, "ab")
    promote(pipeline, "out", 3, quiet)
    assert out.shown() == {"a": 3, "b": 3}


def test_a_promotion_that_the_target_refuses_has_not_begun(out: Out) -> None:
    pipeline = out.pipeline()
    for number in (1, 2):
        out.made(number, "ab")
    lost = open_sink(plain_config(pipeline, "out", 2, list(out.views.values())))
    for view in out.views.values():
        lost.drop(view)
    lost.close()
    with pytest.raises(SinkRefused, match="to promote"):
        promote(pipeline, "out", 2, quiet, behind_too=True)
    assert out.shown() == {"a": 1, "b": 1}
    assert register_of(pipeline, "out").promotion() is None
    retire(pipeline, "out", 2, quiet)  # what the refusal leads to is not refused in its turn


def test_a_promotion_that_is_refused_half_way_has_begun(out: Out) -> None:
    pipeline = out.pipeline()
    for number in (1, 2):
        out.made(number, "ab")
    lost = open_sink(plain_config(pipeline, "out", 2, list(out.views.values())))
    lost.drop(out.views["b"])
    lost.close()
    with pytest.raises(SinkRefused, match="to promote"):
        promote(pipeline, "out", 2, quiet, behind_too=True)
    assert out.shown() == {"a": 2, "b": 1}
    with pytest.raises(StateError, match="has not ended"):
        retire(pipeline, "out", 2, quiet)
