"""What is done for tables that have changed, in which order, and what keeps nothing else waiting."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import DiskFull, SourceUnavailable
from cdc.pipeline import Pipeline, loads
from cdc.shapes import Shape
from operations.schema import evolving as evolving_module
from operations.schema import work
from operations.schema.evolving import Evolving
from operations.schema.steps import Step, read_again, rows_read, steps_of
from operations.schema.stopped import with_standing
from operations.schema.watch import Look
from operations.schema.work import LONGEST_PAUSE, Work
from operations.state.evolution import Evolution, Todo
from operations.state.folder import register_of
from operations.state.frozen import freeze
from operations.state.shapes import owe
from spark.disk.made_of import define
from tests.support.apart import Child
from tests.support.promoted import promoted

BUILD, READ = Todo(("x",), 1.0, rebuild=True), Todo(("x",), 1.0, read="")


def test_a_generation_is_built_when_its_tables_are_read() -> None:
    both = Todo(("x",), 1.0, read="", rebuild=True)
    assert steps_of([("search", "a", both), ("cache", "a", READ)]) == [Step("read", tables=("a",))]
    assert steps_of([("search", "a", BUILD)]) == [Step("build", "search")]
    assert steps_of([("search", "a", BUILD)], busy=["search"]) == []


def test_one_that_can_not_be_done_keeps_no_other_waiting() -> None:
    keyless = Todo(("new",), 1.0, capture=True, new=True)
    todo = [
        ("lake", "keyless", keyless),
        ("lake", "a", READ),
        ("search", "b", BUILD),
        ("lake", "c", Todo((), 1.0, show=True)),
    ]
    capture = Step("capture", tables=("keyless",))
    reads, shows, builds = Step("read", tables=("a",)), Step("show", "lake", ("c",)), Step("build", "search")
    assert steps_of(todo) == [capture, reads, shows, builds]


def test_a_table_is_read_when_it_is_captured_as_it_should_be_or_that_can_not_be_had() -> None:
    both = Todo(("x",), 1.0, read="", capture=True)
    capture = Step("capture", tables=("a",))
    assert steps_of([("cache", "a", both)]) == [capture]
    assert steps_of([("cache", "a", both)], failed=[capture]) == [capture, Step("read", tables=("a",))]


@pytest.mark.parametrize(
    ("step", "left"),
    [
        (Step("read", tables=("a",)), Todo(("x",), 1.0, None, True, True, False, True, True)),
        (Step("build", "s"), Todo(("x",), 1.0, "", False, True, True, True, True)),
        (Step("capture", tables=("a",)), Todo(("x",), 1.0, "", True, False, True, True, True)),
        (Step("show", "s", ("a",)), Todo(("x",), 1.0, "", True, True, True, True, False)),
    ],
)
def test_a_step_takes_away_what_it_has_done_and_no_more(step: Step, left: Todo) -> None:
    whole = Todo(("x",), 1.0, read="", rebuild=True, capture=True, sweep=True, new=True, show=True, error="old")
    assert step.done(whole) == left


def test_a_step_is_a_part_of_what_it_is_for() -> None:
    assert Step("read", tables=("a",)).concerns("any", "a")
    assert not Step("read", tables=("a",)).concerns("any", "b")
    assert Step("build", "s").concerns("s", "any") and not Step("build", "s").concerns("t", "any")
    assert not Step("show", "s", ("a",)).concerns("t", "a")


def step_ended(error: str = "") -> Child:
    """A step's process that has ended, of which half is said."""
    return Child(over=True, error=SourceUnavailable(error) if error else None, said=["half of it"])


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr(work.time, "monotonic", lambda: clock[0])
    return clock


TEXT = """
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "localhost:1"}
connect: {url: "http://127.0.0.1:1"}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", tables: all}
engine: {state_dir: STATE}
"""


@pytest.fixture
def pipeline(tmp_path: Any) -> Pipeline:
    (tmp_path / "shop").mkdir()
    return loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})


def test_what_fails_is_tried_again_more_and_more_seldom_and_others_meanwhile(
    now: list[float], pipeline: Pipeline
) -> None:
    done = Work(lambda work, *arguments: step_ended("no answer"))  # type: ignore[arg-type, return-value]
    step, other, at = Step("read", tables=("a",)), Step("read", tables=("b",)), list[float]()
    for _ in range(2000):
        if step in list(done.due([step, other])):
            at.append(now[0])
            done.begin(step, print)
            ended, said = done.look(pipeline)
            assert [one for one, _ in ended] == [step] and "no answer" in ended[0][1]
            assert said[0] == "a: half of it" and "again in " in said[1]
            assert list(done.due([step, other])) == [other] and list(done.failed) == [step]
        now[0] += 1
    pauses = [round(later - sooner) for sooner, later in pairwise(at)]
    assert pauses[:4] == [2, 4, 8, 16] and max(pauses) == LONGEST_PAUSE
    done.soon()
    assert list(done.due([step])) == [step]


