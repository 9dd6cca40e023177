"""What is written down when a table has changed: who goes on, who starts again, who waits, who is built anew."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import StateError
from cdc.formats import SHAPES
from cdc.pipeline import Pipeline, loads
from cdc.records.debezium_json import Decoder, Fit
from cdc.shapes import Shape, Shapes
from console.cli.plan import show_migration
from operations import opened
from operations.schema import migrations
from operations.schema.act import Acted, act, owed_to
from operations.schema.case import Case
from operations.schema.changed import in_words
from operations.schema.decide import ALL_ROWS, Decision, Verdict
from operations.schema.mapped import read_mapped
from operations.schema.stopped import is_former, still_to_do
from operations.state.evolution import Evolution, Todo, allow, read_allowed, read_evolution, write_evolution
from operations.state.folder import register_of
from operations.state.frozen import Frozen, freeze, read_frozen, thaw
from operations.state.shapes import known_shapes, owe, read_owed, remember_shapes
from operations.status.evolving import evolving, line
from spark.disk.made_of import define
from tests.support.promoted import promoted

TEXT = """
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders, public.customers]}
kafka: {bootstrap: "localhost:1"}
connect: {url: "http://localhost:1"}
policy: {schema: POLICY}
views:
  order: {root: orders}
  customer: {root: customers, columns: [id, name]}
sinks:
  search: {type: elasticsearch, url: "http://127.0.0.1:1", views: [order, customer]}
  cache: {type: redis, url: "redis://127.0.0.1:1", view: order}
engine: {state_dir: STATE}
"""
ID = Column("id", "integer", "int4", nullable=False, ordinal=1)
AT = Column("at", "integer", "int4", ordinal=2)
NAME = Column("name", "text", "text", ordinal=2)
CUSTOMERS = Shape(Table("public", "customers", (ID, NAME), ("id",)), 0, 2, "c")
ORDERS = Shape(Table("public", "orders", (ID, AT), ("id",)), 0, 1, "f")
NOTE = Column("note", "text", "text", ordinal=3)
MORE = replace(ORDERS, table=replace(ORDERS.table, columns=(ID, AT, NOTE)), since=9)
WIDER = replace(
    ORDERS, table=replace(ORDERS.table, columns=(ID, replace(AT, type_name="bigint", base_type="int8"))), files="g"
)
BEFORE = {"public.orders": ORDERS, "public.customers": CUSTOMERS}


def make(folder: Path, policy: str = "evolve", text: str = TEXT) -> Pipeline:
    """Both sinks with a living generation that has written."""
    pipeline = loads(text.replace("STATE", str(folder)).replace("POLICY", policy), "shop.yaml", {})
    for sink in pipeline.sinks:
        generation = register_of(pipeline, sink).generation(1)
        define(generation, pipeline, [])
        (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    return pipeline


def done(pipeline: Pipeline, now: dict[str, Shape], known: Evolution | None = None, sink: str = "search") -> Acted:
    known = known or Evolution(acted=BEFORE)
    told = Shapes({name: (BEFORE[name], shape) for name, shape in now.items()}).told_to(
        Catalogue({name: shape.table for name, shape in now.items()})
    )
    return act(pipeline, sink, told, now, known)


def test_what_run_asks_for_all_the_time_is_read_only_when_it_has_changed(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    generation = register_of(pipeline, "search").generation(1)
    assert (read_frozen(generation), read_allowed(pipeline)) == (Frozen(), {})
    freeze(generation, ORDERS.table)
    allow(pipeline, {"public.orders": ORDERS})
    with patch.object(json, "loads", wraps=json.loads) as loads_json:
        for _ in range(3):
            assert read_frozen(generation).tables == {"public.orders": ORDERS.table}
            assert read_allowed(pipeline) == {"public.orders": ORDERS}
        assert loads_json.call_count == 2
    thaw(generation, "public.orders")
    allow(pipeline, {})
    assert (read_frozen(generation).tables, read_allowed(pipeline)) == ({}, {})


def test_in_place_starts_again_what_shows_the_column_and_reads_what_may_have_been_missed(tmp_path: Path) -> None:
    out = done(make(tmp_path), {**BEFORE, "public.orders": MORE})
    assert out.retake == {("search", 1)}
    todo = out.evolution.todo["public.orders"]
    assert (todo.read, todo.rebuild, todo.waits) == ('"note" IS DISTINCT FROM NULL', False, False)
    assert out.evolution.acted["public.orders"] == MORE
    assert out.said[0] == "table public.orders: column note was added"


def test_a_generation_that_is_being_filled_is_brought_to_the_table_or_given_up(tmp_path: Path) -> None:
    """An hour's work was thrown away for every change of a table, also for one that its target holds."""
    pipeline = make(tmp_path)
    number = register_of(pipeline, "search").create("asked for", own=True).number
    generation = register_of(pipeline, "search").generation(number)
    out = done(pipeline, {**BEFORE, "public.orders": MORE})
    assert out.retake == {("search", 1)}  # it has not begun: it takes the tables as they are
    define(generation, pipeline, [])
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    out = done(pipeline, {**BEFORE, "public.orders": MORE})
    assert out.retake == {("search", 1), ("search", number)} and not read_frozen(generation).tables
    done(pipeline, {**BEFORE, "public.orders": WIDER})
    assert read_frozen(generation).tables == {"public.orders": ORDERS.table}


def test_a_column_that_nothing_shows_is_noted_and_no_more(tmp_path: Path) -> None:
    more = replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID, NAME, NOTE)))
    out = done(make(tmp_path), {**BEFORE, "public.customers": more})
    assert (out.retake, dict(out.evolution.todo)) == (set(), {})
    assert out.evolution.acted["public.customers"] == more


