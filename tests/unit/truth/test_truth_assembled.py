"""Rows as Spark SQL sees them when joined views are verified."""

from __future__ import annotations

import json

import orjson
import pytest

from cdc.join.tree import Aggregate, Function
from cdc.join.view import JoinedView
from tests.support.trees import AIRLINES, AIRPORTS, FLIGHTS, node, table, texts
from truth.assembled import aggregate_type, document_of, marked, shape_of, spark_row, sparks
from truth.joins import documents
from truth.spark_sql import Shape, canonical_rows, table_shape


def test_one_pass_gives_the_document_and_sparks_row() -> None:
    airport = node(AIRPORTS, "origin", "ref", [("origin", "faa")], columns=(("city", "town"),))
    count = Aggregate("n", FLIGHTS, (("carrier", "carrier"),), "count")
    line = node(AIRLINES, "airline", "ref", [("carrier", "carrier")], columns=(("name", "name"),), aggregates=(count,))
    root = node(FLIGHTS, columns=(("id", "flight"),), refs=(airport, line))
    said = ["concat(airline.name, Origin.city) || MILES"]
    wide = marked(root, said)
    seen = sparks(wide, said)
    rows = {
        "public.flights": texts("id carrier origin dest miles", "1 UA EWR JFK 5"),
        "public.airlines": texts("carrier name", "UA United"),
        "public.airports": texts("faa city", "EWR Newark"),
    }
    [(identity, row)] = documents(wide, ("id",), rows)
    assert identity == "1"
    assert document_of(wide, row) == {"flight": 1, "origin": {"town": "Newark"}, "airline": {"name": "United", "n": 1}}
    assert spark_row(seen, row) == {"miles": 5, "origin": {"city": "Newark"}, "airline": {"name": "United"}}
    shape = shape_of(seen, {})
    assert shape.columns == {"miles": "int"}
    assert shape.structs["airline"].columns == {"name": "string"}


@pytest.mark.parametrize(
    ("kind", "function", "wanted"),
    [
        ("int4", "sum", "bigint"),
        ("int4", "avg", "double"),
        ("float4", "sum", "double"),
        ("float4", "max", "float"),
        ("numeric(10,2)", "sum", "decimal(38,2)"),
        ("numeric(10,2)", "avg", "decimal(38,6)"),
        ("numeric(10,2)", "min", "decimal(10,2)"),
        ("numeric", "sum", "string"),
        ("numeric", "avg", "string"),
        ("numeric(38,31)", "sum", "string"),
        ("timestamptz", "max", "timestamp"),
        ("text", "count", "bigint"),
    ],
)
def test_aggregates_have_a_type_for_spark(kind: str, function: Function, wanted: str) -> None:
    of = table("c", "id", id="int4", p="int4", v=kind)
    assert aggregate_type(Aggregate("it", of, (("id", "p"),), function, value="v"), {}) == wanted
    typed = {("public.c", "f(v)"): "decimal(12,3)"}
    assert aggregate_type(Aggregate("it", of, (("id", "p"),), "avg", value="f(v)"), typed) == "decimal(38,7)"


def test_only_moments_lose_infinity_and_their_last_years_on_their_way_to_spark() -> None:
    kinds = {"t": "string", "d": "date", "ds": "array<date>", "n": "decimal(5,2)", "m": "timestamp", "e": "timestamp"}
    rows = [{"t": "infinity", "d": "infinity", "ds": ["2013-01-01", "-infinity", None], "n": "NaN"}]
    rows[0] |= {"m": "+294247-01-10T04:00:54.775807Z", "e": "+294247-01-10T04:00:54.775808Z"}
    arrays = Shape(kinds, {"r": Shape(kinds)}).arrays_of([{**rows[0], "r": rows[0]}, {**rows[0], "r": None}])
    wanted = {"t": "infinity", "d": None, "ds": '["2013-01-01",null,null]', "n": None, "m": rows[0]["m"], "e": None}
    assert {name: arrays[name].to_pylist()[0] for name in kinds} == wanted
    assert arrays["r"].to_pylist() == [wanted, None]