def test_what_a_step_says_has_its_title_once_and_names_the_file(now: list[float], pipeline: Pipeline) -> None:
    child = step_ended("x\n  what to do: `headwater resnapshot FILE a` reads it")
    child.said = ["a: half of it", f"a: {rows_read(1)}", rows_read(2000)]
    done = Work(lambda work, *arguments: child)  # type: ignore[arg-type, return-value]
    done.begin(Step("read", tables=("a",)), print)
    [(_, error)], said = done.look(pipeline)
    assert said[:3] == ["a: half of it", "a: 1 row read again", "a: 2,000 rows read again"]
    assert pipeline.file and f"`headwater resnapshot {pipeline.file} a`" in error and "FILE" not in said[3]


def test_what_is_not_asked_for_any_more_is_forgotten(now: list[float], pipeline: Pipeline) -> None:
    done = Work(lambda work, *arguments: step_ended("no answer"))  # type: ignore[arg-type, return-value]
    step = Step("build", "s")
    done.begin(step, print)
    done.look(pipeline)
    assert list(done.due([])) == [] and not done.failed
    assert list(done.due([step])) == [step]


def test_what_is_built_for_an_hour_holds_up_no_table(now: list[float], pipeline: Pipeline) -> None:
    child = Child()
    done = Work(lambda work, *arguments: child)  # type: ignore[arg-type, return-value]
    build, read, second = Step("build", "s"), Step("read", tables=("a",)), Step("read", tables=("b",))
    begun = []
    for step in done.due([read, second, build]):
        done.begin(step, print)
        begun.append(step)
    assert begun == [read, build] and not done.free(second) and done.look(pipeline)[0] == []
    done.break_off(pipeline, lambda step: step == read)
    assert list(done.due([second, build])) == [second] and not done.free(build)


def test_a_build_ends_when_another_file_has_its_sink_built(pipeline: Pipeline) -> None:
    """Two builders of a sink took its next generation from each other."""
    child = step_ended("no answer")
    evolving = Evolving(pipeline, Path("shop.yaml"), start=lambda work, *arguments: child)  # type: ignore[arg-type, return-value]
    try:
        evolving._work.begin(Step("build", "s"), print)
        evolving.let_go("other")
        assert not evolving._work.free(Step("build", "s")) and not child.broken_off
        evolving.let_go("s")
        assert evolving._work.free(Step("build", "s")) and child.broken_off
    finally:
        evolving.close()


@pytest.mark.parametrize("frozen", [True, False])
def test_a_table_that_was_altered_once_more_behind_a_builds_back_is_built_again(
    pipeline: Pipeline, frozen: bool
) -> None:
    """Between its promotion and its end: nulls of what the former type can't hold stayed, and `verify` was silent."""
    child = step_ended()
    evolving = Evolving(pipeline, Path("shop.yaml"), start=lambda work, *arguments: child)  # type: ignore[arg-type, return-value]
    wanted = Todo(("column x is text",), 1.0, rebuild=True)
    evolving.evolutions["cache"] = evolving.evolutions["cache"].having("public.orders", wanted)
    register = register_of(pipeline, "cache")
    generation = register.generation(register.living())
    generation.folder.mkdir(parents=True)
    if frozen:
        freeze(generation, Table("public", "orders", ()))
    try:
        evolving._work.begin(Step("build", "cache"), print)
        evolving._work_off(cast(Any, SimpleNamespace(builds=[])), ["cache"])
        left = evolving.evolutions["cache"].todo.get("public.orders")
        assert (left is not None and left.rebuild) == frozen
    finally:
        evolving.close()


