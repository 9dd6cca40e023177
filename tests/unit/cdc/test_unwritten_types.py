"""What Spark SQL may give and no document can hold: an interval of months is refused before anything runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from cdc.catalogue import Column, Table
from cdc.errors import ConfigError
from cdc.fold import FoldView
from cdc.join.columns import arrow_columns
from cdc.join.tree import Aggregate, Function, Node
from cdc.join.view import JoinedView
from cdc.timed import Kind, MatchView
from cdc.types import canonical_result
from cdc.view import View
from spark.events import fold, matches
from spark.join import child_expressions
from spark.reading import expressions

TABLE = Table("public", "t", (Column("id", "integer", "int4", nullable=False),), ("id",))
MONTHS: list[T.DataType] = [T.CalendarIntervalType(), T.YearMonthIntervalType()]


def test_an_interval_of_months_is_no_list_of_numbers() -> None:
    with pytest.raises(TypeError, match="MonthDayNano"):
        canonical_result(pa.array([pa.MonthDayNano([1, 2, 3])])[0].as_py())
    assert canonical_result((1, [2])) == [1, [2]]


@pytest.mark.parametrize("months", MONTHS)
def test_an_interval_of_months_has_no_place_wherever_it_stands(months: T.DataType) -> None:
    shapes = [months, T.ArrayType(months), T.MapType(T.StringType(), months), T.MapType(months, T.StringType())]
    said = f"half is of type {months.simpleString()}, which no document can hold"
    assert [expressions.unwritten(shape, "half") for shape in shapes] == [said] * 4
    inner = T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.ArrayType(months))])
    assert expressions.unwritten(inner, "half").startswith("half.b is of type interval")
    for fine in (T.DayTimeIntervalType(), T.ArrayType(T.DateType()), T.NullType(), T.StructType([])):
        assert not expressions.unwritten(fine, "half")


def test_a_variant_and_a_map_by_structures_have_no_place() -> None:
    """A variant came as base64 of two strings of bytes; of the other no value could be read, and its flow ended."""
    said = "half is of type variant, which no document can hold (from_json with a schema makes an object)"
    shapes = [T.VariantType(), T.ArrayType(T.VariantType()), T.MapType(T.StringType(), T.VariantType())]
    assert [expressions.unwritten(shape, "half") for shape in shapes] == [said] * 3
    inner = T.StructType([T.StructField("a", T.IntegerType())])
    for key in (inner, T.ArrayType(T.LongType()), T.MapType(T.StringType(), T.StringType())):
        why = expressions.unwritten(T.ArrayType(T.MapType(key, T.LongType())), "half")
        assert why == f"half is a map by {key.simpleString()}, of which no name in a document can be made"
    assert not expressions.unwritten(T.MapType(T.DateType(), inner), "half")


def given(monkeypatch: pytest.MonkeyPatch, kind: T.DataType) -> Any:
    """A session in which every expression is of a type."""
    frame = SimpleNamespace(schema=[SimpleNamespace(dataType=kind)])
    frame.select = lambda *_: frame
    for module in (expressions, fold, child_expressions):
        monkeypatch.setattr(module, "selected", lambda *_: frame)
    monkeypatch.setattr(expressions, "_schema", lambda *_: None)
    return SimpleNamespace(createDataFrame=lambda *_: frame, range=lambda *_: frame)


@pytest.mark.parametrize("months", MONTHS)
def test_a_field_of_months_is_refused_by_name_and_says_what_to_do(monkeypatch: Any, months: T.DataType) -> None:
    view = View("v", TABLE, ("id",), (("id", "id"),), {"half": "CAST(lasting AS INTERVAL)"})
    with pytest.raises(ConfigError, match=r"view v: half is of type interval.*no document can hold") as refused:
        expressions.analyse(given(monkeypatch, months), view)
    assert "cast(… AS string)" in str(refused.value)
    days = given(monkeypatch, T.DayTimeIntervalType())
    assert expressions.analyse(days, view).types == {"half": "interval day to second"}


def test_a_state_of_months_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    view = FoldView("v", TABLE, ("id",), (("id", "id"),), initial="…", step="state")
    state = T.StructType([T.StructField("half", MONTHS[0])])
    with pytest.raises(ConfigError, match=r"initial\.half is of type interval, which no document can hold"):
        fold.analyse_fold(given(monkeypatch, state), view)


def test_a_match_s_field_of_months_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    view = MatchView("v", TABLE, ("id",), (), time="at", first=Kind("true", "id", {"half": "…"}))
    kinds = {"half": MONTHS[0]}
    monkeypatch.setattr(matches, "empty_frame", lambda *_: None)
    monkeypatch.setattr(matches, "type_of", lambda *at: kinds.get(at[2][-1], T.BooleanType()))
    with pytest.raises(ConfigError, match=r"first\.fields\.half is of type interval, which no document can hold"):
        matches.analyse_matches(SimpleNamespace(), view)  # type: ignore[arg-type]


def aggregated(monkeypatch: pytest.MonkeyPatch, function: Function, kind: T.DataType) -> JoinedView:
    """A view with an aggregate over an expression of a type, as Spark has told it."""
    item = Aggregate("longest", TABLE, (("id", "id"),), function, function == "count", "ended - started")
    root = Table("public", "p", (Column("id", "integer", "int4"),), ("id",))
    node = Node("v", "root", root, (), (("id", "id"),), aggregates=(item,))
    view = JoinedView("v", root, ("id",), node.columns, {"shown": "longest"}, root=node)
    monkeypatch.setattr(child_expressions, "_value", lambda *_: SimpleNamespace(alias=lambda _: None))
    return child_expressions.analysed(given(monkeypatch, kind), view)


def test_an_aggregate_of_months_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="aggregate longest is of type interval, which no document can hold"):
        aggregated(monkeypatch, "max", MONTHS[0])


UNORDERED: list[T.DataType] = [
    T.DayTimeIntervalType(),
    T.DayTimeIntervalType(1, 2),
    T.NullType(),
    T.TimeType(6),
    T.StringType("UTF8_LCASE"),
]


@pytest.mark.parametrize("kind", UNORDERED)
def test_what_is_kept_as_its_text_has_no_least_and_no_greatest(monkeypatch: Any, kind: T.DataType) -> None:
    """By their texts PT9M is behind PT10M; and beside `fields` or in a table such a flow ended at each start."""
    for function in ("min", "max"):
        with pytest.raises(ConfigError) as refused:
            aggregated(monkeypatch, function, kind)
        said = f"view v: aggregate longest: `ended - started` gives {kind.simpleString()}, which has no order here"
        assert said in str(refused.value) and "`unix_micros(CAST(b AS timestamp)) - " in str(refused.value)
    assert aggregated(monkeypatch, "count", kind).arrow_schema().field("longest").type == pa.int64()


ORDERED: list[tuple[T.DataType, pa.DataType]] = [
    (T.ByteType(), pa.int8()),
    (T.ShortType(), pa.int16()),
    (T.IntegerType(), pa.int32()),
    (T.LongType(), pa.int64()),
    (T.FloatType(), pa.float32()),
    (T.DoubleType(), pa.float64()),
    (T.DecimalType(12, 3), pa.decimal128(12, 3)),
    (T.BooleanType(), pa.bool_()),
    (T.StringType(), pa.string()),
    (T.DateType(), pa.date32()),
    (T.TimestampType(), pa.timestamp("us", "UTC")),
    (T.TimestampNTZType(), pa.timestamp("us")),
]


@pytest.mark.parametrize(("kind", "held"), ORDERED)
def test_what_is_ordered_has_a_place_in_fields_and_in_a_table(monkeypatch: Any, kind: Any, held: pa.DataType) -> None:
    view = aggregated(monkeypatch, "max", kind)
    assert view.arrow_schema().field("longest").type == held
    assert arrow_columns(view).field("longest").type == held


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ('"Vor Name"', "`Vor Name`"),
        ('upper(a) = "vor name"', "`vor name`"),
        ("'Vor Name'", None),
        ("`Vor Name`", None),
        ('"Vor Name is it"', None),
        ('\'it is "Vor Name"\' -- "Vor Name"', None),
    ],
)
def test_a_text_that_is_called_as_a_column_is_meant_for_it(said: str, fix: str | None) -> None:
    def refuse(what: str, way: str) -> ConfigError:
        return ConfigError(what, fix=way)

    try:
        expressions.refuse_double_quotes(said, ["id", "Vor Name"], "f", refuse)
    except ConfigError as refused:
        assert fix is not None and fix in str(refused.fix)
    else:
        assert fix is None