def test_what_a_target_can_not_hold_is_built_beside_and_the_old_one_goes_on_as_it_was(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    out = done(pipeline, {**BEFORE, "public.orders": WIDER})
    todo = out.evolution.todo["public.orders"]
    assert (todo.read, todo.rebuild) == ("", True)
    frozen = read_frozen(register_of(pipeline, "search").generation(1))
    assert frozen.tables["public.orders"] == ORDERS.table
    assert frozen.over(Catalogue({"public.orders": WIDER.table})).tables["public.orders"] == ORDERS.table
    other = done(pipeline, {**BEFORE, "public.orders": WIDER}, sink="cache").evolution.todo["public.orders"]
    assert (other.read, other.rebuild) == ("", False)
    assert not read_frozen(register_of(pipeline, "cache").generation(1)).tables
    write_evolution(pipeline, "search", out.evolution)
    assert read_evolution(pipeline, "search") == out.evolution
    (told,) = evolving(pipeline)
    assert (told["table"], told["rebuilding"], told["reading"]) == ("public.orders", ["search"], True)
    assert "column at changed from integer to bigint: rows of public.orders are read again, a new gen" in line(told)
    assert "until it is shown, what the former type can't hold is null" in line(told)
    quiet = {**told, "what": ["the table is new"], "rebuilding": [], "reading": False, "rows": None}
    assert line(quiet) == "evolving: table public.orders: the table is new"


def test_after_a_crash_in_the_middle_it_comes_to_the_same(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    first = done(pipeline, {**BEFORE, "public.orders": WIDER})
    again = done(pipeline, {**BEFORE, "public.orders": WIDER})
    assert again.evolution.todo["public.orders"].rebuild == first.evolution.todo["public.orders"].rebuild


def test_a_view_that_loses_its_column_stops_alone_and_names_the_file(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    less = replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID,)))
    done(pipeline, {**BEFORE, "public.customers": less})
    (reason,) = read_frozen(register_of(pipeline, "search").generation(1)).refused.values()
    assert "view customer can't follow a change of table public.customers" in reason
    assert "shop.yaml" in reason
    assert "`headwater rebuild shop.yaml search --auto`" in reason


def test_a_view_that_can_be_made_again_asks_for_nothing_any_more(tmp_path: Path) -> None:
    """After `DROP n`, `RENAME n_new TO n` status went on to ask for a corrected view, also of the generation before."""
    pipeline = make(tmp_path)
    generation = register_of(pipeline, "search").generation(1)
    number = Column("name_new", "integer", "int4", ordinal=3)
    steps = [(ID, NAME, number), (ID, number), (ID, replace(number, name="name"))]
    shapes = [
        CUSTOMERS,
        *(replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=c), since=n) for n, c in enumerate(steps, 1)),
    ]
    known, reasons, out = Evolution(acted=BEFORE), list[str](), None
    for until in range(2, 5):
        now = {**BEFORE, "public.customers": shapes[until - 1]}
        told = Shapes({"public.customers": tuple(shapes[:until]), "public.orders": (ORDERS,)}).told_to(
            Catalogue({name: shape.table for name, shape in now.items()})
        )
        out = act(pipeline, "search", told, now, known)
        known = out.evolution
        if until == 3:  # an earlier change's generation may be under way when this one is refused
            under_way = Todo(("x",), 1.0, rebuild=True)
            known = known.having("public.customers", under_way)
            (reason,) = read_frozen(generation).refused.values()
            assert still_to_do(reason, under_way, mended=True) == reason and "correct the view" in reason
            known = known.having("public.customers", None)
        reasons = list(read_frozen(generation).refused.values())
    todo = known.todo["public.customers"]
    assert out is not None and todo.rebuild and out.retake == {("search", 1)}
    (reason,) = reasons
    living = still_to_do(reason, todo, mended=False)
    assert living.endswith("what to do: nothing; a new generation is built (`evolving` in status)")
    assert "has no column" not in living
    assert "headwater rebuild" in still_to_do(reason, None, mended=False)  # readers were taken back to it
    former = still_to_do(reason, todo, mended=False, former=True)
    assert "what to do" not in former and former.endswith("readers see another generation")
    assert not is_former(pipeline, generation)
    register_of(pipeline, "search").create("asked for")
    promoted(register_of(pipeline, "search"), 2)
    assert is_former(pipeline, generation)


CARD = """views:
  customer: {root: customers, columns: [id]}
  order:
    root: orders
    columns: [id, at]
    refs: {buyer: {table: customers, on: {at: id}, columns: [name]}}
"""


def test_a_view_that_was_refused_stops_no_other_for_what_changes_after_it(tmp_path: Path) -> None:
    """Every view that reads a table stops with one that can't follow it: only the table to blame may stop them."""
    head, rest = TEXT.split("views:\n")
    text = head + CARD + rest[rest.index("sinks:") :] + 'row_store: {url: "redis://127.0.0.1:1"}\n'
    pipeline = make(tmp_path, text=text)
    generation = register_of(pipeline, "search").generation(1)
    less = {**BEFORE, "public.customers": replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID,)))}
    both = done(pipeline, {**less, "public.orders": WIDER})  # at the same time
    assert set(read_frozen(generation).refused) == {"public.customers"}
    assert both.evolution.todo["public.orders"].rebuild
    thaw(generation, "public.orders")
    found = Shapes({name: (BEFORE[name], shape) for name, shape in {**less, "public.orders": MORE}.items()})
    told = found.told_to(Catalogue({name: shape.table for name, shape in {**less, "public.orders": MORE}.items()}))
    one = Evolution(acted={**less, "public.orders": ORDERS})
    act(pipeline, "search", told, {**less, "public.orders": MORE}, one)  # one after the other
    assert set(read_frozen(generation).refused) == {"public.customers"}


FAMILY = """views:
  customer:
    root: customers
    children: {orders: {table: orders, on: {id: at}, columns: [id, at]}}
"""


def family(folder: Path) -> Pipeline:
    head, rest = TEXT.split("views:\n")
    rest = (
        rest[rest.index("sinks:") :].replace("[order, customer]", "[customer]").replace("view: order", "view: customer")
    )
    return make(folder, text=head + FAMILY + rest + 'row_store: {url: "redis://127.0.0.1:1"}\n')


