"""Joined views as tables: columns, what a changed table means for them, and how what is held is compared."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pyarrow as pa
import pytest

from cdc.catalogue import Column, Table
from cdc.join import document
from cdc.join.columns import arrow_columns, document_columns, names_of
from cdc.join.document import Part
from cdc.join.tree import Aggregate
from cdc.join.view import JoinedView
from cdc.pipeline import IcebergSink, RedisSink
from cdc.shapes import Shape
from cdc.view import View
from operations.schema.decide import Verdict, decide
from sinks.iceberg.rows import VERSION_COLUMN, held_rows
from tests.support.trees import node, table
from truth.columns import comparable_expected, comparable_row, numbered
from truth.digest import digest
from truth.expected import form_of
from truth.values import canonical

LAKE = IcebergSink(type="iceberg", catalog_uri="c", warehouse="w", namespace="n")
CACHE = RedisSink(type="redis", url="redis://h")
CITIES = table("cities", "id", id="int4", name="text", since="date")
ORDERS = table(
    "orders", "id", id="int8", who="int4", cost="numeric(8,2)", at="timestamptz", more="jsonb", tags="text[]"
)
PEOPLE = table("people", "id", id="int4", city="int4", **{"odd `name`": "text"})


def view_of(cities: Table = CITIES, orders: Table = ORDERS, people: Table = PEOPLE) -> JoinedView:
    city = node(cities, "town", "ref", [("city", "id")], columns=tuple((c.name, c.name) for c in cities.columns[1:]))
    bought = node(orders, "orders", "child", [("id", "who")])
    days = node(orders, "days", "child", [("id", "who")], columns=(("at", "at"),), value="at")
    sums = (
        Aggregate("spent", orders, (("id", "who"),), "sum", value="cost"),
        Aggregate("last", orders, (("id", "who"),), "max", value="at"),
    )
    root = node(people, "people", refs=(city,), children=(bought, days), aggregates=sums)
    return JoinedView("people", people, ("id",), root.columns, root=root)


def test_objects_are_structs_and_children_arrays_of_them() -> None:
    assert document_columns(view_of()) == [
        ("id", "int"),
        ("city", "int"),
        ("odd `name`", "string"),
        ("town", "struct<`name`: string, `since`: date>"),
        (
            "orders",
            "array<struct<`id`: bigint, `who`: int, `cost`: decimal(8,2), `at`: timestamp, `more`: string, "
            "`tags`: array<string>>>",
        ),
        ("days", "array<timestamp>"),
        ("spent", "decimal(38,2)"),
        ("last", "timestamp"),
    ]
    assert document_columns(View.identity(PEOPLE)) == []
    assert dict(names_of(view_of().tree))["orders"] == ["id", "who", "cost", "at", "more", "tags"]


# -- what is held ------------------------------------------------------------------------------------------------------

DOCUMENT = {
    "id": 1,
    "city": 7,
    "odd `name`": None,
    "town": {"name": "x", "since": "infinity"},
    "orders": [
        {"id": 5, "who": 1, "cost": "NaN", "at": "2026-01-02T12:00:00Z", "more": {"a": [1]}, "tags": ["x", None]},
        {"id": 6, "who": 1, "cost": "1.50", "at": None, "more": None, "tags": None},
    ],
    "days": ["2026-01-02T12:00:00Z", "-infinity"],
    "spent": "NaN",
    "last": "2026-01-02T12:00:00Z",
}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
BEYOND = "+294276-12-31T23:59:59.999999Z"  # after what 64 bits of microseconds count to, and before Postgres's end
ROW: dict[str, Any] = {
    **DOCUMENT,
    "town": {"name": "x", "since": None},
    "orders": [
        {"id": 5, "who": 1, "cost": None, "at": NOON, "more": '{"a": [1]}', "tags": ["x", None]},
        {"id": 6, "who": 1, "cost": 1.5, "at": None, "more": None, "tags": None},
    ],
    "days": [NOON, None],
    "spent": None,
    "last": NOON,
}


def test_names_of_nested_columns_are_quoted_in_what_spark_reads_as_a_type() -> None:
    """A backtick in one was the end of the whole view."""
    odd = table("cities", "id", id="int4", **{"odd `name`": "text"})
    columns = (("odd `name`", "odd `name`"),)
    town = node(odd, "town", "ref", [("city", "id")], columns=columns)
    root = node(PEOPLE, "people", refs=(town,))
    view = JoinedView("people", PEOPLE, ("id",), root.columns, {"all": "to_json(town)"}, root=root)
    assert dict(view.spark_schema())["town"].endswith("`odd ``name```:string>")


def held(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a table gives it back."""
    from decimal import Decimal

    orders = [one | {"cost": None if one["cost"] is None else Decimal(str(one["cost"]))} for one in row["orders"]]
    fields = [*arrow_columns(view_of()), pa.field(VERSION_COLUMN, pa.int64())]
    batch = pa.RecordBatch.from_pylist([row | {"orders": orders, VERSION_COLUMN: 8}], schema=pa.schema(fields))
    (one,) = held_rows(batch, ["id"])
    return comparable_row(view_of(), one.document[0])  # type: ignore[arg-type]