@pytest.mark.parametrize(
    ("said", "airline", "root"),
    [
        ("airline.name", {"name"}, set()),
        ("`airline`.`name` || miles", {"name"}, {"miles"}),
        ("upper(Airline . name)", {"name"}, set()),
        ("airline is null or miles > 3", {"carrier", "name", "n"}, {"miles"}),
        ("to_json(airline)", {"carrier", "name", "n"}, set()),
        ("airline.n > 1", {"n"}, set()),
        ("to_json(struct(*))", {"carrier", "name", "n"}, {"id", "carrier", "origin", "dest", "miles"}),
        ("to_json(struct(airline.*))", {"carrier", "name", "n"}, set()),
        ("to_json(airline) || 'miles: ' || origin(1) -- dest", {"carrier", "name", "n"}, set()),
    ],
)
def test_spark_sees_what_an_expression_may_look_at(said: str, airline: set[str], root: set[str]) -> None:
    count = Aggregate("n", FLIGHTS, (("carrier", "carrier"),), "count")
    line = node(AIRLINES, "airline", "ref", [("carrier", "carrier")], columns=(("name", "name"),), aggregates=(count,))
    tree = node(FLIGHTS, columns=(("id", "flight"), ("miles", "miles")), refs=(line,))
    seen = sparks(marked(tree, [said]), [said])
    shape = shape_of(seen, {})
    assert set(shape.structs["airline"].columns) == airline
    assert set(shape.columns) == root
    assert sparks(marked(tree, ["miles"]), ["miles"]).refs == ()


def test_the_moment_of_a_reference_as_it_was_is_in_the_row_above() -> None:
    line = node(AIRLINES, "airline", "ref", [("carrier", "carrier")], columns=(("name", "name"),), as_of="miles")
    flight = node(FLIGHTS, "flight", "ref", [("flight", "id")], columns=(("origin", "origin"),), refs=(line,))
    bookings, said = table("bookings", "id", id="int4", flight="int4"), "to_json(flight)"
    tree = node(bookings, columns=(("id", "id"),), refs=(flight,))
    view = JoinedView("v", bookings, ("id",), tree.columns, {"all": said}, root=tree)
    struct = shape_of(sparks(marked(tree, [said]), [said]), {}).structs["flight"]
    assert list(struct.order) == [field.name for field in view.arrow_schema().field("flight").type]
    assert list(struct.order) == ["id", "carrier", "origin", "miles", "airline"]


def test_json_is_a_text_to_spark_in_an_array_too() -> None:
    """A jsonb `"abc"` in an array was abc, and its `null` was NULL, where the engine gives Spark JSON."""
    of = table("noted", "id", id="int4", j="jsonb", js="jsonb[]", hs="hstore[]", t="text[]")
    row = {"id": "1", "j": '"abc"', "js": '{"\\"abc\\"","null",NULL,"{\\"a\\": 1.10}"}'}
    row |= {"hs": '{"\\"a\\"=>NULL"}', "t": '{abc,"null",NULL}'}
    shape = table_shape(of, ["*"])
    found = shape.arrays_of(canonical_rows(of, shape, [row]))
    texts = {name: found[name].to_pylist()[0] for name in shape.columns}
    assert texts["j"] == '"abc"'
    assert json.loads(texts["js"]) == ['"abc"', "null", None, '{"a": 1.10}']
    assert json.loads(texts["hs"]) == ['{"a":null}']
    assert json.loads(texts["t"]) == ["abc", "null", None]
    # Each of any number of values, and of rows.
    below = Shape({"js": "array<string>"}, lists={"all": "array<string>"})
    many = [{"js": [orjson.Fragment("1")], "all": [[orjson.Fragment("1"), {}]]}]
    (made,) = Shape({}, arrays={"rows": below}).arrays_of([{"rows": many}])["rows"].to_pylist()
    assert made == [{"js": '["1"]', "all": ['["1","{}"]']}]
