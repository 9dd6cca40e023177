"""A captured table that is gone: who goes on knows it as it was, who begins is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, HeadwaterError, TableChanged
from cdc.pipeline import Pipeline, loads
from cdc.shapes import Shape, Shapes
from cdc.view import View
from operations import gate, opened
from operations.edits.changes import changes_between
from operations.generations.outdated import asked
from operations.schema import joining
from operations.state.catalogue import captured_table
from operations.state.folder import register_of
from operations.state.frozen import known_to, with_gone
from operations.state.history import history_folder
from operations.verify.comparison import Comparison
from operations.verify.tables_now import TablesNow
from operations.verify.verifier import Asked, Verifier
from spark.disk.made_of import forget_taken_up, note_taken_up, outdated, taken_up
from spark.disk.state import Generation
from tests.support.promoted import promoted

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [TABLES]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
sinks:
  warehouse:
    {type: iceberg, tables: CHOSEN, catalog_uri: sqlite.db, warehouse: /nowhere, namespace: shop}
  cache: {type: redis, tables: CHOSEN, url: "redis://localhost:1", key_prefix: "shop:"}
engine: {state_dir: STATE}
"""
NAMED, WHOLE = "public.orders, public.lines", '"public.*"'


def table(name: str) -> Table:
    return Table("public", name, (Column("id", "integer", "int4", nullable=False, ordinal=1),), ("id",))


ORDERS, LINES = table("orders"), table("lines")
BOTH = Catalogue({one.qualified: one for one in (ORDERS, LINES)}, system_identifier="7")
KNOWN = Shapes({one.qualified: (Shape(one, 0, 9, "f", ()),) for one in (ORDERS, LINES)})
# As they are read when one of them is gone.
LEFT = KNOWN.told_to(replace(BOTH, tables={"public.orders": ORDERS}))
MOVED = replace(LEFT, tables={**LEFT.tables, "archive.lines": replace(LINES, schema="archive")})


def load(state: Path, tables: str = NAMED, chosen: str = "[orders, lines]") -> Pipeline:
    text = TEXT.replace("TABLES", tables).replace("CHOSEN", chosen).replace("STATE", str(state))
    return loads(text, "shop.yaml", {})


def test_what_was_there_once_is_known_as_it_was() -> None:
    assert KNOWN.told_to(BOTH).gone == {}
    assert LEFT.gone == {"public.lines": LINES} and list(LEFT.tables) == ["public.orders"]


@pytest.mark.parametrize(
    ("tables", "chosen", "there"),
    [
        (NAMED, "[orders, lines]", True),
        (NAMED, "all", True),
        (WHOLE, "[orders, lines]", True),
        (WHOLE, "all", False),  # nobody has said that it should be there
        ("public.orders", "all", False),  # the file does not have it captured any more
        ("public.orders", "[orders]", False),
    ],
)
def test_who_goes_on_with_it(tmp_path: Path, tables: str, chosen: str, there: bool) -> None:
    known = with_gone(load(tmp_path, tables, chosen), "warehouse", LEFT)
    assert ("public.lines" in known.tables) is there and "public.orders" in known.tables


@pytest.mark.parametrize("tables", [NAMED, WHOLE])
def test_documents_of_all_tables_are_one_flow_that_goes_on_with_its_topics(tmp_path: Path, tables: str) -> None:
    pipeline = load(tmp_path, tables, "all")
    assert "public.lines" in with_gone(pipeline, "cache", LEFT).tables


def fill(pipeline: Pipeline, sink: str, monkeypatch: pytest.MonkeyPatch) -> Generation:
    """A generation of both tables that has written."""
    monkeypatch.setattr(opened, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, "id"))
    build = opened.open_generation(pipeline, BOTH, sink, 1)
    opened.accept(build)
    build.generation.unlock()
    flow = build.generation.flow_folder("orders")
    flow.mkdir()
    (flow / "status.json").write_text(json.dumps({"state": "failed", "batch_id": 0}))
    return build.generation


