"""``order_by`` and ``value`` texts are taken apart, or refused in words that hold nothing of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.catalogue import Column
from cdc.join import document
from cdc.join.document import rank_of
from cdc.join.order import AggregateText, TextError, parse_aggregate, parse_order
from cdc.join.tree import Order


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        ("id", [Order("id")]),
        ("time_hour desc, id", [Order("time_hour", True, False), Order("id", False, True)]),
        ("a ASC NULLS LAST,b DESC nulls first", [Order("a", False, False), Order("b", True, True)]),
        ("a nulls last", [Order("a", False, False)]),
        ("`a, b desc` desc -- newest first", [Order("a, b desc", True, False)]),
    ],
)
def test_an_order(text: str, orders: list[Order]) -> None:
    assert parse_order(text) == tuple(orders)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "part 1 does not begin with a column's name"),
        ("a,", "part 2 does not begin with a column's name"),
        ("a, -b", "part 2 does not begin with a column's name"),
        ("a descending", "part 1: expected asc, desc, nulls first or nulls last"),
        ("a desc nulls", "part 1: expected asc, desc, nulls first or nulls last"),
        ("a, upper(b)", "part 2: expected asc, desc, nulls first or nulls last"),
        ("a, b desc, a", "the column of part 3 is here a second time"),
        (", ".join(f"c{n}" for n in range(33)), "at most 32 columns"),
        ("a 'hunter2", "part 1: expected asc"),
    ],
)
def test_what_is_no_order(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_order(text)
    assert message in caught.value.what
    assert "hunter2" not in caught.value.what


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("count(*)", AggregateText("count", False, None)),
        ("COUNT ( 1 )", AggregateText("count", False, None)),
        ("count(plane)", AggregateText("count", False, "plane", True)),
        ("count(DISTINCT `a b`)", AggregateText("count", True, "a b", True)),
        ("sum( distance )", AggregateText("sum", False, "distance", True)),
        ("min(greatest(a, b))", AggregateText("min", False, "greatest(a, b)")),
        ("avg(a + (b) * 2) -- miles", AggregateText("avg", False, "a + (b) * 2")),
        ("max(concat(')', a))", AggregateText("max", False, "concat(')', a)")),
        ("count(distinct 1)", AggregateText("count", True, "1")),
    ],
)
def test_an_aggregate(text: str, parsed: AggregateText) -> None:
    assert parse_aggregate(text) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected one of count(...), sum(...)"),
        ("distance", "expected one of count(...)"),
        ("median(a)", "expected one of count(...)"),
        ("sum", "expected one of count(...)"),
        ("sum(a) / count(a)", "expected nothing after sum(...)"),
        ("sum((a)", "its parentheses closed"),
        ("sum('a)", "its parentheses closed"),
        ("sum()", "sum() of nothing"),
        ("sum(*)", "count(*), not sum(*)"),
        ("count(distinct *)", "not count(distinct *)"),
        ("sum(distinct a)", "distinct goes with count only, not with sum"),
        ("count(distinct a, b)", "count takes one value"),
    ],
)
def test_what_is_no_aggregate(text: str, message: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_aggregate(text)
    assert message in caught.value.what


# As Debezium writes them: dates are days, of which the outermost are Postgres's infinities.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**63), 2**63),
    "float8": st.floats(),
    "text": st.text(),
    "date": st.integers(-100_000, 100_000) | st.sampled_from([2**31 - 1, 1 - 2**31]),
    "bool": st.booleans(),
    "numeric": st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.just("NaN"),
}
CASES = st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), *[st.none() | VALUES[kind]] * 2))


@given(CASES, st.booleans(), st.booleans())
def test_a_place_never_stands_the_wrong_way_round(case: Any, descending: bool, nulls_first: bool) -> None:
    """Of a million children the first fifty are found by their places: one that is before them must not be missed."""
    kind, one, other = case
    column, order = Column("c", kind, kind), Order("c", descending, nulls_first)
    sort, place = document._sort_key(column, 0, order), rank_of(column, 0, order)
    first, second = sorted(([one], [other]), key=sort)
    assert place(first) <= place(second)
