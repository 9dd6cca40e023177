"""What Spark computed on its way into documents: moments that Python can't hold, and reals."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest

from cdc.catalogue import Column, Table
from cdc.fold import FoldView
from cdc.join.tree import Aggregate
from cdc.timed import Kind, MatchView
from cdc.types import canonical_result
from cdc.types.plain import plain_values
from cdc.view import View
from sinks.iceberg.rows import VERSION_COLUMN, held_rows
from spark.events import fold, timed
from spark.reading.computed import FAILED, FIELD, Results
from spark.reading.entries import OWN, Entry
from spark.reading.spec import FlowSpec
from spark.write import from_arrow
from tests.support.computed import read_with
from truth.answers import Far, plain
from truth.arithmetic import aggregate, cell_of_number, cell_of_result
from truth.columns import numbered
from truth.spark_sql import FAILED as FAILED_THERE
from truth.spark_sql import _answers

TABLE = Table("public", "t", (Column("id", "integer", "int4", nullable=False), Column("r", "real", "float4")), ("id",))
DAY, MOMENT, LOCAL = pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")
# The year 10000, 44 BC, before what Postgres can store, and a day like others; as days, and five hours later.
DAYS = [2_932_897, -735_160, -3_000_000, 0, None]
MICROS = [None if day is None else day * 86_400_000_000 + 18_000_000_000 for day in DAYS]
DAY_TEXTS = ["+10000-01-01", "-0043-03-15", "-6244-04-12", "1970-01-01", None]
TEXTS = [day and f"{day}T05:00:00" for day in DAY_TEXTS]
UTC_TEXTS = [day and f"{day}T05:00:00Z" for day in DAY_TEXTS]


def far(kind: pa.DataType, values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int32() if kind == DAY else pa.int64()).cast(kind)


def nested() -> pa.Array:
    """Every shape that Spark has, with what Python can't hold and reals in it, nulls and nothing at all."""
    one = pa.struct([("at", pa.int64()), ("day", pa.int32()), ("r", pa.float32())])
    typed = pa.struct([("at", MOMENT), ("day", DAY), ("r", pa.float32())])
    keyed = pa.map_(pa.int32(), pa.list_(pa.float32()))
    rows: list[Any] = [
        {
            "many": [{"at": MICROS[0], "day": DAYS[0], "r": 1.1}, None],
            "by": [(DAYS[1], [1.1, None]), (0, None)],
            "n": 7,
        },
        None,
        {"many": [], "by": [], "n": None},
        {"many": [{"at": None, "day": None, "r": None}], "by": None, "n": 8},
    ]
    given = pa.struct([("many", pa.list_(one)), ("by", keyed), ("n", pa.int8())])
    wanted = pa.struct([("many", pa.list_(typed)), ("by", pa.map_(DAY, pa.list_(pa.float32()))), ("n", pa.int8())])
    return pa.array(rows, given).cast(wanted)


NESTED: list[Any] = [
    {
        "many": [{"at": UTC_TEXTS[0], "day": DAY_TEXTS[0], "r": 1.1}, None],
        "by": {"-0043-03-15": [1.1, None], "1970-01-01": None},
        "n": 7,
    },
    None,
    {"many": [], "by": {}, "n": None},
    {"many": [{"at": None, "day": None, "r": None}], "by": None, "n": 8},
]


def shown(values: list[Any]) -> Any:
    return orjson.loads(orjson.dumps([canonical_result(value) for value in values]))


# The engine's way to a value, and the second opinion's.
WAYS = pytest.mark.parametrize("way", [plain_values, plain])


@WAYS
@pytest.mark.parametrize(
    ("kind", "values", "texts"), [(DAY, DAYS, DAY_TEXTS), (MOMENT, MICROS, UTC_TEXTS), (LOCAL, MICROS, TEXTS)]
)
def test_a_moment_that_python_can_not_hold_is_its_text(way: Any, kind: Any, values: Any, texts: Any) -> None:
    assert shown(way(far(kind, values))) == texts
    assert shown(way(far(kind, values)[1:3])) == texts[1:3]
    assert way(far(kind, values)[3:]) == far(kind, values)[3:].to_pylist()  # others are Python's own


@WAYS
def test_what_is_nested_is_so_too_and_an_empty_map_is_a_map(way: Any) -> None:
    assert shown(way(nested())) == NESTED
    for begin, end in ((1, 4), (2, 3), (0, 1), (3, 3)):
        assert shown(way(nested()[begin:end])) == NESTED[begin:end]


