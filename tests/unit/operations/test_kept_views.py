"""Topics keep all versions for as long as a generation shows them, whatever the file says. No server is asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, NewerFormat, StateError
from cdc.log.client import Topic
from cdc.pipeline import Pipeline, loads
from connectors import apply as place
from connectors.preflight import brokers
from connectors.topics import FOR_EVER, LAG, data_topics, plan_topics
from console.cli.main import cli
from operations import plan
from operations.check import views
from operations.generations.kept_views import with_kept_views
from operations.jobs.work import resnapshot_step
from operations.schema.steps import capture
from operations.state.folder import register_of
from spark.disk.made_of import define
from tests.support.begun_beside import begun_beside
from tests.support.promoted import promoted

FILE = """\
version: 1
name: p
source: {{host: 127.0.0.1, port: 1, database: d, user: u, password: x, tables: [public.orders, public.products]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
row_store: {{url: "redis://127.0.0.1:1/3"}}
views:
  order: {{root: orders, refs: {{product: {{table: products, on: {{product_id: id}}{was}}}}}}}
sinks: {{search: {{{sink}, view: order}}}}
engine: {{state_dir: {folder}}}
"""
WAS, IS = ", as_of: ordered_at", ""
PRODUCTS = Table("public", "products", (Column("id", "integer", "int4"),), ("id",))
CATALOGUE = Catalogue({one.qualified: one for one in (PRODUCTS, Table("public", "orders", (), ("id",)))})
INDEX = 'type: elasticsearch, url: "http://127.0.0.1:1"'


def load(folder: Path, was: str, sink: str = INDEX) -> Pipeline:
    return loads(FILE.format(folder=folder / "state", was=was, sink=sink), str(folder / "p.yaml"))


def begin(pipeline: Pipeline, number: int = 1) -> None:
    """A generation that has written."""
    generation = register_of(pipeline, "search").generation(number)
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(generation, pipeline, [])


def lag(pipeline: Pipeline) -> str:
    """For how long versions of products stay, at the least."""
    topics = {topic.name: topic for topic in data_topics(with_kept_views(pipeline), CATALOGUE)}
    assert topics["p.public.orders"].config[LAG] == "3600000"
    return topics["p.public.products"].config[LAG]


def test_versions_stay_until_no_generation_shows_them(tmp_path: Path) -> None:
    """`apply` let Kafka throw them away at once: a file that was put back was built of what was left, and `verify`,
    which reads the same log, called it equal."""
    first, second = load(tmp_path, WAS), load(tmp_path, IS)
    begin(first)
    register = register_of(first, "search")
    assert (lag(first), lag(second)) == (FOR_EVER, FOR_EVER)
    number = begun_beside(register, "views.order changed", own=True).number
    begin(second, number)
    promoted(register, number)
    assert lag(second) == FOR_EVER  # the way back
    promoted(register, 1)
    promoted(register, number)
    register.remove(1)
    assert lag(second) == "3600000"


def test_what_is_filled_needs_them_and_what_has_not_begun_does_not(tmp_path: Path) -> None:
    first, second = load(tmp_path, WAS), load(tmp_path, IS)
    define(register_of(first, "search").generation(), first, [])
    assert lag(second) == "3600000"  # it takes the file as it will be
    begin(second)
    number = begun_beside(register_of(first, "search"), "views.order changed", own=True).number
    begin(first, number)
    assert lag(second) == FOR_EVER


def test_a_sink_of_another_kind_is_for_others_to_refuse(tmp_path: Path) -> None:
    begin(load(tmp_path, WAS))
    assert lag(load(tmp_path, IS, 'type: redis, url: "redis://127.0.0.1:1/0"')) == FOR_EVER


def without(folder: Path) -> Pipeline:
    """A file that has another sink in the place of the one that was filled."""
    text = FILE.format(folder=folder / "state", was=IS, sink=INDEX).replace("{search:", "{other:")
    return loads(text, str(folder / "p.yaml"))


def test_a_sink_that_was_let_go_of_keeps_them_until_it_is_dropped(tmp_path: Path) -> None:
    """`apply` said that what it holds stays; put back, it went on in a log whose versions were gone."""
    begin(load(tmp_path, WAS))
    assert lag(without(tmp_path)) == FOR_EVER
    damaged = tmp_path / "state" / "p" / "search" / "g1" / "definition.json"
    whole = damaged.read_text()
    for text in ("", "{}"):  # of a sink that nobody asks for any more: it stopped plan, apply, check and run
        damaged.write_text(text)
        assert lag(without(tmp_path)) == "3600000"
    damaged.write_text(whole)
    with pytest.raises(StateError):
        damaged.write_text("")
        lag(load(tmp_path, WAS))
    shutil.rmtree(tmp_path / "state" / "p" / "search")
    assert lag(without(tmp_path)) == "3600000"


def test_check_says_for_which_generation_alone_they_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "wrong_in_generations", lambda *_: [])
    first, second = load(tmp_path, WAS), load(tmp_path, IS)

    def told(pipeline: Pipeline) -> list[tuple[str, str]]:
        return [(one.message, one.fix) for one in views._of_generations(pipeline, CATALOGUE, lambda _: None)]

    begin(first)
    register = register_of(first, "search")
    number = begun_beside(register, "views.order changed", own=True).number
    begin(second, number)
    assert told(second) == []  # readers see it
    promoted(register, number)
    assert told(first) == []  # the file asks for it
    so = "topic p.public.products keeps all versions of its rows, for view order in generation 1 of sink search alone"
    way = "if nobody is to go back to it: {}; then `headwater apply FILE`"
    assert told(second) == [(so, way.format("`headwater retire FILE search --generation 1`"))]
    assert told(without(tmp_path)) == [
        (so, way.format("`headwater drop --sink search`, with a file that has that sink"))
    ]
    register.remove(1)
    assert told(second) == []


def test_what_a_newer_headwater_has_defined_is_refused(tmp_path: Path) -> None:
    pipeline = load(tmp_path, WAS)
    begin(pipeline)
    path = register_of(pipeline, "search").generation().folder / "definition.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(NewerFormat):
        with_kept_views(pipeline)


def test_a_file_that_says_what_it_said_is_itself(tmp_path: Path) -> None:
    pipeline = load(tmp_path, WAS)
    begin(pipeline)
    assert with_kept_views(pipeline) is pipeline


def kept_whole() -> dict[str, Topic]:
    """Topics as they are for a view that shows rows as they were."""
    name = "p.public.products"
    return {name: Topic(name, 8, 1, {LAG: FOR_EVER, "cleanup.policy": "compact"})}


def test_plan_says_that_it_can_not_be_undone() -> None:
    wanted = Topic("p.public.products", 8, 1, {LAG: "3600000", "segment.ms": "1"})
    [action] = plan_topics([wanted], kept_whole())
    gone = "former versions of its rows go, and nothing brings them back"
    assert action.detail == f"set {LAG}=3600000, segment.ms=1: {gone}"
    [other] = plan_topics([wanted], {wanted.name: Topic(wanted.name, 8, 1, {LAG: "1", "segment.ms": "1"})})
    assert other.detail == f"set {LAG}=3600000"


def test_check_says_what_is_wanted_as_it_said_it(tmp_path: Path) -> None:
    pipeline = load(tmp_path, IS)
    topics = {topic.name: topic for topic in data_topics(load(tmp_path, WAS), CATALOGUE)}
    kafka = SimpleNamespace(describe=lambda names: topics if names else {}, beginning=lambda _: ())
    site: Any = SimpleNamespace(
        pipeline=pipeline, kafka=kafka, catalogue=CATALOGUE, failed=set(), source=ConfigError("")
    )
    site.connect = SimpleNamespace(config=lambda _: None)
    found = [one for one in brokers.run(site) if one.about == "p.public.products"]
    assert [one.message for one in found] == [f"other settings than the pipeline's: {LAG}=3600000 is wanted"]


Verb = Callable[[Path], object]


def applied(path: Path) -> object:
    return CliRunner().invoke(cli, ["apply", str(path)], catch_exceptions=False)


def checked(path: Path) -> object:
    return CliRunner().invoke(cli, ["check", str(path)], catch_exceptions=False)


def read_again(path: Path) -> object:
    return CliRunner().invoke(cli, ["resnapshot", str(path), "--all", "--no-wait"], catch_exceptions=False)


def planned(path: Path) -> object:
    with pytest.raises(KeyError):
        plan.plan(loads(path.read_text(), str(path)))
    return None


VERBS: dict[str, Verb] = {
    "apply": applied,
    "check": checked,
    "resnapshot": read_again,
    "plan": planned,
    "run captures": lambda path: capture(lambda _: None, loads(path.read_text(), str(path))),
    "a job reads again": lambda path: resnapshot_step(lambda _: None, path, None, {}),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """The pipelines by which topics were to be made."""
    made: list[Pipeline] = []

    def apply(
        pipeline: Pipeline, *_: Any, within: AbstractContextManager[None] | None = None, **__: Any
    ) -> place.Result:
        made.append(pipeline)
        return place.Result([], Catalogue(), fresh=False)

    def others(pipeline: Pipeline, *_: Any) -> list[Any]:
        made.append(pipeline)
        return []

    def actions(pipeline: Pipeline) -> Any:
        made.append(pipeline)
        raise KeyError

    monkeypatch.setattr("connectors.apply.apply", apply)
    monkeypatch.setattr("operations.gate.refuse_wrong_views", lambda *_: None)
    monkeypatch.setattr("connectors.resnapshot.resnapshot", others)
    monkeypatch.setattr("connectors.snapshots.snapshot.wait_snapshot", lambda *_, **__: SimpleNamespace(tables=[]))
    monkeypatch.setattr("connectors.preflight.preflight", others)
    for name in ("views", "sinks", "warehouses", "webhooks"):
        monkeypatch.setattr(f"operations.check.{name}.checked_{name}", lambda *_: [])
    monkeypatch.setattr("operations.plan.plan_pipeline", actions)
    return made


@pytest.mark.parametrize("verb", VERBS)
def test_whoever_makes_topics_as_the_file_says_goes_by_what_is_kept(
    tmp_path: Path, asked: list[Pipeline], verb: str
) -> None:
    begin(load(tmp_path, WAS))
    path = tmp_path / "p.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state", was=IS, sink=INDEX))
    VERBS[verb](path)
    [pipeline] = asked
    assert "order in generation 1 of sink search" in pipeline.views