def test_of_two_tables_that_change_at_once_each_is_judged_by_its_own_change(tmp_path: Path) -> None:
    """A column of the root's, added in the same transaction, froze the children's table too: its values of the new
    type were null until the next generation was shown."""
    pipeline = family(tmp_path)
    more = replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID, NAME, NOTE)), since=9)
    both = {"public.customers": more, "public.orders": WIDER}
    out = done(pipeline, both, sink="cache")
    frozen = read_frozen(register_of(pipeline, "cache").generation(1))
    assert (set(frozen.tables), dict(frozen.refused)) == ({"public.customers"}, {})
    todo = out.evolution.todo
    assert (todo["public.orders"].read, todo["public.orders"].rebuild) == ("", False)
    assert todo["public.customers"].rebuild
    assert out.said[1::2] == [
        "  sink cache, generation 1, view customer: new generation",
        "  sink cache, generation 1, view customer: in place and read again",
    ]
    assert out.retake == {("cache", 1)}


def test_tables_that_can_not_change_without_each_other_are_judged_together(tmp_path: Path) -> None:
    """Both sides of a join get another type: a view over the one alone can't be made, and none was to be refused."""
    pipeline = family(tmp_path)
    text = {"type_name": "text", "base_type": "text"}
    keyed = replace(CUSTOMERS.table, columns=(replace(ID, **text), NAME))
    pair = {
        "public.customers": replace(CUSTOMERS, table=keyed, since=9, files="d"),
        "public.orders": replace(ORDERS, table=replace(ORDERS.table, columns=(ID, replace(AT, **text))), files="g"),
    }
    said = "\n".join(done(pipeline, pair, sink="cache").said)
    assert "refuse" not in said and said.count("view customer: ") == 2
    for table, shape in pair.items():
        one = done(family(tmp_path / table), {**BEFORE, table: shape}, sink="cache")
        assert "view customer: refuse (" in "\n".join(one.said) and "can't be joined" in "\n".join(one.said)


def test_what_stands_with_a_refused_view_is_not_told_to_be_read_again(tmp_path: Path) -> None:
    head, rest = TEXT.split("views:\n")
    every = "views:\n  all: {root: customers}\n" + rest.replace("[order, customer]", "[order, customer, all]")
    pipeline = make(tmp_path, text=head + every)
    less = replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID,)))
    said = "\n".join(done(pipeline, {**BEFORE, "public.customers": less}).said)
    assert "view customer: refuse (" in said and "view all: stands with view customer" in said
    assert "read again" not in said


@pytest.mark.parametrize("shows", ["", ", columns: [id]"], ids=["could follow", "shows nothing of it"])
def test_plan_says_what_stands_with_a_refused_view_and_that_neither_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shows: str
) -> None:
    """It said of one "in place and read again", and of the refused one "about 7 documents written again"."""
    head, rest = TEXT.split("views:\n")
    every = f"views:\n  all: {{root: customers{shows}}}\n" + rest.replace("[order, customer]", "[order, customer, all]")
    pipeline = make(tmp_path, text=head + every)
    write_evolution(pipeline, "search", Evolution(acted=BEFORE))
    now = {**BEFORE, "public.customers": replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID,)))}
    tables = Catalogue({name: shape.table for name, shape in now.items()})
    monkeypatch.setattr(migrations, "connect", lambda *_, **__: nullcontext())
    monkeypatch.setattr(migrations, "read_shapes", lambda *_, **__: (tables, now))
    monkeypatch.setattr(migrations, "estimated_rows", lambda *_: {"public.customers": 7})
    [told] = migrations.migrations(pipeline)
    assert {one["view"]: (one["verdict"], one["stands_with"], one["documents"]) for one in told["views"]} == {
        "customer": ("refuse", [], 0),
        "all": ("stands", ["customer"], 0),
    }
    show_migration(told)
    lines = capsys.readouterr().out.splitlines()
    assert "    sink search, generation 1, view all: stands with view customer, until it is corrected" in lines
    [refused] = [line for line in lines if "view customer: " in line]
    assert "view customer: refuse (" in refused and "written again" not in refused


def test_plan_promises_no_generation_that_a_refused_view_keeps_from_being_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrations, "estimated_rows", lambda *_: {"public.customers": 7})
    monkeypatch.setattr(migrations, "cost", lambda *_: {"documents": 7})

    def told(**verdicts: Verdict) -> Any:
        made = {view: Decision(verdict) for view, verdict in verdicts.items()}
        found = [Case("search", 1, True, view, CUSTOMERS.table, one, one) for view, one in made.items()]
        return migrations._told(cast(Any, None), cast(Any, None), "public.customers", CUSTOMERS, CUSTOMERS, found)

    assert told(all=Verdict.NEW_GENERATION)["rebuilt"] == {"search": {"documents": 7}}
    beside = told(all=Verdict.NEW_GENERATION, customer=Verdict.REFUSE)
    assert beside["rebuilt"] == {} and [one["documents"] for one in beside["views"]] == [0, 0]


