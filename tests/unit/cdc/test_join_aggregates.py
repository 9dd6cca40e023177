"""Aggregates: exact, whatever the order; and the stored form of rows."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc import types
from cdc.catalogue import Column, Table
from cdc.errors import StateError, UnavailableValue
from cdc.join import aggregates
from cdc.join.comparable import not_added, not_counted, not_sorted
from cdc.join.incoming import RowMaker, filled, newest
from cdc.join.layout import Layout
from cdc.join.rows import Replaced, Stamp, body_of, read, read_row, write
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from cdc.types.plain import plain_values
from spark.join.child_expressions import _columns
from tests.support.codec_cases import fixture
from truth.joins import documents

TABLE = Table(
    "public",
    "t",
    (
        Column("id", "integer", "int4"),
        Column("p", "integer", "int4"),
        Column("n", "bigint", "int8"),
        Column("price", "numeric(10,2)", "numeric", precision=10, scale=2),
        Column("any", "numeric", "numeric"),
        Column("f", "double precision", "float8"),
        Column("at", "timestamp with time zone", "timestamptz"),
        Column("word", "text", "text"),
    ),
    ("id",),
)


def aggregate(function: Any, value: str | None = None, *, distinct: bool = False) -> Aggregate:
    return Aggregate("a", TABLE, (("id", "p"),), function, distinct, value)


def kept(one: Aggregate, values: list[Any]) -> Any:
    """The value after all of ``values`` came, and some others came and went."""
    delta = aggregates.Delta((one,))
    for value in values:
        delta.move(None, [value])
    for value in values[:3]:
        delta.move(None, [value])
        delta.move([value], None)
    limbs = {name[3:]: count for name, count in delta.totals.items() if name.startswith("s0:") and count}
    return aggregates.summed(one, limbs, delta.totals["n0"])


decimals = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**7), max_value=10**7).map(str)


@given(st.lists(decimals, min_size=1, max_size=30))
def test_sums_of_decimals_are_exact_in_any_order(values: list[str]) -> None:
    total = sum((Fraction(value) for value in values), Fraction(0))
    random.shuffle(values)
    assert Fraction(kept(aggregate("sum", "price"), values)) == total


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=30))
def test_sums_of_floats_do_not_depend_on_order(values: list[float]) -> None:
    found = kept(aggregate("sum", "f"), values)
    assert found == float(sum((Fraction(value) for value in values), Fraction(0)))
    assert kept(aggregate("sum", "f"), values[::-1]) == found


@pytest.mark.parametrize(
    ("one", "values", "wanted"),
    [
        (aggregate("sum", "n"), [2**62, 2**62, -1], 2**63 - 1),
        (aggregate("sum", "price"), ["0.10", "0.20"], "0.30"),
        (aggregate("sum", "any"), ["1.5", "1e-20"], "1.50000000000000000001"),
        (aggregate("avg", "n"), [1, 2], 1.5),
        (aggregate("avg", "price"), ["0.10", "0.20", "0.20"], "0.166667"),
        (aggregate("avg", "price"), ["-0.10", "-0.20", "-0.20"], "-0.166667"),
        (aggregate("avg", "any"), ["1", "2"], "1.5"),
        (aggregate("sum", "f"), [0.1] * 10, 1.0),
        (aggregate("sum", "f"), [1.0, "NaN"], "NaN"),
        (aggregate("sum", "f"), ["Infinity", 1.0], "Infinity"),
        (aggregate("sum", "f"), ["Infinity", "-Infinity"], "NaN"),
        (aggregate("sum", "n"), [], None),
    ],
)
def test_results(one: Aggregate, values: list[Any], wanted: Any) -> None:
    assert kept(one, values) == wanted


@pytest.mark.parametrize("count", [5_000, 100_000])
def test_a_numeric_may_have_more_digits_than_python_reads(count: int) -> None:
    long = "7" * count
    assert kept(aggregate("sum", "any"), [long, "-1", "0.50"]) == f"{long[:-1]}6.5"
    assert kept(aggregate("sum", "any"), [f"-{long}", "1"]) == f"-{long[:-1]}6"
    assert kept(aggregate("avg", "any"), [long, long]) == long
    assert kept(aggregate("avg", "any"), [f"-{'3' * count}", "-1", "0"]) == f"-{'1' * count}.{'3' * 16}"
    delta = aggregates.Delta((aggregate("count", "any", distinct=True),))
    for value in (long, f"{long}.00"):
        delta.move(None, [value])
    assert dict(delta.distinct) == {(0, long): 2}


def test_an_infinity_that_leaves_takes_its_effect_with_it() -> None:
    one = aggregate("sum", "f")
    delta = aggregates.Delta((one,))
    delta.move(None, ["Infinity"])
    delta.move(None, [2.5])
    delta.move(["Infinity"], None)
    limbs = {name[3:]: count for name, count in delta.totals.items() if name.startswith("s0:")}
    assert aggregates.summed(one, limbs, delta.totals["n0"]) == 2.5


def test_equal_numbers_are_one_distinct_value() -> None:
    delta = aggregates.Delta((aggregate("count", "any", distinct=True),))
    for value in ("1", "1.0", "1.00", "2"):
        delta.move(None, [value])
    assert dict(delta.distinct) == {(0, "1"): 3, (0, "2"): 1}


@pytest.mark.parametrize(
    ("function", "column", "candidates", "wanted"),
    [
        ("max", "price", ["9.50", "10.00"], "10.00"),
        ("min", "any", ["NaN", "3"], "3"),
        ("max", "any", ["NaN", "Infinity"], "NaN"),
        ("max", "at", ["2013-01-01T10:00:00.5Z", "2013-01-01T10:00:00Z", "-infinity"], "2013-01-01T10:00:00.5Z"),
        ("min", "word", ["é", "z", "a"], "a"),
        ("max", "word", ["é", "z", "a"], "é"),
    ],
)
def test_extremes_are_by_value_not_by_text(function: Any, column: str, candidates: list[Any], wanted: Any) -> None:
    assert aggregates.extreme(aggregate(function, column), candidates) == wanted


def test_zeros_of_both_signs_go_out_as_they_came_in() -> None:
    delta = aggregates.Delta((aggregate("min", "f"),))
    for before, after in ((None, [0.0]), ([0.0], [-0.0]), ([-0.0], [9.0])):
        delta.move(before, after)
    assert {text: count for (_, text), count in delta.ordered.items() if count} == {"9.0": 1}
    for values in ([0.0, -0.0], [-0.0, 0.0]):
        assert str(aggregates.extreme(aggregate("min", "f"), values)) == "-0.0"
        assert str(aggregates.extreme(aggregate("max", "f"), values)) == "0.0"


# -- stored rows ------------------------------------------------------------------------------------------------------


@given(
    st.builds(Stamp, st.integers(0, 2**63 - 1), st.integers(0, 2**40 - 1), st.integers(0, 2**16 - 1)),
    st.lists(st.lists(st.text(max_size=3), max_size=2)),
    st.integers(0, 9),
    st.none() | st.lists(st.none() | st.integers(-9, 9) | st.text(max_size=9), max_size=4),
    st.none() | st.builds(Stamp, st.integers(0, 2**63 - 1), st.integers(0, 2**40 - 1), st.integers(0, 2**16 - 1)),
)
def test_a_row_comes_back_as_it_was_written(
    stamp: Stamp, replaced: list[Replaced], era: int, row: list[Any] | None, refused: Stamp | None
) -> None:
    value = write(stamp, replaced, body_of(row), era, refused)
    found = read(value)
    assert (found.stamp, found.replaced, found.row, found.era) == (stamp, replaced, row, era)
    assert found.refused == refused
    assert value == found.head + found.body
    assert read_row(value) == row


def test_a_row_whose_former_joins_have_no_room_is_not_written() -> None:
    """Seven digits of a length pushed all that follows by one: nothing could read the row again."""
    with pytest.raises(StateError, match="no room for 16,777,216 bytes"):
        write(Stamp(1, 1, 0), [["x" * ((1 << 24) - 6)]], b"[1]")
    value = write(Stamp(1, 1, 0), [["x" * ((1 << 24) - 7)]], b"[1]")
    assert (read(value).row, read_row(value)) == ([1], [1])


@given(*[st.builds(Stamp, st.integers(0, 2**63 - 1), st.integers(0, 2**40 - 1), st.integers(0, 0))] * 2)
def test_packed_stamps_are_ordered_as_stamps(one: Stamp, other: Stamp) -> None:
    assert (one < other) == (one.pack() < other.pack())


def test_what_is_no_row_is_said_so() -> None:
    with pytest.raises(StateError, match="is no row"):
        read(b"hello")
    with pytest.raises(StateError, match="beyond what a row can say"):
        Stamp(1, 1 << 40, 0).pack()


# -- layout -----------------------------------------------------------------------------------------------------------


def test_only_what_a_view_uses_is_stored() -> None:
    parent = Table("public", "p", (Column("id", "integer", "int4"), Column("big", "text", "text")), ("id",))
    root = Node("v", "root", parent, columns=(("id", "id"),), aggregates=(aggregate("sum", "n"),))
    view = JoinedView("v", parent, ("id",), root.columns, root=root)
    assert view.layout.tables["public.p"].columns == ("id",)
    assert view.layout.tables["public.t"].columns == ("id", "p")
    used = JoinedView("v", parent, ("id",), root.columns, {"long": "length(big) > 3"}, root=root)
    assert used.layout.tables["public.p"].columns == ("id", "big")


def test_a_key_in_another_order_is_another_document_id() -> None:
    table = Table("public", "k", (Column("a", "text", "text"), Column("b", "integer", "int4")), ("a", "b"))
    root = Node("v", "root", table, columns=(("a", "a"),))
    view = JoinedView("v", table, ("b", "a"), root.columns, root=root)
    assert view.document_of("x\\|y|7") == "7|x\\|y"


# -- values with a condition -------------------------------------------------------------------------------------------

ODD: list[tuple[Any, str, Any, str]] = [
    (function, column, raw, text)
    for column, functions, values in (
        ("at", ("count", "min", "max"), (("infinity", "infinity"), ("-infinity", "-infinity"))),
        ("price", ("count", "sum", "avg", "min", "max"), (("NAN", "NaN"),)),
        ("any", ("sum", "max"), (("POSITIVE_INFINITY", "Infinity"), ("NAN", "NaN"))),
        ("f", ("sum", "min"), (("NaN", "NaN"), ("-Infinity", "-Infinity"))),
    )
    for function in functions
    for raw, text in values
]


def contribution(one: Aggregate, raw: Any, computed: Any) -> Any:
    """What a row of the table adds, by what Spark SQL says of it."""
    after = {"id": 1, "p": 1} | dict.fromkeys(("n", "price", "any", "f", "at", "word")) | {str(one.value): raw}
    layout = Layout.of(Node("v", "root", TABLE, aggregates=(one,))).tables["public.t"]
    made = RowMaker(layout).make(Change("public.t", Op.CREATE, {"id": 1}, after, 5, "t", 0, 9, 0), [computed])
    assert made.row is not None
    return made.row[-1]


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize(("function", "column", "raw", "text"), ODD)
def test_infinity_and_nan_count_with_a_condition_as_without(
    function: Any, column: str, raw: Any, text: str, distinct: bool
) -> None:
    plain = aggregate(function, column, distinct=distinct and function == "count")
    one = replace(plain, where="live")
    added = contribution(one, raw, True)
    assert added == contribution(plain, raw, None) == (1 if function == "count" and not distinct else text)
    assert contribution(one, raw, False) is contribution(one, raw, None) is contribution(one, None, True) is None
    parents = Table("public", "p", (Column("id", "integer", "int4"),), ("id",))
    root = Node("v", "root", parents, columns=(("id", "id"),), aggregates=(one,))
    texts = dict.fromkeys(TABLE.by_name) | {"id": "1", "p": "1", column: text}
    rows = {"public.p": [{"id": "1"}], "public.t": [texts]}
    ((_, document),) = documents(root, ("id",), rows, lambda _, said: [[True] for _ in said])
    found = kept(one, [added]) if function in ("sum", "avg") else 1 if function == "count" else added
    assert document["a"] == found, "the second opinion says the same"


def test_spark_is_not_asked_for_the_value_of_a_column() -> None:
    at = (("id", "p"),)
    aggregates = (
        Aggregate("a", TABLE, at, "max", value="at", where="n > 1"),
        Aggregate("b", TABLE, at, "sum", value="f * 2"),
    )
    layout = Layout.of(Node("v", "root", TABLE, aggregates=aggregates)).tables["public.t"]
    assert _columns(layout) == ["n", "f"]


def test_a_finite_value_adds_the_same_as_when_spark_had_it() -> None:
    """Rows that an earlier version has stored hold what came back from Spark: it is the same text, of each type."""
    compared = set()
    captured, _ = fixture("types")
    changes = captured.changes()
    for column in captured.table.columns:
        if all(why(column) is not None for why in (not_added, not_sorted, not_counted)):
            continue
        typed, canonical = types.arrow_converter(column), types.json_converter(column)
        for change in changes:
            raw, held = (change.after or {}).get(column.name), None
            with suppress(*types.REFUSALS):  # such a record is a dead letter
                held = raw if raw is None or typed is None else typed(raw)
            if held is None:
                continue
            (back,) = plain_values(pa.array([held], types.arrow_type(column)))
            now = raw if canonical is None else canonical(raw)
            assert orjson.dumps(types.canonical_result(back)) == orjson.dumps(now), f"{column.name} {raw!r}"
            compared.add(types.type_key(column))
    assert compared >= {"numeric", "money", "float4", "float8", "date", "timestamp", "timestamptz", "bool", "int8"}


# -- large values that did not change ---------------------------------------------------------------------------------


def _change(amount: int, unavailable: tuple[str, ...]) -> Change:
    after = {"id": 1, "p": 1, "n": amount, "word": "__debezium_unavailable_value"}
    return Change("public.t", Op.UPDATE, {"id": 1}, after, 5, "t", 0, 9, 0, unavailable)


def test_a_computed_aggregate_does_not_care_for_a_large_value_that_it_does_not_name() -> None:
    rich = Aggregate("rich", TABLE, (("id", "p"),), "count", where="n > 10")
    layout = Layout.of(Node("v", "root", TABLE, aggregates=(rich,))).tables["public.t"]
    made = RowMaker(layout).make(_change(20, ("word",)), [1])
    assert made.row is not None and made.row[-1] == 1
    assert made.holes == ()


def test_one_that_names_it_is_refused() -> None:
    long = Aggregate("long", TABLE, (("id", "p"),), "count", where="length(word) > n")
    layout = Layout.of(Node("v", "root", TABLE, aggregates=(long,))).tables["public.t"]
    with pytest.raises(UnavailableValue, match=r"public\.t\.word did not change"):
        RowMaker(layout).make(_change(20, ("word",)), [1])


def test_a_large_value_comes_from_the_row_that_is_known() -> None:
    root = Node("v", "root", TABLE, columns=(("word", "word"), ("n", "n")))
    layout = Layout.of(root).tables["public.t"]
    made = RowMaker(layout).make(_change(20, ("word",)))
    assert filled(made, [1, 10, "a long text"]).row == [1, 20, "a long text"]
    with pytest.raises(UnavailableValue):
        filled(made, None)
    before = made._replace(row=[1, 10, "older"], holes=(), stamp=Stamp(4, 8, 0))
    assert newest(before, made).row == [1, 20, "older"]