@WAYS
def test_a_real_has_the_digits_of_postgres(way: Any) -> None:
    reals = [1.1, 0.1, 16777216.0, 1e38, -0.0, 1.1754944e-38, 1.5474251e26, None]
    array = pa.array([*reals, float("nan"), float("inf"), float("-inf")], pa.float32())
    words = ["NaN", "Infinity", "-Infinity"]
    assert shown(way(array)) == [*reals, *words]
    assert str(shown(way(array))[4]) == "-0.0"
    assert shown(way(pa.array([[1.1, float("nan")]], pa.list_(pa.float32())))) == [[1.1, "NaN"]]
    assert shown(way(pa.array([1.100000023841858]))) == [1.100000023841858]  # a double keeps its own


COLUMNS: list[pa.Array] = [
    pa.array([b"a", None, b"", b"\xff\0"], pa.binary()),
    pa.array(["a", None, "", "ü\U0001f600"], pa.string()),
    pa.array([1, None, -(2**31)], pa.int32()),
    pa.array([1, None, 2**63 - 1, -(2**63)], pa.int64()),
    pa.array([1, None, 2**64 - 1], pa.uint64()),
    pa.array([True, None, False], pa.bool_()),
    pa.array([0.1, None, float("inf"), -0.0], pa.float64()),
    pa.array([Decimal("1.50"), None, Decimal("-99999999999999999999999999999999.99")], pa.decimal128(38, 2)),
    pa.array([None, None], pa.null()),
    pa.array(["a", None, "a"], pa.string()).dictionary_encode(),
    pa.array([0, None, -86_400_000_000, 1_700_000_000_000_001], pa.int64()).cast(MOMENT),
    pa.array([0, None, -86_400_000_000, 1_700_000_000_000_001], pa.int64()).cast(LOCAL),
    pa.array([0, None, -719_162], pa.int32()).cast(DAY),
    pa.array([], pa.string()),
]


@pytest.mark.parametrize("array", COLUMNS, ids=lambda array: str(array.type))
def test_a_column_without_maps_is_the_same_as_one_with_them(array: pa.Array) -> None:
    """It takes PyArrow's faster way; the values, their types and a part of them are what the other way gives."""
    for begin in range(2):
        part = array[begin:]
        other = part.to_pylist(maps_as_pydicts="lossy")
        assert plain_values(part) == plain_values(pa.chunked_array([part])) == other
        assert [type(one) for one in plain_values(part)] == [type(one) for one in other]


def test_no_column_without_maps_asks_each_value_for_itself() -> None:
    asked: list[Any] = []

    class Counting:
        def __init__(self, kind: pa.DataType) -> None:
            self.type = kind

        def to_pylist(self, *, maps_as_pydicts: str | None = None) -> list[Any]:
            asked.append(maps_as_pydicts)
            return []

    keyed = pa.map_(pa.string(), pa.int32())
    for kind in (pa.binary(), pa.string(), pa.int64(), keyed, pa.list_(keyed), pa.struct([("by", keyed)])):
        plain_values(cast(pa.Array, Counting(kind)))
    assert asked == [None, None, None, "lossy", "lossy", "lossy"]


def test_both_ways_give_each_power_of_two_the_same_digits() -> None:
    powers = pa.array([struct.unpack("f", struct.pack("f", 2.0**at))[0] for at in range(-149, 128)], pa.float32())
    below = pa.StructArray.from_arrays([powers], ["r"])
    assert plain_values(powers) == plain(powers) == [one["r"] for one in plain(below)]


def test_what_verify_asks_of_spark_is_read_so_too() -> None:
    held = pa.StructArray.from_arrays([far(MOMENT, MICROS[:2])], ["v"], mask=pa.array([False, True]))
    real = pa.StructArray.from_arrays([pa.array([1.1, None], pa.float32())], ["v"])
    assert _answers(pa.chunked_array([held, held])) == [UTC_TEXTS[0], FAILED_THERE] * 2
    assert _answers(pa.chunked_array([real])) == [1.1, None]


# -- where they are read -----------------------------------------------------------------------------------------------


def entries(**more: pa.Array) -> pa.RecordBatch:
    """As many entries of documents as there are values."""
    (count,) = {len(array) for array in more.values()}
    rows = [Entry("v", str(at), 8, b'{"id":1}', "t", 0, at, 0) for at in range(count)]
    own = {name: pa.array([getattr(row, name) for row in rows]) for name in OWN}
    return pa.RecordBatch.from_pydict({**own, **more})


def spec_of(view: View) -> FlowSpec:
    return FlowSpec("s", {"v": view}, {"t": ("v",)}, {"t": TABLE}, {}, {})