def test_of_a_generation_that_nobody_reads_no_new_generation_is_told(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    register = register_of(pipeline, "search")
    register.create("asked for")
    promoted(register, 2)
    define(register.generation(2), pipeline, [])
    (register.generation(2).flow_folder("main") / "checkpoint").mkdir(parents=True)
    said = done(pipeline, {**BEFORE, "public.orders": WIDER}).said
    assert "  sink search, generation 1, view order: goes on with the table as it was" in said
    assert "  sink search, generation 2, view order: new generation" in said


def test_pause_waits_for_apply_and_then_does_the_same(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "pause")
    out = done(pipeline, {**BEFORE, "public.orders": MORE})
    assert out.evolution.todo["public.orders"].waits
    assert out.evolution.acted["public.orders"] == ORDERS
    assert "waits for `headwater apply`" in out.said[0]
    assert done(pipeline, {**BEFORE, "public.orders": MORE}, out.evolution).said == []
    let = replace(out.evolution, allowed={"public.orders": MORE})
    after = done(pipeline, {**BEFORE, "public.orders": MORE}, let)
    assert after.retake == {("search", 1)}
    assert not after.evolution.todo["public.orders"].waits


RENAMED = replace(ORDERS, table=replace(ORDERS.table, columns=(ID, replace(AT, name="moment"))), since=9)
RETYPED = replace(ORDERS, table=replace(ORDERS.table, columns=(ID, replace(AT, type_name="text", base_type="text"))))


@pytest.mark.parametrize("again", [False, True], ids=["", "after-apply"])
@pytest.mark.parametrize(
    ("policy", "altered"),
    [("pause", MORE), ("pause", RENAMED), ("pause", RETYPED), ("ignore", RENAMED), ("ignore", RETYPED)],
)
def test_what_waits_for_apply_goes_on_when_the_change_is_undone(
    tmp_path: Path, policy: str, altered: Shape, again: bool
) -> None:
    """It stood for good: `apply`, which was advised, found nothing to let through, and so did each start."""
    pipeline = make(tmp_path, policy)
    out = done(pipeline, {**BEFORE, "public.orders": altered})
    assert out.evolution.todo["public.orders"].waits
    back = {**BEFORE, "public.orders": replace(ORDERS, since=20)}
    let = replace(out.evolution, allowed=back if again else {})
    after = done(pipeline, back, let)
    assert (dict(after.evolution.todo), after.retake) == ({}, {("search", 1)})
    assert "is what it was again" in after.said[0] and done(pipeline, back, after.evolution).said == []


def test_a_view_that_was_refused_while_it_waited_goes_on_too(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "pause")
    generation = register_of(pipeline, "search").generation(1)
    less = {**BEFORE, "public.customers": replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID,)))}
    busy = Todo(("x",), 1.0, read="")
    out = done(pipeline, less, Evolution(BEFORE, {"public.customers": busy}))
    assert read_frozen(generation).refused and out.evolution.todo["public.customers"].waits
    after = done(pipeline, BEFORE, out.evolution)
    assert read_frozen(generation) == Frozen() and after.retake == {("search", 1)}
    left = after.evolution.todo["public.customers"]
    assert (left.read, left.waits, left.rebuild) == ("", False, False)  # what was under way before is still done


def test_what_was_ignored_before_stays_ignored_when_a_later_change_is_undone(tmp_path: Path) -> None:
    head, rest = TEXT.split("views:\n")
    text = head + "views:\n" + rest.replace("order: {root: orders}", 'order: {root: orders, where: "at > 0"}')
    pipeline = make(tmp_path, "ignore", text)
    generation = register_of(pipeline, "search").generation(1)
    first = done(pipeline, {**BEFORE, "public.orders": MORE})
    assert not read_frozen(generation).refused
    renamed = replace(MORE, table=replace(MORE.table, columns=(ID, replace(AT, name="moment"), NOTE)), since=20)
    second = done(pipeline, {**BEFORE, "public.orders": renamed}, first.evolution)
    assert second.evolution.todo["public.orders"].waits and read_frozen(generation).refused
    third = done(pipeline, {**BEFORE, "public.orders": replace(MORE, since=30)}, second.evolution)
    assert dict(third.evolution.todo) == {} and third.retake == {("search", 1)}
    assert read_frozen(generation) == Frozen({"public.orders": ORDERS.table})


def test_a_key_that_is_what_it_was_again_is_built_anew_as_promised(tmp_path: Path) -> None:
    """Records of both keys may be in the topic; of a table whose changes are missing nothing is known before."""
    pipeline = make(tmp_path, "pause")
    keyed = replace(ORDERS, table=replace(ORDERS.table, primary_key=("at",)), since=9)
    out = done(pipeline, {**BEFORE, "public.orders": keyed})
    assert out.evolution.todo["public.orders"].waits
    told = Catalogue({name: shape.table for name, shape in BEFORE.items()})
    broken = act(pipeline, "search", told, BEFORE, out.evolution, ["public.orders"])
    assert broken.evolution.todo["public.orders"].waits
    after = done(pipeline, BEFORE, out.evolution)
    todo = after.evolution.todo["public.orders"]
    assert (todo.waits, todo.rebuild) == (False, True)
    assert read_frozen(register_of(pipeline, "search").generation(1)).refused