@pytest.mark.parametrize(
    ("sink", "chosen", "then", "kept"),
    [
        ("cache", "all", "all", {"orders", "lines"}),
        ("cache", "[orders, lines]", "[orders]", {"orders", "lines"}),
        ("cache", "[orders, lines]", "all", {"orders", "lines"}),
        ("warehouse", "all", "all", {"orders"}),  # its flow is one of its own, and ends
        ("warehouse", "[orders, lines]", "[orders]", {"orders", "lines"}),
        ("warehouse", "all", "[orders]", {"orders", "lines"}),
    ],
)
def test_a_generation_goes_on_as_it_was_made_without_a_table_that_was_taken_out_of_the_file(
    tmp_path: Path, sink: str, chosen: str, then: str, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole cache was refused (`public.lines is not a captured table`), and told to capture it again."""
    generation = fill(load(tmp_path, NAMED, chosen), sink, monkeypatch)
    without = load(tmp_path, "public.orders", then)
    build = opened.open_generation(without, LEFT, sink, 1)
    build.generation.unlock()
    assert {view.name for view in build.views} == kept
    assert {view.name for view in opened.peek(without, LEFT, generation).views} == kept
    assert gate.wrong_in_generations(without, LEFT, no_spark) == []
    new = register_of(without, sink).generation(2)  # takes the file and its tables as they are now
    assert new.known() is None and "public.lines" not in known_to(without, new, LEFT).tables


def refusals(pipeline: Pipeline, *, check: bool = True) -> list[str]:
    wrong = gate.wrong_in_file(pipeline, MOVED, no_spark, kept_too=check)
    return [
        str(one) for one in wrong if "archive.lines would be called in sink warehouse what public.lines" in str(one)
    ]


@pytest.mark.parametrize(
    "tables", ["public.orders, archive.lines", 'public.orders, "archive.*"', f'{WHOLE}, "archive.*"']
)
def test_a_warehouse_of_all_tables_does_not_keep_a_table_that_was_moved_to_another_schema(
    tmp_path: Path, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its flow went on from the place that the former one had in another topic, and failed for good."""
    fill(load(tmp_path, NAMED, "all"), "warehouse", monkeypatch)
    pipeline = load(tmp_path, tables, "all")
    assert len(refusals(pipeline)) == 1, "check"
    assert len(refusals(pipeline, check=False)) == ("archive.lines" in tables), "nobody's apply waits for a pattern"
    said: list[str] = []
    assert not joining.take_up(pipeline, "warehouse", MOVED, "archive.lines", said), "nor by a running one"
    assert "public.lines had this name in it" in said[0]
    assert joining.lacking(pipeline, "warehouse", MOVED) == set()
    elsewhere = pipeline.sinks["warehouse"].model_copy(update={"namespace": "other"})
    assert not refusals(pipeline.model_copy(update={"sinks": {"warehouse": elsewhere}}))
    (register_of(pipeline, "warehouse").generation(1).folder / "identity.json").write_text("{")
    assert not refusals(pipeline), "told by who opens it"


@pytest.mark.parametrize("namespace", ["shop", "other"])
def test_a_history_refuses_a_table_that_was_moved_whatever_its_warehouse_keeps(tmp_path: Path, namespace: str) -> None:
    """All of a history stopped by one; back in a namespace of before it met the same."""
    pipeline = load(tmp_path, "public.orders, archive.lines", "[orders, lines]")
    folder = history_folder(pipeline, "warehouse")
    bound = {"namespace": namespace, "topic_ids": {"shop.public.lines": "1", "shop.public.orders": "2"}}
    (folder / "former/shop").mkdir(parents=True)
    (folder / "identity.json").write_text(json.dumps(bound))
    (folder / "former/shop/identity.json").write_text(json.dumps({**bound, "namespace": "shop"}))
    assert not refusals(pipeline), "it keeps none"
    keeping = pipeline.sinks["warehouse"].model_copy(update={"history": True})
    assert len(refusals(pipeline.model_copy(update={"sinks": {"warehouse": keeping}}))) == 1


def test_a_previous_generation_keeps_no_living_one_from_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(load(tmp_path, NAMED, "all"), "warehouse", monkeypatch)
    pipeline = load(tmp_path, "public.orders, archive.lines", "all")
    register = register_of(pipeline, "warehouse")
    register.create("asked for")
    build = opened.open_generation(load(tmp_path, "public.orders", "all"), LEFT, "warehouse", 2)
    opened.accept(build)
    build.generation.unlock()
    (build.generation.flow_folder("orders") / "checkpoint").mkdir(parents=True)
    promoted(register, 2)
    said: list[str] = []
    assert joining.take_up(pipeline, "warehouse", MOVED, "archive.lines", said) and said == []
    assert "archive.lines" in opened.kept_tables(pipeline, register.generation(2))
    assert "archive.lines" not in opened.kept_tables(pipeline, register.generation(1))
    assert joining.lacking(pipeline, "warehouse", MOVED) == set(), "else it would join for ever"


def test_a_table_of_another_schema_has_the_name_of_one_that_was_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved there. What was filled goes on with the topics that it has read, as Spark's source insists; the next
    generation, which is asked for, reads that one."""
    pipeline = load(tmp_path, "public.orders, archive.lines")
    generation = fill(load(tmp_path), "cache", monkeypatch)
    build = opened.open_generation(pipeline, MOVED, "cache", 1)
    build.generation.unlock()
    assert build.topics == {"shop.public.orders", "shop.public.lines"}
    assert {view.table.qualified for view in opened.peek(pipeline, MOVED, generation).views} == {*BOTH.tables}
    assert asked(pipeline, register_of(pipeline, "cache")) == ["public.lines is archive.lines now"]
    assert outdated(load(tmp_path), generation) == []
    register_of(pipeline, "cache").create("asked for")
    build = opened.open_generation(pipeline, MOVED, "cache", 2)
    opened.accept(build)
    build.generation.unlock()
    assert build.topics == {"shop.public.orders", "shop.archive.lines"} and outdated(pipeline, build.generation) == []


def test_a_whole_cache_asks_for_its_next_generation_when_a_table_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not take up another `lines`, and what it showed stood still for good: one line in the log of `run`."""
    generation = fill(load(tmp_path, NAMED, "all"), "cache", monkeypatch)
    warehouse = fill(load(tmp_path, NAMED, "all"), "warehouse", monkeypatch)
    pipeline = load(tmp_path, "public.orders, archive.lines", "all")
    assert outdated(pipeline, generation) == ["public.lines is archive.lines now"] and not outdated(pipeline, warehouse)
    assert outdated(load(tmp_path, "public.orders", "all"), generation) == [], "nothing took its place"
    assert changes_between(load(tmp_path, NAMED, "all"), pipeline).rebuilt["cache"]
    assert gate.wrong_in_generations(pipeline, MOVED, no_spark) == []
    whole = load(tmp_path, 'public.orders, "archive.*"', "all")  # the file alone does not tell
    [(sink, number, error)] = gate.wrong_in_generations(whole, MOVED, no_spark)
    assert (sink, number) == ("cache", 1) and "public.lines is archive.lines now" in error.what
    assert "headwater rebuild shop.yaml cache" in str(error)
    (generation.folder / "identity.json").write_text("{")
    assert outdated(pipeline, generation) == []


@pytest.mark.parametrize("sink", ["cache", "warehouse"])
def test_a_sink_that_names_its_tables_is_told_of_one_that_was_moved_into_a_schema_captured_whole(
    tmp_path: Path, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file alone does not tell, and it stood still without a word."""
    fill(load(tmp_path), sink, monkeypatch)
    [(name, _, error)] = gate.wrong_in_generations(load(tmp_path, 'public.orders, "archive.*"'), MOVED, no_spark)
    assert name == sink and "public.lines is archive.lines now" in error.what


def test_one_that_was_filled_after_the_move_knows_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both schemas are captured whole: two tables were called `lines`, and it could not be opened."""
    pipeline = load(tmp_path, '"public.*", "archive.*"')
    moved = replace(MOVED, gone={})
    monkeypatch.setattr("tests.unit.operations.test_gone_tables.BOTH", moved)
    generation = fill(pipeline, "cache", monkeypatch)
    assert {view.table.qualified for view in opened.peek(pipeline, MOVED, generation).views} == {*moved.tables}


def test_what_stands_still_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows go on changing in Postgres, and nobody hears of it: that is no difference, and no error."""

    def compared(_self: Verifier, view: View, holders: Sequence[opened.Opened], _folder: Path) -> dict[str, Comparison]:
        return {build.sink: Comparison(view.name) for build in holders}

    fill(load(tmp_path, NAMED, "all"), "cache", monkeypatch)
    monkeypatch.setattr(Verifier, "_view", compared)
    monkeypatch.setattr(TablesNow, "refuse_altered", lambda *_: None)
    said = list[str]()
    (report,) = Verifier(load(tmp_path, "public.orders", "all"), LEFT, Asked(["cache"]), said.append).sinks()
    assert report["error"] is None and [view["view"] for view in report["views"]] == ["orders"]
    assert report["still"] == [{"view": "lines", "tables": ["public.lines"]}]
    assert "lines is not compared: it stands still, for public.lines is captured no more" in said
    # Captured by the file: somebody has to mend that.
    (report,) = Verifier(load(tmp_path, NAMED, "all"), LEFT, Asked(["cache"])).sinks()
    assert "public.lines" in report["error"] and [view["view"] for view in report["views"]] == ["orders"]
    with pytest.raises(TableChanged, match=r"public\.lines"):
        Verifier(load(tmp_path, NAMED, "all"), LEFT, Asked(["cache"], whole=True)).sinks()


def test_who_asks_for_a_row_of_it_is_told_to_put_it_back() -> None:
    """`erase` said that no such table is captured, while its rows stay in the topic and in the sinks."""
    assert captured_table(BOTH, "lines") == LINES
    for name in ("lines", "public.lines"):
        with pytest.raises(ConfigError, match=f"no table {name} is captured any more") as error:
            captured_table(LEFT, name)
        assert "put public.lines into source.tables" in (error.value.fix or "")
    with pytest.raises(ConfigError, match="no table line is captured") as error:
        captured_table(replace(LEFT, gone={}), "line")
    assert error.value.fix == "choose from public.orders"


@pytest.mark.parametrize("sink", ["warehouse", "cache"])
@pytest.mark.parametrize(("tables", "chosen"), [(NAMED, "[orders, lines]"), (NAMED, "all"), (WHOLE, "all")])
def test_a_sink_is_opened_with_it_once_it_has_written(
    tmp_path: Path, sink: str, tables: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load(tmp_path, tables, chosen)
    if (tables, chosen) != (WHOLE, "all"):  # one that has not written takes the tables that are there
        with pytest.raises(ConfigError, match="lines"):
            opened.open_generation(pipeline, LEFT, sink, 1)
    generation = fill(pipeline, sink, monkeypatch)
    build = opened.open_generation(pipeline, LEFT, sink, 1)
    build.generation.unlock()
    whole = {"orders"} if (tables, chosen, sink) == (WHOLE, "all", "warehouse") else {"orders", "lines"}
    assert {view.name for view in build.views} == whole
    assert gate.wrong_in_generations(pipeline, LEFT, no_spark) == []
    assert {view.name for view in opened.peek(pipeline, LEFT, generation).views} == whole


def no_spark(line: str) -> None:
    raise HeadwaterError(line)


def test_tables_that_were_taken_up_are_known_until_their_targets_are_made(tmp_path: Path) -> None:
    """A cache of all tables that took up a new one was taken for lost, and was made again from offset 0."""
    generation = register_of(load(tmp_path), "cache").generation(1)
    assert taken_up(generation.folder) == set()
    generation.folder.mkdir(parents=True)
    note_taken_up(generation, "public.extra")
    note_taken_up(generation, "public.more")
    assert taken_up(generation.folder) == {"public.extra", "public.more"}
    forget_taken_up(generation.folder)
    forget_taken_up(generation.folder)
    assert taken_up(generation.folder) == set()