def documents_of(decoded: Any) -> list[dict[str, Any]]:
    assert not decoded.letters
    return [orjson.loads(entry.document) for entry in decoded.entries]


def test_a_field_far_from_now_does_not_end_its_flow() -> None:
    view = View("v", TABLE, ("id",), (("id", "id"),), {"until": "coalesce(ends, now_col)", "r": "r"})
    reals = pa.array([1.1] * 5, pa.float32())
    batch = entries(**{FIELD + "until": far(MOMENT, MICROS), FIELD + "r": reals, FAILED: pa.nulls(5, pa.string())})
    assert documents_of(from_arrow(spec_of(view), batch)) == [{"id": 1, "until": one, "r": 1.1} for one in UTC_TEXTS]
    assert isinstance(Results(view, batch.slice(3)).of(0), dict)


def test_a_fold_s_state_far_from_now_does_not_end_its_flow() -> None:
    view = FoldView("v", TABLE, ("id",), (("id", "id"),), state={"last": "date"})
    state = pa.StructArray.from_arrays([far(DAY, DAYS)], ["last"])
    told = fold.states(spec_of(view), entries(failed=pa.nulls(5, pa.string()), state=state))
    assert documents_of(told.decoded) == [{"id": 1, "last": one} for one in DAY_TEXTS]


def test_a_match_far_from_now_does_not_end_its_flow() -> None:
    kinds = {"key": "string", "ends": "timestamp_ntz", "seen": "map<string,int>"}
    view = MatchView("v", TABLE, ("id",), (), time="at", first=Kind("true", "id"), state=kinds)
    keys, seen = pa.array(["a"] * 5), pa.array([[]] * 5, pa.map_(pa.string(), pa.int32()))
    state = pa.StructArray.from_arrays([keys, far(LOCAL, MICROS), seen], list(kinds))
    batch = entries(failed=pa.nulls(5, pa.string()), gone=pa.array([False] * 5), state=state)
    told = timed.documents(spec_of(view), batch)
    assert documents_of(told.decoded) == [{"key": "a", "ends": one, "seen": {}} for one in TEXTS]


def test_what_an_aggregate_computes_far_from_now_does_not_end_its_flow() -> None:
    item = Aggregate("last", TABLE, (("id", "id"),), "max", False, "ends", where="active")
    taken = read_with(item, far(MOMENT, MICROS), r=1)
    assert not taken.letters
    assert [change.row[-1] for change in taken.changes if change.row] == UTC_TEXTS


# -- what they are compared with ---------------------------------------------------------------------------------------


def test_a_table_s_row_is_compared_with_what_is_expected_of_it() -> None:
    columns = {"id": pa.array([1, 2, 3, 4]), "f": nested(), VERSION_COLUMN: pa.array([8] * 4)}
    columns["r"] = pa.array([1.1, float("nan"), None, 0.1], pa.float32())
    held: list[Any] = [row.document for row in held_rows(pa.RecordBatch.from_pydict(columns), ["id"])]
    wanted = [{"f": one, "r": real} for one, real in zip(plain(columns["f"]), plain(columns["r"]), strict=True)]
    said = [{name: canonical_result(numbered(value)) for name, value in row.items()} for row in wanted]
    assert [{"f": row["f"], "r": row["r"]} for (row,) in held] == said
    assert said[0]["f"]["many"][0] == {"at": MICROS[0], "day": DAYS[0], "r": 1.1}


def test_a_table_s_key_may_be_far_from_now() -> None:
    columns = {"at": far(MOMENT, MICROS[:2]), "r": pa.array([1.1, 2.5], pa.float32()), VERSION_COLUMN: pa.array([8, 8])}
    held = held_rows(pa.RecordBatch.from_pydict(columns), ["at", "r"])
    assert [row.key for row in held] == [f"{UTC_TEXTS[0]}|1.1", f"{UTC_TEXTS[1]}|2.5"]


def test_the_second_opinion_orders_near_and_far_moments() -> None:
    near = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    cells = [cell_of_result(value) for value in [*plain(far(MOMENT, MICROS[:2])), near]]
    assert aggregate("max", cells) == UTC_TEXTS[0] and aggregate("min", cells) == UTC_TEXTS[1]
    assert aggregate("max", cells[1:]) == "2024-01-01T00:00:00Z"
    assert cell_of_number(Far("+10000-01-01")).kind == "other"
    assert numbered(Far("+10000-01-01")) == DAYS[0] and numbered(dt.date(1970, 1, 2)) == 1