@pytest.mark.parametrize("policy", ["evolve", "pause"])
def test_a_generation_is_judged_by_the_tables_that_it_took_and_not_by_those_its_sink_was_brought_to(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rebuild --auto` after a migration, while `run` was down or the change waited for `apply`: what had just been
    proved was frozen to the table of before, which its index refuses, and another one was to be built."""
    monkeypatch.setattr(opened, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    pipeline, wider = make(tmp_path, policy), replace(WIDER, since=9)
    register, now = register_of(pipeline, "search"), {**BEFORE, "public.orders": wider}
    remember_shapes(pipeline, BEFORE)
    known = Evolution(acted=BEFORE)
    if policy == "pause":
        known = done(pipeline, now, known).evolution
        assert known.todo["public.orders"].waits
    remember_shapes(pipeline, now)
    build = opened.open_generation(
        pipeline, Catalogue({name: shape.table for name, shape in now.items()}), "search", register.create("x").number
    )
    opened.accept(build)
    build.generation.unlock()
    (build.generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    promoted(register, 2)
    seen = replace(wider, since=12)  # by `run`, later
    out = done(pipeline, {**BEFORE, "public.orders": seen}, replace(known, allowed={"public.orders": seen}))
    assert read_frozen(register.generation(2)) == Frozen() and not out.evolution.todo["public.orders"].rebuild
    assert read_frozen(register.generation(1)).tables == {"public.orders": ORDERS.table}
    narrow = replace(ORDERS, files="h", since=20)
    let = replace(out.evolution, allowed={"public.orders": narrow})
    after = done(pipeline, {**BEFORE, "public.orders": narrow}, let)  # the next change is one for it, too
    assert after.evolution.todo["public.orders"].rebuild
    assert read_frozen(register.generation(2)).tables == {"public.orders": WIDER.table}


def test_a_generation_that_took_another_table_goes_on_with_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Altered again behind a rebuild that nobody had followed: it is left with what it was made of."""
    monkeypatch.setattr(opened, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    pipeline = make(tmp_path)
    register, text = register_of(pipeline, "search"), replace(AT, type_name="text", base_type="text")
    texts = replace(ORDERS, table=replace(ORDERS.table, columns=(ID, text)), files="t", since=15)
    remember_shapes(pipeline, BEFORE)
    remember_shapes(pipeline, {"public.orders": replace(WIDER, since=9)})
    tables = Catalogue({"public.orders": WIDER.table, "public.customers": CUSTOMERS.table})
    build = opened.open_generation(pipeline, tables, "search", register.create("x").number)
    opened.accept(build)
    build.generation.unlock()
    (build.generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    promoted(register, 2)
    out = done(pipeline, {**BEFORE, "public.orders": texts})
    assert out.evolution.todo["public.orders"].rebuild
    frozen = [read_frozen(register.generation(number)).tables["public.orders"] for number in (1, 2)]
    assert frozen == [ORDERS.table, WIDER.table]


def test_a_table_that_was_altered_and_altered_back_has_changed_for_what_took_it_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its documents would have kept the column that is gone: the sink had never known of it."""
    monkeypatch.setattr(opened, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    pipeline = make(tmp_path)
    register = register_of(pipeline, "search")
    remember_shapes(pipeline, BEFORE)
    remember_shapes(pipeline, {"public.orders": MORE})
    tables = Catalogue({"public.orders": MORE.table, "public.customers": CUSTOMERS.table})
    build = opened.open_generation(pipeline, tables, "search", register.create("x").number)
    opened.accept(build)
    build.generation.unlock()
    (build.generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    promoted(register, 2)
    back = {**BEFORE, "public.orders": replace(ORDERS, since=20)}
    out = done(pipeline, back)
    assert out.evolution.todo["public.orders"].read == "" and out.retake == {("search", 2)}
    assert out.said[0] == "table public.orders: column note was dropped"
    again = done(pipeline, back, out.evolution)
    assert (again.said, again.evolution) == ([], out.evolution)


def test_ignore_leaves_new_columns_and_stops_at_others(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "ignore")
    out = done(pipeline, {**BEFORE, "public.orders": MORE})
    assert (out.retake, dict(out.evolution.todo)) == (set(), {})
    assert read_frozen(register_of(pipeline, "search").generation(1)).tables["public.orders"] == ORDERS.table
    assert done(pipeline, {**BEFORE, "public.orders": WIDER}).evolution.todo["public.orders"].waits


def test_a_table_whose_changes_are_missing_is_mended_by_hand_first(tmp_path: Path) -> None:
    out = act(
        make(tmp_path), "search", Catalogue({}), {"public.orders": MORE}, Evolution(acted=BEFORE), ["public.orders"]
    )
    assert (out.evolution.todo, out.retake) == ({}, set())


def test_another_key_stops_what_there_is_and_builds_the_next_also_before_it_is_mended(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    keyed = replace(ORDERS, table=replace(ORDERS.table, primary_key=("at",)), since=9)
    now = {**BEFORE, "public.orders": keyed}
    told = Catalogue({name: shape.table for name, shape in now.items()})
    out = act(pipeline, "search", told, now, Evolution(acted=BEFORE), ["public.orders"])
    assert (out.evolution.todo["public.orders"].rebuild, out.retake) == (True, {("search", 1)})
    (reason,) = read_frozen(register_of(pipeline, "search").generation(1)).refused.values()
    assert "the key is (at)" in reason and "`headwater apply shop.yaml --wait`" in reason
    todo = out.evolution.todo["public.orders"]
    # As long as nobody has seen it mended, it is asked for: a busy machine notices what is broken a minute later.
    assert still_to_do(reason, todo, mended=False) == still_to_do(reason, None, mended=True) == reason
    applied = still_to_do(reason, todo, mended=True)
    assert "the key is (at)" in applied and "nothing, its table was read again" in applied and "apply" not in applied
    # What asks for another hand goes on to.
    assert still_to_do("why\n  what to do: correct the view", todo, mended=True).endswith("correct the view")


def test_a_generation_that_goes_on_with_the_table_as_it_was_has_its_columns_by_their_names_of_today(
    tmp_path: Path,
) -> None:
    pipeline = make(tmp_path)
    done(pipeline, {**BEFORE, "public.orders": WIDER})
    frozen = read_frozen(register_of(pipeline, "search").generation(1))
    retyped = replace(AT, name="moment", type_name="bigint", base_type="int8")
    now = Catalogue({"public.orders": replace(ORDERS.table, columns=(ID, retyped))})
    assert ("moment", "at") in frozen.over(now).tables["public.orders"].renamed


def test_a_generation_that_goes_on_with_the_table_as_it_was_is_shown_no_other_columns_values() -> None:
    """`RENAME at TO moment; ADD at`: its field `at` got the new column's values until the next generation was shown."""
    anew = replace(AT, name="at", ordinal=AT.ordinal + 7)
    now = replace(ORDERS.table, columns=(ID, replace(AT, name="moment"), anew))
    frozen = Frozen({"public.orders": ORDERS.table})
    known = frozen.over(Catalogue({"public.orders": now})).tables["public.orders"]
    source = {"lsn": 9, "schema": "public", "table": "orders", "snapshot": "false", "sequence": None, "ts_ms": 1}
    event = {"op": "c", "after": {"id": 1, "moment": 5, "at": 6}, "source": source}
    for lsn in (0, 5):
        change = Decoder(known, fit=Fit(lsn)).decode(b'{"id": 1}', json.dumps(event).encode(), "t", 0, 0)
        assert change.after is not None and change.after["at"] == 5
    swapped = replace(ORDERS.table, columns=(replace(ID, name="at"), replace(AT, name="id")))
    assert frozen.over(Catalogue({"public.orders": swapped})).tables["public.orders"].moved == ()


def test_another_change_does_not_let_go_by_the_table_again_what_can_not_hold_the_first(tmp_path: Path) -> None:
    """The living generation failed when a second migration came before the next generation of the first was there."""
    pipeline = make(tmp_path)
    first = done(pipeline, {**BEFORE, "public.orders": WIDER})
    generation = register_of(pipeline, "search").generation(1)
    identity = replace(WIDER, table=replace(WIDER.table, replica_identity="full"), since=20)
    shapes = Shapes({"public.orders": (ORDERS, WIDER, identity), "public.customers": (CUSTOMERS,)})
    now = {**BEFORE, "public.orders": identity}
    told = shapes.told_to(Catalogue({n: s.table for n, s in now.items()}))
    second = act(pipeline, "search", told, now, first.evolution)
    assert read_frozen(generation).tables["public.orders"] == ORDERS.table
    assert (second.evolution.todo["public.orders"].rebuild, second.retake) == (True, set())
    # Taken back, it can be followed: what was written meanwhile is read again.
    back = replace(ORDERS, files="h", since=30)
    shapes = Shapes({"public.orders": (ORDERS, WIDER, identity, back), "public.customers": (CUSTOMERS,)})
    now = {**BEFORE, "public.orders": back}
    third = act(
        pipeline, "search", shapes.told_to(Catalogue({n: s.table for n, s in now.items()})), now, second.evolution
    )
    assert not read_frozen(generation).tables
    assert (third.evolution.todo["public.orders"].read, third.retake) == ("", {("search", 1)})


def test_what_is_ignored_stays_ignored_when_something_else_changes(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "ignore")
    first = done(pipeline, {**BEFORE, "public.orders": MORE})
    identity = replace(MORE, table=replace(MORE.table, replica_identity="full"), since=20)
    shapes = Shapes({"public.orders": (ORDERS, MORE, identity), "public.customers": (CUSTOMERS,)})
    now = {**BEFORE, "public.orders": identity}
    act(pipeline, "search", shapes.told_to(Catalogue({n: s.table for n, s in now.items()})), now, first.evolution)
    assert read_frozen(register_of(pipeline, "search").generation(1)).tables["public.orders"] == ORDERS.table


def test_what_was_left_out_comes_once_it_is_let_through(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "ignore")
    first = done(pipeline, {**BEFORE, "public.orders": MORE})
    generation = register_of(pipeline, "search").generation(1)
    assert read_frozen(generation).tables
    renamed = replace(MORE, table=replace(MORE.table, columns=(ID, replace(AT, name="moment"), NOTE)), since=20)
    let = replace(first.evolution, allowed={"public.orders": renamed})
    shapes = Shapes({"public.orders": (ORDERS, MORE, renamed), "public.customers": (CUSTOMERS,)})
    now = {**BEFORE, "public.orders": renamed}
    out = act(pipeline, "search", shapes.told_to(Catalogue({n: s.table for n, s in now.items()})), now, let)
    assert not read_frozen(generation).tables
    assert (out.evolution.todo["public.orders"].read, out.retake) == ("", {("search", 1)})


def test_what_was_left_out_comes_once_the_file_says_evolve(tmp_path: Path) -> None:
    """It never came, `plan` had nothing to change, and `verify` was equal."""
    ignored = done(make(tmp_path, "ignore"), {**BEFORE, "public.orders": MORE}).evolution
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)).replace("POLICY", "evolve"), "shop.yaml", {})
    now = {**BEFORE, "public.orders": MORE}
    generation = register_of(pipeline, "search").generation(1)
    under_way = replace(ignored, todo={"public.orders": Todo(("x",), 1.0, rebuild=True)})
    assert done(pipeline, now, under_way).said == [] and read_frozen(generation).tables
    told = Catalogue({name: shape.table for name, shape in now.items()})
    assert act(pipeline, "search", told, now, ignored, ["public.orders"]).said == []  # mended first, by hand
    out = done(pipeline, now, ignored)
    assert read_frozen(generation) == Frozen() and out.retake == {("search", 1)}
    assert (
        out.evolution.todo["public.orders"].read == "" and out.said[0] == "table public.orders: column note was added"
    )
    assert done(pipeline, now, out.evolution).said == []


def test_plan_names_what_was_left_out_once_the_file_says_evolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {**BEFORE, "public.orders": MORE}
    ignored = done(make(tmp_path, "ignore"), now).evolution
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)).replace("POLICY", "evolve"), "shop.yaml", {})
    write_evolution(pipeline, "search", ignored)
    tables = Catalogue({name: shape.table for name, shape in now.items()})
    monkeypatch.setattr(migrations, "connect", lambda *_, **__: nullcontext())
    monkeypatch.setattr(migrations, "read_shapes", lambda *_, **__: (tables, now))
    monkeypatch.setattr(migrations, "estimated_rows", lambda *_: {"public.orders": 7})
    [told] = migrations.migrations(pipeline)
    assert (told["table"], told["changes"], told["read"]) == ("public.orders", ["column note was added"], 7)
    assert [(one["view"], one["verdict"]) for one in told["views"]] == [("order", "in place and read again")]
    assert read_frozen(register_of(pipeline, "search").generation(1)).tables  # and changes nothing


def test_what_was_left_out_and_can_not_be_held_is_built_anew_but_not_where_readers_were_taken_back(
    tmp_path: Path,
) -> None:
    count = 'aggregates: {n: {table: customers, on: {id: id}, value: "count(*)"}}'
    text = TEXT.replace("order: {root: orders}", f"order: {{root: orders, {count}}}")
    text += 'row_store: {url: "redis://127.0.0.1:1"}\n'
    ignored = done(make(tmp_path, "ignore", text), {**BEFORE, "public.orders": MORE}).evolution
    pipeline = loads(text.replace("STATE", str(tmp_path)).replace("POLICY", "evolve"), "shop.yaml", {})
    register, now = register_of(pipeline, "search"), {**BEFORE, "public.orders": MORE}
    out = done(pipeline, now, ignored)
    assert out.evolution.todo["public.orders"].rebuild
    assert read_frozen(register.generation(1)).tables  # it goes on as it was until then
    register.create("x", own=True)
    promoted(register, 2)
    built = replace(out.evolution, todo={})
    assert done(pipeline, now, built).said == []
    register.begin_promotion(1, 2)
    register.promote(1)
    assert done(pipeline, now, built).said == []


def test_what_waits_forgets_nothing_of_what_was_under_way(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "pause")
    busy = Todo(("x",), 1.0, read="", rebuild=True, capture=True, sweep=True, new=True)
    out = done(pipeline, {**BEFORE, "public.orders": MORE}, Evolution(BEFORE, {"public.orders": busy}))
    assert out.evolution.todo["public.orders"] == replace(busy, what=("column note was added",), waits=True)
    let = replace(out.evolution, allowed={"public.orders": MORE})
    after = done(pipeline, {**BEFORE, "public.orders": MORE}, let).evolution.todo["public.orders"]
    assert (after.read, after.rebuild, after.capture, after.sweep, after.new, after.waits) == ("", *[True] * 4, False)


def test_a_condition_that_may_name_a_column_that_is_gone_is_asked_no_more(tmp_path: Path) -> None:
    known = Evolution({**BEFORE, "public.orders": MORE}, {"public.orders": Todo(("x",), 1.0, '"note" IS NOT NULL')})
    out = done(make(tmp_path), {**BEFORE, "public.orders": replace(ORDERS, since=20)}, known)
    assert out.evolution.todo["public.orders"].read == ""


def test_a_column_under_the_name_of_one_that_has_gone_has_its_field_of_before(tmp_path: Path) -> None:
    """Expand and contract, in three looks: the index still has the first column's field, and refused the last step."""
    pipeline = make(tmp_path)
    wide = Column("at_new", "bigint", "int8", ordinal=3)
    steps = [(ID, AT, wide), (ID, wide), (ID, replace(wide, name="at"))]
    shapes = [
        ORDERS,
        *(replace(ORDERS, table=replace(ORDERS.table, columns=c), since=n) for n, c in enumerate(steps, 1)),
    ]
    known, generation = Evolution(acted=BEFORE), register_of(pipeline, "search").generation(1)
    for until in range(2, 5):
        now = {**BEFORE, "public.orders": shapes[until - 1]}
        told = Shapes({"public.orders": tuple(shapes[:until]), "public.customers": (CUSTOMERS,)}).told_to(
            Catalogue({name: shape.table for name, shape in now.items()})
        )
        known = act(pipeline, "search", told, now, known).evolution
        assert known.todo["public.orders"].rebuild == (until == 4)
    assert read_mapped(generation)["order"]["at"] == {"type": "integer"}
    assert "at_new" in read_frozen(generation).tables["public.orders"].by_name
    assert list(read_mapped(register_of(pipeline, "cache").generation(1))) == []


def test_a_mapping_that_names_a_dropped_column_is_told_as_it_happens(tmp_path: Path) -> None:
    mapped = TEXT.replace("views: [order, customer]", "view: order, mapping: {at: {index: false}}")
    dropped = replace(ORDERS, table=replace(ORDERS.table, columns=(ID,)), since=9)
    out = done(make(tmp_path, text=mapped), {**BEFORE, "public.orders": dropped})
    assert out.said[1].endswith("view order: in place and read again (take `at` out of `mapping:`)")


def test_values_that_no_log_has_are_owed_until_a_view_needs_them(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    default = replace(
        CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID, NAME, NOTE)), filled=(NOTE.ordinal,), since=9
    )
    now = {**BEFORE, "public.customers": default}
    assert done(pipeline, now).evolution.todo == {}  # the view names its columns
    assert read_owed(pipeline) == {"public.customers": [NOTE.ordinal]}
    catalogue = Catalogue({name: shape.table for name, shape in now.items()})
    assert owed_to(pipeline, "search", catalogue, read_owed(pipeline)) == {}
    more = loads(
        TEXT.replace("STATE", str(tmp_path)).replace("POLICY", "evolve").replace("[id, name]", "[id, note]"), "f", {}
    )
    # Also while what is there goes on as it was defined: the next one is filled of a log that lacks them.
    assert owed_to(more, "search", catalogue, read_owed(pipeline)) == {"public.customers": ["note"]}
    register_of(more, "search").generation(1).flow_folder("main").joinpath("checkpoint").rmdir()
    assert owed_to(more, "search", catalogue, read_owed(pipeline)) == {"public.customers": ["note"]}
    owe(pipeline, "public.customers", settled=True)
    assert read_owed(pipeline) == {}


def test_a_name_that_came_back_in_a_later_look_is_owed_until_a_view_needs_it(tmp_path: Path) -> None:
    """The sinks are brought to one shape after another, and know only the one before: the names of all are told."""
    pipeline = make(tmp_path)
    steps = [(ID, NAME, NOTE), (ID, NAME), (ID, NAME, replace(NOTE, ordinal=9))]
    shapes = [replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=c), since=n) for n, c in enumerate(steps)]
    known = Evolution(acted={**BEFORE, "public.customers": shapes[0]})
    for until in (2, 3):
        now = {**BEFORE, "public.customers": shapes[until - 1]}
        told = Shapes({"public.customers": tuple(shapes[:until]), "public.orders": (ORDERS,)}).told_to(
            Catalogue({name: shape.table for name, shape in now.items()})
        )
        known = act(pipeline, "search", told, now, known).evolution
        assert known.todo == {}, "its view names its columns"
    assert read_owed(pipeline) == {"public.customers": [9]}


def test_partitions_bring_their_rows_and_take_them(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    before = {**BEFORE, "public.orders": replace(ORDERS, parts=((1, "p1", "7"), (2, "p2", "7")))}
    now = {**BEFORE, "public.orders": replace(ORDERS, parts=((2, "p2", "9"), (3, "p3", "9")))}
    out = done(pipeline, now, Evolution(acted=before))
    todo = out.evolution.todo["public.orders"]
    # The second was detached and attached again between two looks.
    assert (todo.read, todo.sweep, todo.capture) == ("(tableoid IN (2, 3)) OR (false)", True, True)
    assert out.retake == set()
    assert done(pipeline, now, out.evolution).evolution == out.evolution
    write_evolution(pipeline, "search", out.evolution)
    (told,) = evolving(pipeline)  # it said that all rows of the table are
    assert told["reading"] and told["rows"] == "rows of p2, p3 are read"
    assert line(told).endswith("partition p1 is gone, partition p2 is gone: rows of p2, p3 are read")
    write_evolution(pipeline, "search", replace(out.evolution, todo={"public.orders": replace(todo, read="false")}))
    assert evolving(pipeline)[0]["rows"] == "rows that are gone are looked for"
    write_evolution(pipeline, "cache", replace(out.evolution, todo={"public.orders": replace(todo, read=ALL_ROWS)}))
    assert evolving(pipeline)[0]["rows"] == "rows of public.orders are read again"


def test_a_partition_is_left_to_the_sinks_that_read_its_table_if_this_process_runs_one(tmp_path: Path) -> None:
    """A warehouse that does not read the table was `evolving` for as long as its partition could not be captured."""
    pipeline = make(tmp_path)
    before = {**BEFORE, "public.customers": replace(CUSTOMERS, parts=((1, "p1", "7"),))}
    now = {**BEFORE, "public.customers": replace(CUSTOMERS, parts=((1, "p1", "7"), (2, "p2", "7")))}
    told = Catalogue({name: shape.table for name, shape in now.items()})

    def todo(sink: str, *beside: str) -> Todo | None:
        return act(pipeline, sink, told, now, Evolution(acted=before), (), beside).evolution.todo.get(
            "public.customers"
        )

    assert todo("cache", "cache", "search") is None
    alone, reader = todo("cache", "cache"), todo("search", "cache", "search")  # somebody has to have it captured
    assert alone is not None and alone.capture and reader is not None and reader.capture
    acted = act(pipeline, "cache", told, now, Evolution(acted=before), (), ["search"]).evolution.acted
    assert acted["public.customers"] == now["public.customers"]


def test_what_can_not_be_captured_says_what_to_do_and_is_not_told_to_be_read() -> None:
    one = {
        "table": "public.events",
        "what": ["partition events_3 was added"],
        "reading": True,
        "rows": "rows of public.events are read again",
        "capturing": True,
        "rebuilding": [],
        "waits": False,
        "progress": None,
        "error": "events_3 is unlogged\n  what it means: lost\n  what to do: ALTER TABLE events_3 SET LOGGED",
    }
    assert line(one) == (
        "evolving: table public.events: partition events_3 was added: it is still to be captured as it is now;"
        " last error: events_3 is unlogged (what to do: ALTER TABLE events_3 SET LOGGED)"
    )
    assert "rows of public.events are read again" in line({**one, "error": None})


def test_a_view_that_names_a_column_by_its_former_name_follows_the_next_change_too(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    title = replace(CUSTOMERS, table=replace(CUSTOMERS.table, columns=(ID, replace(NAME, name="title"))), since=3)
    number = replace(NAME, name="title", type_name="integer", base_type="int4")
    retyped = replace(title, table=replace(title.table, columns=(ID, number)), since=5, files="g")
    shapes = Shapes({"public.customers": (CUSTOMERS, title, retyped), "public.orders": (ORDERS,)})
    catalogue = shapes.told_to(Catalogue({"public.customers": retyped.table, "public.orders": ORDERS.table}))
    known = Evolution(acted={**BEFORE, "public.customers": title})
    out = act(pipeline, "search", catalogue, {"public.orders": ORDERS, "public.customers": retyped}, known)
    assert out.evolution.todo["public.customers"].rebuild
    frozen = read_frozen(register_of(pipeline, "search").generation(1)).tables["public.customers"]
    assert (frozen.renamed, frozen.columns[1].name) == ((("name", "title"),), "title")


def test_todo_of_two_changes_adds_up(tmp_path: Path) -> None:
    known = Evolution(BEFORE, {"public.orders": Todo(("x",), 1.0, '"a" IS NOT NULL', True)})
    out = done(make(tmp_path), {**BEFORE, "public.orders": MORE}, known)
    todo = out.evolution.todo["public.orders"]
    assert todo.read == '("a" IS NOT NULL) OR ("note" IS DISTINCT FROM NULL)'
    assert todo.rebuild


def test_what_was_under_way_is_still_told_when_the_table_changes_again(tmp_path: Path) -> None:
    before = Todo(("column n changed",), 1.0, rebuild=True)
    labels = replace(ORDERS, table=replace(ORDERS.table, columns=(ID, replace(AT, nullable=False))))
    told = {}
    for name, shape in (("more", MORE), ("labels", labels)):
        known = Evolution(BEFORE, {"public.orders": before})
        told[name] = done(make(tmp_path / name), {**BEFORE, "public.orders": shape}, known).evolution
    assert told["more"].todo["public.orders"].what == ("column n changed", "column note was added")
    assert told["labels"].todo["public.orders"].what == ("column n changed",)
    again = Evolution(BEFORE, told["more"].todo)
    once = done(make(tmp_path / "again"), {**BEFORE, "public.orders": MORE}, again).evolution
    assert once.todo["public.orders"].what == ("column n changed", "column note was added")


def test_a_generated_column_that_goes_is_told_in_words() -> None:
    twice = replace(ORDERS, table=replace(ORDERS.table, generated=("twice",)))
    assert in_words(ORDERS, twice, []) == ("generated columns are (twice)",)
    assert in_words(twice, ORDERS, []) == ("no column is generated any more",)


def test_shapes_are_kept_by_whoever_sees_them(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    remember_shapes(pipeline, BEFORE)
    remember_shapes(pipeline, {"public.orders": MORE})
    assert [shape.since for shape in known_shapes(pipeline).tables["public.orders"]] == [0, 9]


@pytest.mark.parametrize(
    "name", ["shapes.json", "search/evolution.json", "search/g1/frozen.json", "search/g1/mapped.json"]
)
@pytest.mark.parametrize("text", ["", "{", json.dumps({"format": SHAPES, "tables": [], "acted": [], "views": []})])
def test_what_can_not_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    pipeline = make(tmp_path)
    (tmp_path / "shop" / name).write_text(text)
    reads: dict[str, Any] = {
        "shapes.json": lambda: known_shapes(pipeline),
        "search/evolution.json": lambda: read_evolution(pipeline, "search"),
        "search/g1/frozen.json": lambda: read_frozen(register_of(pipeline, "search").generation(1)),
        "search/g1/mapped.json": lambda: read_mapped(register_of(pipeline, "search").generation(1)),
    }
    with pytest.raises(StateError, match="json can't be read"):
        reads[name]()


def test_plan_names_what_is_no_column_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that was made again without its identity: `plan` said "table public.items: " and no more."""
    monkeypatch.setattr(migrations, "estimated_rows", lambda connection, tables: {})
    now = replace(CUSTOMERS, table=replace(CUSTOMERS.table, replica_identity="full"))
    told = migrations._told(cast(Any, None), cast(Any, None), "public.customers", CUSTOMERS, now, [])
    assert told["changes"] == ["the replica identity is full"]
