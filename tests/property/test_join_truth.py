"""The second opinion on random joined views, held against plain loops over the same tables, and the engine's types.

Nothing of the engine runs here but what it says of a view's types; that its documents are what the loops say, too, is
tests/property/test_join_convergence.py.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest

from cdc.catalogue import Table
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from tests.support.join_loops import EITHER, agrees
from tests.support.join_loops import truth as by_loops
from tests.support.join_world import TABLES, Row, World, as_it_was, random_view
from truth.assembled import document_of, marked, shape_of, spark_row, sparks
from truth.joins import documents
from truth.placing import is_several
from truth.spark_sql import Shape

SEEDS = range(250)


def world_of(seed: int) -> World:
    """A random view over tables that some transactions have filled."""
    random = Random(seed)
    world = World(random_view(random), rows=random.choice((3, 6)))
    for _ in range(random.randint(10, 80)):
        world.transaction(random)
    return world


def whole(view: JoinedView) -> list[str]:
    """Expressions that mean all of every row: every column of the root, and all that stands in it as a whole."""
    return [f"to_json(named_struct('x', `{name}`))" for name, _ in view.spark_schema()]


def rows_of(world: World) -> dict[str, list[dict[str, str | None]]]:
    """The tables as Postgres prints them."""
    return {f"public.{name}": [_text(row) for row in world.tables[name].values()] for name in TABLES}


def _text(row: Row) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in row.items()}


def evaluated(world: World) -> Any:
    """What Spark SQL would say of `n * 2` and of `n > 0`."""

    def evaluate(table: Table, wanted: list[str]) -> list[list[Any]]:
        said = {"n * 2": lambda n: None if n is None else n * 2, "n > 0": lambda n: None if n is None else n > 0}
        return [[said[one](row["n"]) for one in wanted] for row in world.tables[table.name].values()]

    return evaluate


def named(want: Any) -> Any:
    """The truth by loops, with what the second opinion says in the place of what may be any of several."""
    if isinstance(want, dict):
        return EITHER if EITHER in want else {name: named(value) for name, value in want.items()}
    return [named(one) for one in want] if isinstance(want, list) else want


def unworded(got: Any) -> Any:
    """A document with its words about several rows made short."""
    if isinstance(got, dict):
        return {name: unworded(value) for name, value in got.items()}
    if isinstance(got, list):
        return [unworded(one) for one in got]
    return EITHER if is_several(got) else got


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seen", [False, True], ids=["plain", "with all that Spark SQL sees"])
def test_the_second_opinion_is_what_plain_loops_say(seen: bool) -> None:
    several = 0
    for seed in SEEDS:
        world = world_of(seed)
        view = world.view
        tree = marked(view.tree, whole(view) if seen else [])
        found = documents(tree, view.table.primary_key, rows_of(world), evaluated(world))
        got = {key: orjson.loads(orjson.dumps(document_of(tree, row))) for key, row in found}
        want = {key: named(document) for key, document in by_loops(view, world.tables).items()}
        got, want = ({key: _sorted(one) for key, one in side.items()} for side in (unworded(got), want))
        wrong = [key for key in sorted({*got, *want}) if not agrees(want.get(key), got.get(key))]
        assert not wrong, f"seed {seed}: {wrong[0]!r}: want {want.get(wrong[0])}, got {got.get(wrong[0])}"
        several += EITHER in str(got)
    assert several >= 5, "histories in which a `one` has two rows must be among them"


def test_spark_sees_the_same_fields_by_the_engine_and_by_the_second_opinion() -> None:
    for seed in SEEDS:
        world = world_of(seed)
        tree, said = world.view.tree, whole(world.view)
        fields = {f"x{number}": text for number, text in enumerate(said)}
        view = JoinedView("v", tree.table, tree.table.primary_key, tree.columns, fields, root=tree)
        wide = marked(tree, said)
        seen = sparks(wide, said)
        shape = shape_of(seen, {("public." + name, "n * 2"): "int" for name in TABLES})
        assert str(_of_shape(shape)) == str(_of_arrow(view.arrow_schema())), f"seed {seed}"
        kinds = dict(view.spark_schema())
        assert {name: kinds[name] for name in shape.columns} == dict(shape.columns), f"seed {seed}"
        assert {name: kinds[name] for name in shape.lists} == {n: f"array<{k}>" for n, k in shape.lists.items()}
        found = documents(wide, view.table.primary_key, rows_of(world), evaluated(world))
        arrays = shape.arrays_of([spark_row(seen, row) for _, row in found])
        assert set(arrays) == set(kinds), f"seed {seed}"


# What names a column to somebody who reads only letters, and does not to Spark.
NO_NAMES = ("'{}: '", '"{}"', "r'{}\\'", "{}(1)", "1 -- {}\n", "/* /* */ {} */ 1", "$a${}$a$")
NAMES = ("{}", "`{}`", "upper({})", "1.5 * {}", "transform(x, {} -> 1)", "CASE WHEN {} THEN 2 END * 3", "a.{} IS NULL")


def test_a_row_that_is_meant_as_a_whole_has_the_same_fields_by_both() -> None:
    wholes = 0
    for seed in SEEDS:
        random = Random(seed)
        tree = (as_it_was(random_view(random, small=True)) if seed % 5 == 0 else random_view(random)).tree
        columns = sorted({name for table in tree.tables().values() for name in table.by_name})
        said = [
            random.choice(random.choice((NAMES, NO_NAMES))).format(random.choice(columns))
            for _ in range(random.randint(0, 5))
        ]
        rows = [one for one in tree.shown if one.node.value is None]
        shown = random.sample(rows, random.randint(0, len(rows)))
        said += [random.choice(("to_json({})", "to_json(struct({} . *))")).format(one.name) for one in shown]
        every = random.random() < 0.3
        said += ["to_json(struct(*))"] if every else []
        random.shuffle(said)
        fields = {f"x{number}": text for number, text in enumerate(said)}
        view = JoinedView("v", tree.table, tree.table.primary_key, tree.columns, fields, root=tree)
        kinds = {("public." + name, "n * 2"): "int" for name in TABLES}
        got = _of_shape(shape_of(sparks(marked(tree, said), said), kinds))
        want = _of_arrow(view.arrow_schema())
        for name in want if every else [one.name for one in shown]:
            assert str(got[name]) == str(want[name]), f"seed {seed}: {name} of {said}"
        assert not every or list(got) == list(want), f"seed {seed}: {said}"
        assert _within(got, want), f"seed {seed}: {said}"
        wholes += bool(shown)
    assert wholes > 50


def _within(got: Any, want: Any) -> bool:
    """Whether all names of one stand in the other, in its order and to any depth."""
    if isinstance(got, list):
        return _within(got[0], want[0])
    names = [name for name in want or {} if name in (got or {})]
    return list(got or {}) == names and all(_within(got[name], want[name]) for name in names)


def _of_shape(shape: Shape) -> dict[str, Any]:
    """Names of fields to any depth, in their order; of arrays in a list."""
    found: dict[str, Any] = dict.fromkeys(shape.columns) | {name: [None] for name in shape.lists}
    found |= {name: _of_shape(below) for name, below in shape.structs.items()}
    found |= {name: [_of_shape(below)] for name, below in shape.arrays.items()}
    return {name: found[name] for name in shape.order}


def _of_arrow(schema: Any) -> dict[str, Any]:
    return {one.name: _of_kind(one.type) for one in schema}


def _of_kind(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [_of_kind(kind.value_type)]
    return _of_arrow(kind) if pa.types.is_struct(kind) else None


def test_elasticsearch_maps_what_documents_hold() -> None:
    for seed in SEEDS:
        world = world_of(seed)
        mapping = world.view.elasticsearch_mapping()
        for document in by_loops(world.view, world.tables).values():
            _mapped(mapping, document, world.view.tree)


def _mapped(mapping: dict[str, Any], value: Any, node: Node) -> None:
    if isinstance(value, dict) and EITHER in value:
        for one in value[EITHER]:
            _mapped(mapping, one, node)
    elif isinstance(value, dict):
        assert set(mapping) == set(value)
        for name, below in value.items():
            _mapped(mapping[name].get("properties", {}), below, node)
    elif isinstance(value, list):
        for one in value:
            _mapped(mapping, one, node)
    else:
        assert value is None or not mapping or re.match("[a-z]", next(iter(mapping)))