def test_a_row_is_compared_with_what_its_columns_can_hold() -> None:
    wanted = comparable_expected(view_of(), orjson.dumps(DOCUMENT))
    assert held(ROW) == wanted
    assert wanted["last"] == wanted["days"][0] == wanted["orders"][0]["at"] == int(NOON.timestamp()) * 1_000_000
    late = [DOCUMENT["days"][0], BEYOND]  # type: ignore[index]
    assert held(ROW) == comparable_expected(view_of(), orjson.dumps(DOCUMENT | {"days": late}))
    nobody = {"town": None, "orders": [], "days": []}
    assert held(ROW | nobody) == comparable_expected(view_of(), orjson.dumps(DOCUMENT | nobody))


@pytest.mark.parametrize(
    "other",
    [
        {"town": {"name": "y", "since": None}},
        {"town": None},
        {"orders": ROW["orders"][:1]},
        {"orders": ROW["orders"][::-1]},
        {"days": [NOON]},
        {"last": None},
    ],
)
def test_another_row_differs(other: dict[str, Any]) -> None:
    assert held(ROW | other) != comparable_expected(view_of(), orjson.dumps(DOCUMENT))


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity"])
def test_what_an_aggregate_finds_and_its_type_can_t_hold_is_null(odd: str) -> None:
    """The engine's rows against the second opinion's, of every function and type that has such values."""
    sums = (
        Aggregate("sum", ORDERS, (("id", "who"),), "sum", value="cost"),
        Aggregate("avg", ORDERS, (("id", "who"),), "avg", value="cost"),
        Aggregate("most", ORDERS, (("id", "who"),), "max", value="cost"),
        Aggregate("least", ORDERS, (("id", "who"),), "min", value="at"),
        Aggregate("day", CITIES, (("id", "id"),), "max", value="since"),
    )
    root = node(PEOPLE, "people", columns=(("id", "id"),), aggregates=sums)
    view = JoinedView("people", PEOPLE, ("id",), root.columns, root=root)
    far = "-infinity" if odd == "-Infinity" else "infinity"
    part = Part("1", [1])
    part.aggregates = [odd, odd, odd, BEYOND if odd == "NaN" else far, far]
    shape = document.Shape(view.tree, view.layout)
    wanted = comparable_expected(view, shape.document(part))
    assert wanted == {"id": 1} | dict.fromkeys(("sum", "avg", "most", "least", "day"))
    assert shape.columns(part) == wanted
    assert shape.typed(part) == wanted
    pa.RecordBatch.from_pylist([shape.columns(part)], schema=pa.schema(list(arrow_columns(view))))


def test_words_about_several_rows_stay_words() -> None:
    said = "(`one: true`, and 2 rows of public.cities point here)"
    assert comparable_expected(view_of(), orjson.dumps(DOCUMENT | {"town": said}))["town"] == said


def test_days_that_spark_sql_gives_are_numbers_as_in_the_table() -> None:
    assert numbered([date(1970, 1, 3), {"at": NOON}, None]) == [2, {"at": int(NOON.timestamp()) * 1_000_000}, None]
    view = replace(View.identity(table("t", "id", id="int4")), fields={"day": "…"})
    assert form_of(view, b'{"id":1}', {"day": date(1970, 1, 3)}, "columns") == b'{"id":1,"day":2}'
    assert form_of(view, b'{"id":1}', {"day": date(1970, 1, 3)}, "document") == b'{"id":1,"day":"1970-01-03"}'


# -- tables that change ------------------------------------------------------------------------------------------------


def widened(of: Table, name: str) -> Table:
    columns = tuple(replace(c, type_name="int8", base_type="int8") if c.name == name else c for c in of.columns)
    return replace(of, columns=numbered_columns(columns))


def numbered_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(replace(column, ordinal=at) for at, column in enumerate(columns, 1))


def told(was: JoinedView, now: JoinedView, old: Table, new: Table, sink: Any) -> Verdict:
    tables = [replace(one, columns=numbered_columns(one.columns)) for one in (old, new)]
    return decide(Shape(tables[0]), Shape(tables[1]), was, now, sink).verdict


def test_a_nested_field_of_another_type_makes_a_new_generation_of_a_table() -> None:
    wide = widened(ORDERS, "who")
    assert told(view_of(), view_of(orders=wide), ORDERS, wide, LAKE) is Verdict.NEW_GENERATION
    assert told(view_of(), view_of(orders=wide), ORDERS, wide, CACHE) is Verdict.READ_AGAIN


def test_a_column_of_the_root_is_widened_where_it_is() -> None:
    wide = widened(PEOPLE, "city")
    assert told(view_of(), view_of(people=wide), PEOPLE, wide, LAKE) is Verdict.READ_AGAIN


# -- JSON --------------------------------------------------------------------------------------------------------------

