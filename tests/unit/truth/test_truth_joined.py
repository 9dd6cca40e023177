"""The truth of joined views on tables small enough to join by eye."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from cdc.catalogue import Table
from cdc.join.tree import Aggregate, Function, Node, Order
from cdc.join.view import JoinedView
from tests.support.trees import AIRLINES, AIRPORTS, FLIGHTS, node, table, texts
from truth.columns import with_singles
from truth.digest import digest
from truth.joins import TextRow, documents, expressions, used_columns


def built(root: Node, rows: Mapping[str, Iterable[TextRow]], evaluate: Any = None) -> dict[str, Any]:
    """id -> document as JSON reads it."""
    named = {f"public.{name}": found for name, found in rows.items()}
    found = documents(root, root.table.primary_key, named, evaluate)
    return {identity: orjson.loads(orjson.dumps(document)) for identity, document in found}


def test_references_one_table_twice_and_null_joins_nothing() -> None:
    root = node(
        FLIGHTS,
        columns=(("id", "flight"),),
        refs=(
            node(AIRLINES, "airline", "ref", [("carrier", "carrier")], columns=(("name", "called"),)),
            node(AIRPORTS, "start", "ref", [("origin", "faa")]),
            node(AIRPORTS, "end", "ref", [("dest", "faa")], columns=(("city", "city"),)),
        ),
    )
    rows = {
        "flights": texts("id carrier origin dest miles", "1 UA EWR JFK 5", "2 - JFK XXX 5"),
        "airlines": texts("carrier name", "UA United"),
        "airports": texts("faa city", "EWR Newark", "JFK York"),
    }
    assert built(root, rows) == {
        "1": {
            "flight": 1,
            "airline": {"called": "United"},
            "start": {"faa": "EWR", "city": "Newark"},
            "end": {"city": "York"},
        },
        "2": {"flight": 2, "airline": None, "start": {"faa": "JFK", "city": "York"}, "end": None},
    }


def test_composite_keys_match_as_a_whole() -> None:
    orders = table("orders", "shop number", shop="text", number="int4")
    lines = table("lines", "id", id="int4", number="int8", shop="text")
    on = [("shop", "shop"), ("number", "number")]
    root = node(orders, children=(node(lines, "lines", "child", on, columns=(("id", "id"),)),))
    rows = {
        "orders": texts("shop number", "a 1", "b 1", "a|b 2"),
        "lines": texts("id number shop", "1 1 a", "2 1 b", "3 2 a|b", "4 1 -", "5 - a", "6 1 a"),
    }
    found = built(root, rows)
    assert {identity: [line["id"] for line in document["lines"]] for identity, document in found.items()} == {
        "a|1": [1, 6],
        "b|1": [2],
        "a\\|b|2": [3],
    }
    up = node(
        lines, columns=(("id", "id"),), refs=(node(orders, "order", "ref", [("shop", "shop"), ("number", "number")]),)
    )
    assert built(up, rows)["5"] == {"id": 5, "order": None}
    assert built(up, rows)["3"] == {"id": 3, "order": {"shop": "a|b", "number": 2}}


def test_self_reference_up_and_down() -> None:
    staff = table("staff", "id", id="int4", name="text", boss="int4")
    boss = node(staff, "boss", "ref", [("boss", "id")], columns=(("name", "name"),))
    boss = replace(boss, refs=(node(staff, "above", "ref", [("boss", "id")], columns=(("name", "name"),)),))
    team = node(staff, "team", "child", [("id", "boss")], columns=(("name", "name"),))
    root = node(staff, columns=(("name", "name"),), refs=(boss,), children=(team,))
    rows = {"staff": texts("id name boss", "1 ann -", "2 bob 1", "3 cy 2", "4 self 4")}
    found = built(root, rows)
    assert found["3"] == {"name": "cy", "boss": {"name": "bob", "above": {"name": "ann"}}, "team": []}
    assert found["1"] == {"name": "ann", "boss": None, "team": [{"name": "bob"}]}
    assert found["4"]["team"] == [{"name": "self"}]


def test_many_to_many_through_a_junction_table() -> None:
    posts, tags = table("posts", "id", id="int4"), table("tags", "id", id="int4", word="text")
    links = table("links", "post tag", post="int4", tag="int4")
    tag = node(tags, "tag", "ref", [("tag", "id")], columns=(("word", "word"),))
    link = node(links, "tags", "child", [("id", "post")], columns=(("tag", "id"),), refs=(tag,))
    rows = {
        "posts": texts("id", "1", "2"),
        "tags": texts("id word", "7 red", "8 blue"),
        "links": texts("post tag", "1 8", "1 7", "1 9"),
    }
    assert built(node(posts, children=(link,)), rows) == {
        "1": {
            "id": 1,
            "tags": [{"id": 7, "tag": {"word": "red"}}, {"id": 8, "tag": {"word": "blue"}}, {"id": 9, "tag": None}],
        },
        "2": {"id": 2, "tags": []},
    }


def test_grandchildren_keep_their_own_limits_and_aggregates() -> None:
    a, b = table("a", "id", id="int4"), table("b", "id", id="int4", a="int4")
    c = table("c", "id", id="int4", b="int4", n="int4")
    leaf = node(c, "c", "child", [("id", "b")], columns=(("n", "n"),), order_by=(Order("n", True, False),), limit=1)
    count = Aggregate("leaves", c, (("id", "b"),), "count")
    root = node(
        a,
        children=(
            node(b, "b", "child", [("id", "a")], columns=(("id", "id"),), children=(leaf,), aggregates=(count,)),
        ),
    )
    rows = {"a": texts("id", "1"), "b": texts("id a", "5 1", "4 1"), "c": texts("id b n", "1 5 3", "2 5 9", "3 6 1")}
    assert built(root, rows)["1"]["b"] == [
        {"id": 4, "c": [], "leaves": 0},
        {"id": 5, "c": [{"n": 9}], "leaves": 2},
    ]


PARENTS = table("p", "id", id="int4")


def ordered(kind: str, values: str, *order_by: Order, limit: int | None = None) -> list[int]:
    """The ids of children whose values are those words, in the order of the view; ids count from 1 backwards."""
    of = table("c", "id", id="int4", p="int4", v=kind)
    child = node(of, "c", "child", [("id", "p")], columns=(("id", "id"),), order_by=order_by, limit=limit)
    words = values.split(" ")
    lines = [{"id": str(at), "p": "1", "v": None if word == "-" else word} for at, word in enumerate(words, 1)]
    rows = {"p": texts("id", "1"), "c": lines[::-1]}
    return [item["id"] for item in built(node(PARENTS, children=(child,)), rows)["1"]["c"]]


def test_order_by() -> None:
    up, down = Order("v"), Order("v", descending=True, nulls_first=False)
    assert ordered("int4", "3 - 10 3") == [1, 2, 3, 4]
    assert ordered("int4", "3 - 10 3", up) == [2, 1, 4, 3]
    assert ordered("int4", "3 - 10 3", down) == [3, 1, 4, 2]
    assert ordered("int4", "3 - 10 3", Order("v", nulls_first=False), limit=3) == [1, 4, 3]
    assert ordered("int4", "3 - 10 3", Order("v", descending=True, nulls_first=True), limit=2) == [2, 3]
    assert ordered("text", "b B é z 𝄞 \ufffd", up) == [2, 1, 4, 3, 6, 5]  # UTF-8, not UTF-16
    assert ordered("float8", "NaN Infinity -0 1e308 -Infinity", up) == [5, 3, 4, 2, 1]
    assert ordered("numeric", "NaN 1.00 1.0 Infinity 0.99", up) == [5, 2, 3, 4, 1]
    assert ordered("bool", "t f t", up) == [2, 1, 3]
    assert ordered("date", "2013-01-01 infinity 10000-01-01 -infinity 0002-01-01", up) == [4, 5, 1, 3, 2]
    assert ordered("int4", "1 2 1", up, Order("id", descending=True, nulls_first=False)) == [3, 1, 2]


def test_moments_are_ordered_by_time() -> None:
    of = table("c", "id", id="int4", p="int4", v="timestamptz")
    child = node(of, "c", "child", [("id", "p")], columns=(("id", "id"),), order_by=(Order("v"),))
    clocks = ["10:00:00.5+00", "10:00:00+00", "10:00:00.45+00", "09:59:59.999999+00", "10:00:00+00 BC"]
    lines = [{"id": str(at), "p": "1", "v": f"2013-01-01 {clock}"} for at, clock in enumerate(clocks, 1)]
    rows = {"p": texts("id", "1"), "c": lines}
    found = built(node(PARENTS, children=(child,)), rows)["1"]["c"]
    assert [item["id"] for item in found] == [5, 4, 2, 3, 1]


def summed(kind: str, function: Function, values: str, *, distinct: bool = False) -> Any:
    """An aggregate over children with those words as values."""
    of = table("c", "id", id="int4", p="int4", v=kind)
    item = Aggregate("it", of, (("id", "p"),), function, distinct, "v")
    lines = [{"id": str(at), "p": "1", "v": None if word == "-" else word} for at, word in enumerate(values.split())]
    return built(node(PARENTS, aggregates=(item,)), {"p": texts("id", "1"), "c": lines})["1"]["it"]


@pytest.mark.parametrize(
    ("kind", "function", "values", "wanted"),
    [
        ("int4", "count", "", 0),
        ("int4", "count", "- 1 1 -", 2),
        ("int4", "sum", "", None),
        ("int4", "sum", "- -", None),
        ("int4", "sum", "- 1 2", 3),
        ("int8", "sum", "9223372036854775807 9223372036854775807", 2**64 - 2),
        ("int4", "avg", "1 2 2", 5 / 3),
        ("int4", "avg", "2 2", 2.0),
        ("int4", "min", "3 - -5", -5),
        ("int4", "max", "3 - -5", 3),
        ("float8", "sum", "1e100 1 -1e100", 1.0),
        ("float8", "sum", "0.1 0.1 0.1", 0.30000000000000004),
        ("float8", "sum", "1 NaN", "NaN"),
        ("float8", "sum", "Infinity 1", "Infinity"),
        ("float8", "sum", "Infinity -Infinity", "NaN"),
        ("float8", "sum", "1.7e308 1.7e308", "Infinity"),
        ("float8", "avg", "1.7e308 1.7e308", 1.7e308),
        ("float8", "min", "NaN 1 -Infinity", "-Infinity"),
        ("float8", "max", "1 NaN Infinity", "NaN"),
        ("float8", "min", "NaN", "NaN"),
        ("numeric(10,2)", "sum", "1.50 2.50", "4.00"),
        ("numeric(10,2)", "sum", "0.10 -0.10", "0.00"),
        ("numeric(10,2)", "avg", "1.00 1.00 0.00", "0.666667"),
        ("numeric(10,2)", "avg", "-1.00 -1.00 0.00", "-0.666667"),
        ("numeric(10,1)", "avg", "0.1 0.0 0.0 0.0 0.0 0.0 0.0 0.0", "0.01250"),
        ("numeric(10,2)", "sum", "1.00 NaN", "NaN"),
        ("numeric(10,2)", "max", "10.00 9.00", "10.00"),
        ("numeric(5,-2)", "sum", "1200 300", "1500"),
        ("numeric(5,-2)", "avg", "1200 300", "750.0000"),
        ("numeric", "sum", "1.50 2.5", "4"),
        ("numeric", "sum", "1.005 100", "101.005"),
        ("numeric", "sum", "1e20 1", "100000000000000000001"),
        ("numeric", "avg", "1 1 0", "0.6666666666666667"),
        ("numeric", "avg", "1 2", "1.5"),
        ("numeric", "avg", "-0.00000000000000005", "-0.0000000000000001"),
        ("numeric", "min", "10.0 9.99", "9.99"),
        ("numeric", "sum", "Infinity 1", "Infinity"),
        ("money", "sum", "1.10 2.20", "3.30"),
        ("text", "min", "b a é", "a"),
        ("text", "max", "b z é", "é"),
        ("timestamptz", "max", "-", None),
        ("date", "max", "2013-01-01 infinity", "infinity"),
        ("date", "min", "2013-01-01 10000-01-01", "2013-01-01"),
        ("bool", "max", "t f", True),
    ],
)
def test_aggregates(kind: str, function: Function, values: str, wanted: Any) -> None:
    found = summed(kind, function, values)
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_sum_beyond_64_bits_keeps_its_digits() -> None:
    of = table("c", "id", id="int4", p="int4", v="int8")
    item = Aggregate("it", of, (("id", "p"),), "sum", value="v")
    lines = texts("id p v", *(f"{at} 1 9223372036854775807" for at in range(3)))
    rows = {"public.p": texts("id", "1"), "public.c": lines}
    [(_, document)] = documents(node(PARENTS, aggregates=(item,)), ("id",), rows)
    assert orjson.dumps(document) == b'{"id":1,"it":%d}' % (3 * (2**63 - 1))


def test_count_distinct_takes_equal_numbers_for_one() -> None:
    assert summed("int4", "count", "1 1 2 -", distinct=True) == 2
    assert summed("numeric", "count", "1.0 1.00 1 2", distinct=True) == 2
    assert summed("float8", "count", "NaN NaN 0 -0", distinct=True) == 2
    assert summed("text", "count", "a A a", distinct=True) == 2
    assert summed("text", "count", "", distinct=True) == 0


def test_numeric_keys_join_by_value() -> None:
    parents = table("p", "id", id="numeric")
    of = table("c", "id", id="int4", p="numeric")
    item = Aggregate("it", of, (("id", "p"),), "count")
    rows = {"p": texts("id", "1.0", "2"), "c": texts("id p", "1 1.00", "2 1", "3 2.5")}
    found = built(node(parents, aggregates=(item,)), rows)
    assert {identity: document["it"] for identity, document in found.items()} == {"1.0": 2, "2": 0}


def test_expressions_are_asked_for_once_a_table() -> None:
    of = table("c", "id", id="int4", p="int4", v="int4")
    items = (
        Aggregate("all", of, (("id", "p"),), "count"),
        Aggregate("big", of, (("id", "p"),), "count", where="v > 1"),
        Aggregate("halves", of, (("id", "p"),), "sum", value="v / 2.0", where="v > 1"),
        Aggregate("v", of, (("id", "p"),), "sum", value="v", where="v > 1"),
        Aggregate("loose", of, (("id", "p"),), "avg", value="digits(v)"),
        Aggregate("least", of, (("id", "p"),), "min", value="v / 2.0"),
    )
    root = node(PARENTS, aggregates=items)
    asked = []

    def evaluate(table: Table, wanted: Sequence[str]) -> list[list[Any]]:
        asked.append((table.qualified, list(wanted)))
        by_name = {
            "v > 1": [True, False, None, True],
            "v / 2.0": [Decimal("1.50"), Decimal("0.50"), None, Decimal("2.00")],
            "digits(v)": ["3", "1.0", None, "4.25"],
        }
        return [list(row) for row in zip(*(by_name[one] for one in wanted), strict=True)]

    rows = {"p": texts("id", "1"), "c": texts("id p v", "1 1 3", "2 1 1", "3 1 -", "4 1 4")}
    assert built(root, rows, evaluate)["1"] == {
        "id": 1,
        "all": 4,
        "big": 2,
        "halves": "3.50",
        "v": 7,
        "loose": "2.75",
        "least": "0.50",
    }
    assert asked == [("public.c", ["v > 1", "v / 2.0", "digits(v)"])]
    assert expressions(root) == {"public.c": ["v > 1", "v / 2.0", "digits(v)"]}
    with pytest.raises(ValueError, match="nothing to evaluate"):
        built(root, rows)


def test_a_sum_over_text_is_refused() -> None:
    with pytest.raises(ValueError, match="needs numbers"):
        summed("text", "sum", "a")


def test_only_what_is_used_is_asked_for() -> None:
    item = Aggregate("miles", FLIGHTS, (("carrier", "carrier"),), "sum", value="miles")
    child = node(FLIGHTS, "last", "child", [("carrier", "carrier")], columns=(("id", "id"),), order_by=(Order("dest"),))
    root = node(AIRLINES, columns=(("name", "name"),), children=(child,), aggregates=(item,))
    assert used_columns(root, ("carrier",)) == {
        "public.airlines": ("carrier", "name"),
        "public.flights": ("id", "carrier", "dest", "miles"),
    }


def test_the_roots_rows_pass_by_one_at_a_time() -> None:
    read = []

    def flights() -> Iterable[TextRow]:
        for at in range(3):
            read.append(at)
            yield {"id": str(at), "carrier": "UA", "origin": None, "dest": None, "miles": None}

    root = node(FLIGHTS, refs=(node(AIRLINES, "airline", "ref", [("carrier", "carrier")]),))
    found = documents(root, ("id",), {"public.flights": flights(), "public.airlines": texts("carrier name", "UA U")})
    next(iter(found))
    assert read == [0]


def test_digests_do_not_depend_on_the_order_of_keys() -> None:
    child = {"id": 1, "n": "1.50"}
    assert digest({"a": [child], "b": None}) == digest(b'{"b":null,"a":[{"n":"1.50","id":1}]}')


def test_reals_are_compared_as_the_numbers_they_are_wherever_they_are_shown() -> None:
    weights = table("weights", "id", id="int4", flight="int4", grams="float4")
    on = [("id", "flight")]
    values = node(weights, "values", "child", on, columns=(("grams", "grams"),), value="grams")
    one = replace(values, name="single", one=True)
    rows = node(weights, "rows", "child", on, columns=(("grams", "g"),))
    bags = table("bags", "id", id="int4", flight="int4")
    hidden = node(bags, "bags", "child", on, columns=(("id", "id"),), hide=True)
    below = [replace(each, name=f"lifted_{each.name}") for each in (values, one, rows)]
    root = node(FLIGHTS, children=(values, one, rows, replace(hidden, children=tuple(below))))
    view = JoinedView("v", FLIGHTS, ("id",), root.columns, root=root)

    def document(number: float) -> bytes:
        own = {"values": [number], "single": number, "rows": [{"g": number}]}
        lifted = {"lifted_values": [number], "lifted_single": [number], "lifted_rows": [{"g": number}]}
        return orjson.dumps({"id": 1, **own, **lifted})

    assert digest(with_singles(view, document(1e-45))) == digest(with_singles(view, document(1.4e-45)))
    assert digest(with_singles(view, document(0.1))) != digest(with_singles(view, document(0.2)))
