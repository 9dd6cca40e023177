"""Tables that come to a sink of all tables while it lives: of which it has them, and under which policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.pipeline import Pipeline, loads
from cdc.shapes import Shape
from operations.opened import going_on
from operations.schema.act import Acted, act
from operations.schema.joining import lacking, take_up
from operations.state.evolution import Evolution
from operations.state.folder import register_of
from spark.disk.made_of import as_defined, define, taken_up

TEXT = """
version: 1
name: shop
source: {database: shop, user: u, tables: [SOURCE]}
kafka: {bootstrap: "localhost:1"}
connect: {url: "http://127.0.0.1:1"}
policy: {schema: POLICY}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", tables: TABLES}
  lake: {type: iceberg, tables: TABLES, catalog_uri: /c.db, warehouse: /w, namespace: n}
engine: {state_dir: STATE}
"""
ID = Column("id", "integer", "int4", nullable=False, ordinal=1)
A, B, C = (Shape(Table("public", name, (ID,), ("id",)), 0, oid, name) for oid, name in enumerate("abc", 1))
NAMED = "public.a, public.b, public.c"
TWO, ALL = {"public.a": A, "public.b": B}, {"public.a": A, "public.b": B, "public.c": C}


def loaded(folder: Path, tables: str, policy: str = "evolve", source: str = NAMED) -> Pipeline:
    text = TEXT.replace("STATE", str(folder)).replace("TABLES", tables).replace("POLICY", policy)
    return loads(text.replace("SOURCE", source), "shop.yaml", {})


def filled(pipeline: Pipeline, tables: list[str]) -> None:
    """Both sinks with a living generation that has written."""
    for sink in pipeline.sinks:
        generation = register_of(pipeline, sink).generation(1)
        define(generation, pipeline, tables)
        (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)


def told(shapes: dict[str, Shape]) -> Catalogue:
    return Catalogue({name: shape.table for name, shape in shapes.items()})


def done(pipeline: Pipeline, shapes: dict[str, Shape], known: Evolution, sink: str = "cache") -> Acted:
    return act(pipeline, sink, told(shapes), shapes, known)


@pytest.mark.parametrize("named", ["[public.a, public.b]", "[a, public.b]"])
@pytest.mark.parametrize("sink", ["cache", "lake"])
def test_a_sink_that_comes_to_keep_all_tables_takes_up_those_that_it_lacks(
    tmp_path: Path, sink: str, named: str
) -> None:
    """Those that had long been captured for others never came; `plan` had nothing to change, and `verify` was equal."""
    filled(loaded(tmp_path, named), [])
    pipeline = loaded(tmp_path, "all")
    first = done(pipeline, ALL, Evolution(acted=ALL), sink)
    todo = first.evolution.todo["public.c"]
    assert (todo.capture, todo.new, list(first.evolution.todo)) == (True, True, ["public.c"])
    assert first.said == ["table public.c: the sink comes to keep it"]
    again = done(pipeline, ALL, first.evolution, sink)
    assert (again.evolution, again.said) == (first.evolution, [])  # it is under way
    assert take_up(pipeline, sink, told(ALL), "public.c", []) and not lacking(pipeline, sink, told(ALL))
    generation = register_of(pipeline, sink).generation(1)
    kept = going_on(pipeline, generation, told(ALL)).sinks[sink].tables
    assert kept is not None and len(kept) == 3  # also those that the file had by their short names
    assert not done(pipeline, ALL, Evolution(acted=ALL), sink).evolution.todo


def test_what_a_sink_of_all_tables_can_not_keep_is_not_tried_at_each_look(tmp_path: Path) -> None:
    filled(loaded(tmp_path, "[public.a]"), [])
    pipeline, keyless = loaded(tmp_path, "all"), replace(C, table=replace(C.table, primary_key=()))
    shapes = {**TWO, "public.c": keyless}
    assert lacking(pipeline, "cache", told(shapes)) == {"public.b"}
    said = list[str]()
    assert not take_up(pipeline, "cache", told(shapes), "public.c", said) and "has no primary key" in said[0]
    assert not lacking(loaded(tmp_path, "[public.a]"), "cache", told(ALL))  # it names its tables
    broken = act(pipeline, "cache", told(TWO), TWO, Evolution(acted=TWO), ["public.b"])
    assert not broken.evolution.todo  # one whose changes are missing would stop what it has


def test_one_that_was_never_started_takes_the_tables_as_they_are(tmp_path: Path) -> None:
    assert not lacking(loaded(tmp_path, "all"), "cache", told(ALL))


@pytest.mark.parametrize("policy", ["pause", "ignore"])
def test_a_new_table_that_is_asked_for_is_taken_up_under_each_policy(tmp_path: Path, policy: str) -> None:
    """It never was, and not after the policy was changed either."""
    pipeline = loaded(tmp_path, "all", policy)
    filled(pipeline, [*TWO])
    out = done(pipeline, ALL, Evolution(acted=TWO))
    assert out.evolution.todo["public.c"].new and out.evolution.acted["public.c"] == C


@pytest.mark.parametrize("policy", ["pause", "ignore"])
def test_a_new_table_that_nobody_has_named_waits_for_apply_or_another_policy(tmp_path: Path, policy: str) -> None:
    pipeline = loaded(tmp_path, "all", policy, '"public.*"')
    filled(pipeline, [*TWO])
    out = done(pipeline, ALL, Evolution(acted=TWO))
    assert (dict(out.evolution.todo), out.evolution.acted) == ({}, TWO)
    for let, now in (
        (replace(out.evolution, allowed=ALL), pipeline),
        (out.evolution, loaded(tmp_path, "all", "evolve", '"public.*"')),
    ):
        after = done(now, ALL, let)
        assert after.evolution.todo["public.c"].new and after.evolution.acted["public.c"] == C
        assert after.said == ["table public.c is new, and captured from now on"]
    begun = done(pipeline, ALL, Evolution())  # what is there as it begins is known
    assert begun.evolution.acted == ALL


def test_one_that_joined_is_kept_as_it_was_defined(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, "all")
    filled(pipeline, [*TWO])
    assert take_up(pipeline, "cache", told(ALL), "public.c", [])
    generation = register_of(pipeline, "cache").generation(1)
    assert as_defined(pipeline, generation).sinks["cache"].tables == ("public.a", "public.b", "public.c")


def test_what_is_built_and_nobody_sees_brings_no_table_and_the_others_are_not_told_of_one_that_they_keep(
    tmp_path: Path,
) -> None:
    """It may be of an older file that named its tables, and goes. The living one's target was not made yet."""
    pipeline = loaded(tmp_path, "all")
    filled(pipeline, list(ALL))
    register = register_of(pipeline, "cache")
    narrow = register.generation(register.create("sink.tables changed", own=True).number)
    define(narrow, loaded(tmp_path, "[public.a]"), [])
    (narrow.flow_folder("main") / "checkpoint").mkdir(parents=True)
    assert not lacking(pipeline, "cache", told(ALL))
    assert take_up(pipeline, "cache", told(ALL), "public.b", [])
    assert taken_up(register.generation(1).folder) == set() and taken_up(narrow.folder) == {"public.b"}


@pytest.mark.parametrize("damage", ["definition", "no object", "frozen", "another type"])
def test_what_can_not_be_read_of_one_sink_does_not_end_the_others(tmp_path: Path, damage: str) -> None:
    """`run` ended at its start, and at its next look; before, that sink alone was refused."""
    pipeline = loaded(tmp_path, "all")
    filled(pipeline, list(ALL))
    folder = register_of(pipeline, "cache").generation(1).folder
    match damage:
        case "definition" | "no object":
            (folder / "definition.json").write_text("{" if damage == "definition" else "[]")
        case "frozen":
            (folder / "frozen.json").write_text("{")
        case _:
            pipeline = loads(
                TEXT.replace("STATE", str(tmp_path))
                .replace("TABLES", "all")
                .replace("POLICY", "evolve")
                .replace("SOURCE", NAMED)
                .replace('type: redis, url: "redis://127.0.0.1:1"', 'type: elasticsearch, url: "http://127.0.0.1:1"'),
                "shop.yaml",
                {},
            )
    for sink in ("cache", "lake"):
        acted = done(pipeline, ALL, Evolution(acted=ALL), sink)
        assert (acted.said, acted.evolution.todo) == ([], {}), sink