NOTED = table("noted", "id", id="int4", of="int4", j="jsonb", js="jsonb[]", hs="hstore[]", p="point")
TEXTS: dict[str, Any] = {
    "j": '{"a": 1}',
    "js": ['{"a": [1.50]}', '"abc"', "null", None],
    "hs": ['{"a": null}'],
    "p": '{"x": 1.5, "y": "NaN"}',
}


def _noted(texts: dict[str, Any], identity: int) -> tuple[dict[str, Any], bytes]:
    """A row of the table, and of a document."""
    row = {"id": identity, "of": 1, **texts}
    made = {name: _fragments(value) if name in texts else value for name, value in row.items()}
    return row, orjson.dumps(made)


def _fragments(value: Any) -> Any:
    if isinstance(value, list):
        return [_fragments(item) for item in value]
    return None if value is None else orjson.Fragment(value)


def _deep(levels: int, end: int = 1) -> str:
    return f"{'[' * levels}{end}{']' * levels}"


SEVERAL_JSON = [
    pytest.param(TEXTS, id="arrays"),
    pytest.param(TEXTS | {"js": None, "hs": [], "j": None}, id="nulls"),
    *(
        pytest.param(TEXTS | {"j": _deep(levels), "js": [None, "1e400", _deep(levels)]}, id=f"{levels} levels")
        for levels in (199, 200, 201, 250, 251, 252, 253, 254, 255, 300, 1_100, 5_000)
    ),
    pytest.param(TEXTS | {"js": ["[{}]"] * 300, "j": "1e400"}, id="many that are not deep"),
]


@pytest.mark.parametrize("texts", SEVERAL_JSON)
def test_json_of_a_plain_view_is_read_alike_on_both_sides(texts: dict[str, Any]) -> None:
    """Arrays of it were compared as texts with values; what is deep was cut at two places."""
    view = View.identity(NOTED)
    row, document = _noted(texts, 5)
    wanted = form_of(view, document, {}, "columns")
    assert canonical(comparable_row(view, row)) == canonical(wanted)
    assert digest(comparable_row(view, row | {"id": 6})) != digest(wanted)
    assert canonical(comparable_row(view, row | {"js": ["1"]})) != canonical(wanted)


@pytest.mark.parametrize("texts", SEVERAL_JSON)
def test_json_below_others_is_read_alike_on_both_sides(texts: dict[str, Any]) -> None:
    on = [("id", "of")]
    shown = node(NOTED, "shown", "child", on)
    js, j = (node(NOTED, f"all {name}", "child", on, columns=((name, name),), value=name) for name in ("js", "j"))
    ref = node(NOTED, "above", "ref", [("of", "id")])
    root = node(NOTED, "noted", children=(replace(shown, children=(js, j)),), refs=(ref, replace(ref, name="none")))
    view = JoinedView("noted", NOTED, ("id",), root.columns, root=root)
    row, document = _noted(texts, 5)
    below = row | {"all js": [texts["js"], None], "all j": [texts["j"]]}
    parts = {name: b"%s" % orjson.dumps(_fragments(below[name])) for name in ("all js", "all j")}
    nested = b'%s,"all js":%s,"all j":%s}' % (document[:-1], parts["all js"], parts["all j"])
    whole = b'%s,"shown":[%s,%s],"above":%s,"none":null}' % (document[:-1], nested, nested, document)
    wanted = form_of(view, whole, {}, "columns")
    held = row | {"shown": [below, below], "above": row, "none": None}
    assert canonical(comparable_row(view, held)) == canonical(wanted)
    several = whole.replace(b'"none":null', b'"none":"(`one: true`, and 2 rows of public.noted point here)"')
    assert canonical(comparable_row(view, held)) != canonical(form_of(view, several, {}, "columns"))


def test_what_differs_deep_below_in_a_column_differs() -> None:
    view = View.identity(NOTED)
    for levels in (10, 253, 300):
        row, document = _noted(TEXTS | {"j": _deep(levels)}, 5)
        other = row | {"j": _deep(levels, 2)}
        assert digest(comparable_row(view, other)) != digest(form_of(view, document, {}, "columns"))


def test_what_is_no_json_in_a_table_differs_from_all_json() -> None:
    """It ended the whole of `verify`."""
    view = View.identity(NOTED)
    row, document = _noted(TEXTS | {"j": '"x"', "js": ['"x"']}, 5)
    wanted = digest(form_of(view, document, {}, "columns"))
    assert digest(comparable_row(view, row)) == wanted
    for odd in ({"j": "x"}, {"js": ["x"]}):
        assert digest(comparable_row(view, row | odd)) != wanted


def test_an_array_of_arrays_differs_from_whatever_a_table_has() -> None:
    """No table has one, and of moments or days it ended the whole of `verify`."""
    view = View.identity(table("days", "id", id="int4", days="date[]", at="timestamptz[]"))
    row = {"id": 1, "days": [["2026-01-01"]], "at": [["2026-01-02T12:00:00Z", None]]}
    wanted = form_of(view, orjson.dumps(row), {}, "columns")
    assert canonical(comparable_row(view, {"id": 1, "days": [None], "at": [None, None]})) != canonical(wanted)