@pytest.mark.parametrize("full", [False, True])
def test_a_sink_that_keeps_several_new_tables_is_opened_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Five tables that came with one edit opened a warehouse five times in a row, which stood still for minutes; and a
    disk that was full meanwhile must not leave its flows with fewer tables than it is to keep."""
    tables, opened, noted = ("public.a", "public.b", "public.c"), list[str](), list[str]()
    evolving = Evolving(pipeline, Path("shop.yaml"), start=lambda work, *arguments: step_ended())  # type: ignore[arg-type, return-value]
    for table in tables:
        new = Todo(("it is new",), 1.0, new=True, capture=True)
        evolving.evolutions["cache"] = evolving.evolutions["cache"].having(table, new)
    build = SimpleNamespace(sink="cache", number=1, views_of=lambda _table: [])
    other = SimpleNamespace(**{**vars(build), "sink": "search"})
    engine: Any = SimpleNamespace(builds=[other, build], catalogue=None)

    def take_again(one: Any) -> None:
        opened.append(one.sink)
        if full and len(opened) == 1:
            raise DiskFull("no room for a lease")

    engine.take_again = take_again

    def write(_pipeline: Pipeline, _sink: str, _evolution: Evolution) -> None:
        noted.append("")
        if full and len(noted) == 2:
            raise DiskFull("no room")

    monkeypatch.setattr(evolving_module, "take_up", lambda *_: True)
    monkeypatch.setattr(evolving_module, "write_evolution", write)
    try:
        evolving._work.begin(Step("capture", tables=tables), print)
        with pytest.raises(DiskFull) if full else nullcontext():
            evolving._work_off(engine, ["cache"])
        evolving._work_off(engine, ["cache"])
        assert opened == ["cache", "cache"] if full else ["cache"]  # that which failed was opened the next time
    finally:
        evolving.close()


def test_a_doubt_is_settled_by_a_look_that_began_after_it_and_comes_once(now: list[float], pipeline: Pipeline) -> None:
    """One column whose values never fit would have stopped its flow for each of them."""
    folder, opened = Path("g1"), list[Catalogue]()
    build = SimpleNamespace(sink="s", number=1, generation=SimpleNamespace(folder=folder))
    engine: Any = SimpleNamespace(builds=[build])
    engine.take_again = lambda _build, told: opened.append(told)
    evolving = Evolving(pipeline, Path("shop.yaml"))
    known = Catalogue(lsn=5)
    try:
        evolving._doubts = {folder: now[0]}
        evolving._take_again(engine, Look(known, {}, now[0] - 1), ())
        assert not opened  # what was written may be newer than what was seen
        evolving._take_again(engine, Look(known, {}, now[0] + 1), {("s", 1)})
        assert opened.pop() == known  # the table has changed: what does not fit now is doubted again
        now[0] += 60
        evolving._take_again(engine, Look(known, {}, now[0] + 1), ())
        assert opened.pop() == replace(known, doubts=False)  # nothing is new: values are what they are
        now[0] += 1
        evolving._take_again(engine, Look(known, {}, now[0] + 1), ())
        assert opened.pop() == replace(known, lsn=0)  # and doubts even so: it is no value
        evolving._doubts = {}
        evolving._take_again(engine, Look(known, {}, now[0] + 1), ())
        assert not opened and engine.catalogue == known
    finally:
        evolving.close()


ORDERS = Shape(Table("public", "orders", (Column("id", "integer", "int4", nullable=False, ordinal=1),), ("id",)), 0, 1)


@pytest.mark.parametrize("captured", ["public.orders", '"public.*"'])
def test_what_is_to_be_done_for_a_table_outlasts_a_look_that_does_not_find_it(tmp_path: Path, captured: str) -> None:
    """A table was renamed away and back: nobody built the next generation, and the living one stood as it was."""
    (tmp_path / "shop").mkdir()
    text = TEXT.replace("[public.orders]", f"[{captured}]").replace("STATE", str(tmp_path))
    begun, there = list[Any](), {"public.orders": ORDERS}

    def start(work: Any, *arguments: Any) -> Any:
        begun.append(work)
        return step_ended()

    evolving = Evolving(loads(text, "shop.yaml", {}), Path("shop.yaml"), start=start)
    engine: Any = SimpleNamespace(builds=[])
    wanted = Todo(("column x is text",), 1.0, read="", rebuild=True, sweep=True, error="no answer")
    evolving.evolutions["cache"] = Evolution(there, {"public.orders": wanted})
    try:
        evolving._follow(engine, Look(Catalogue({}), {}), ())
        evolving._work_off(engine, [])
        left = evolving.evolutions["cache"].todo["public.orders"]
        if captured == "public.orders":
            assert (left, begun) == (replace(wanted, error=None), [])  # what is not there is neither read nor built
        else:  # and of what nobody has named nobody knows whether it comes back
            assert (left, len(begun)) == (replace(wanted, read=None, sweep=False, error=None), 1)
            evolving._work.break_off(evolving.pipeline)
        evolving._follow(engine, Look(Catalogue({"public.orders": ORDERS.table}), there), ())
        evolving._work_off(engine, [])
        assert evolving.evolutions["cache"].todo["public.orders"] == left and begun
    finally:
        evolving.close()


def test_a_file_that_shows_a_column_whose_values_no_log_has_is_built_once_they_were_read(
    now: list[float], tmp_path: Path
) -> None:
    """The next generation had null where Postgres has the column's default: the table was never read."""
    (tmp_path / "shop").mkdir()
    stars = Column("stars", "integer", "int4", ordinal=2)
    shapes = {"public.orders": replace(ORDERS, table=replace(ORDERS.table, columns=(*ORDERS.table.columns, stars)))}
    tables = Catalogue({name: shape.table for name, shape in shapes.items()})

    def file(columns: str) -> Pipeline:
        text = TEXT.replace("STATE", str(tmp_path)).replace("tables: all", "view: order")
        return loads(f"{text}views: {{order: {{root: orders, columns: [{columns}]}}}}\n", "shop.yaml", {})

    before, after = file("id"), file("id, stars")
    generation = register_of(before, "cache").generation(1)
    define(generation, before, [])
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    owe(before, "public.orders", [2])
    evolving = Evolving(before, Path("shop.yaml"))
    engine: Any = SimpleNamespace(builds=[], pipeline=before, catalogue=tables)
    evolving.evolutions["cache"] = Evolution(acted=shapes)
    try:
        assert not evolving.may_build(engine, "cache")  # nobody has looked yet
        now[0] += 1
        evolving._follow(engine, Look(tables, shapes, now[0]), ())
        assert evolving.may_build(engine, "cache") and not evolving.evolutions["cache"].todo
        engine.pipeline = after
        assert not evolving.may_build(engine, "cache")
        evolving._adopt(after)
        evolving._follow(engine, Look(tables, shapes, now[0] - 1), ())
        assert not evolving.may_build(engine, "cache")  # that look was begun before, and may lack a table of the file
        now[0] += 1
        evolving._follow(engine, Look(tables, shapes, now[0]), ())
        assert evolving.evolutions["cache"].todo["public.orders"].read == "" and not evolving.may_build(engine, "cache")
        evolving._set("cache", "public.orders", None)
        assert evolving.may_build(engine, "cache")
        evolving._set("cache", "public.others", READ)
        assert evolving.may_build(engine, "cache")  # its views do not read that one
    finally:
        evolving.close()


def test_a_generation_that_nobody_reads_any_more_asks_for_nothing_and_is_no_error_at_a_stop(pipeline: Pipeline) -> None:
    """It went on to say "correct the view", and `run` ended with it as an error."""
    register = register_of(pipeline, "cache")
    generation = register.generation(1)
    generation.folder.mkdir(parents=True)
    freeze(generation, Table("public", "orders", ()), "view order has no column n\n  what to do: correct the view")
    calls = list[tuple[dict[str, str], list[str]]]()
    build = SimpleNamespace(sink="cache", number=1, generation=generation, views=[])
    engine: Any = SimpleNamespace(builds=[build], runner=SimpleNamespace())
    engine.runner.halt = lambda reasons, folder, instead: calls.append((reasons, list(instead)))
    evolving = Evolving(pipeline, Path("shop.yaml"))
    try:
        evolving._hold(engine)
        (first,) = calls[-1][0].values()
        assert first.endswith("correct the view") and evolving.former == set()
        register.create("asked for")
        promoted(register, 2)
        evolving._hold(engine)
        (second,) = calls[-1][0].values()
        assert "view order has no column n" in second and "correct" not in second
        assert calls[-1][1] == [first] and evolving.former == {generation.folder}
    finally:
        evolving.close()


def test_every_view_that_stands_is_named_also_of_another_table_in_the_same_flow(tmp_path: Path) -> None:
    views = [SimpleNamespace(name=name, topics=(topic,), table=None) for name, topic in zip("abc", "tuv", strict=True)]
    flows = {"a": "main", "b": "main", "c": "c"}
    build: Any = SimpleNamespace(pipeline=None, views=views, flow_folder=lambda view: tmp_path / flows[view.name])
    why = "view a can't follow\n  what to do: correct it"
    assert with_standing(build, {"t": why}) == {
        "t": "view a can't follow; what stands: views a, b\n  what to do: correct it"
    }
    assert with_standing(build, {"v": why})["v"].splitlines()[0].endswith("; what stands: view c")


def test_who_reads_a_table_again_waits_for_that_one(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that can't be swept had it read again for ever."""
    waited: list[Any] = []
    monkeypatch.setattr("connectors.resnapshot.read_anew", lambda *_: None)
    monkeypatch.setattr("connectors.snapshots.snapshot.wait_snapshot", lambda *_, only: waited.append(only))
    read_again(lambda _: None, pipeline, "public.t", "a IS NOT NULL", sweep=False)
    assert waited == [["public.t"]]
