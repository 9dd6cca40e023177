"""A text that Spark made of any bytes, and that is not UTF-8: its own row's failure, and nobody else's."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from cdc.catalogue import Column, Table
from cdc.join.tree import Aggregate
from cdc.types.plain import NO_TEXT, plain_values
from cdc.view import View
from spark.reading.computed import FAILED, FIELD
from spark.reading.entries import OWN, Entry
from spark.reading.guard import told_by_cast
from spark.reading.spec import FlowSpec
from spark.write import from_arrow
from tests.support.computed import read_with
from truth.spark_sql import FAILED as FAILED_THERE
from truth.spark_sql import _answers

TABLE = Table("public", "t", (Column("id", "integer", "int4", nullable=False),), ("id",))
# The cast of an address of four bytes, between two others.
TEXTS = pa.array([b"a", b"\xc0\xa8\x01\x05", None], pa.binary()).view(pa.string())
STRUCTS = pa.StructArray.from_arrays([TEXTS, pa.array([1.1, 2.5, 0.1], pa.float32())], ["s", "r"])
LISTS = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), TEXTS)
DAY_BESIDE = pa.StructArray.from_arrays([TEXTS, pa.array([2_932_897] * 3, pa.int32()).cast(pa.date32())], ["s", "d"])

TEXT, INT, BYTES = T.StringType(), T.IntegerType(), T.BinaryType()


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def spec_of(view: View) -> FlowSpec:
    return FlowSpec("s", {"v": view}, {"t": ("v",)}, {"t": TABLE}, {}, {})


def test_its_value_alone_is_told_apart() -> None:
    assert plain_values(TEXTS) == ["a", NO_TEXT, None]
    assert plain_values(TEXTS)[1] is NO_TEXT
    assert plain_values(STRUCTS) == [{"s": "a", "r": 1.1}, NO_TEXT, {"s": None, "r": 0.1}]
    assert plain_values(LISTS) == [["a"], NO_TEXT, [None]]
    assert plain_values(DAY_BESIDE)[1:] == [NO_TEXT, {"s": None, "d": "+10000-01-01"}]


@pytest.mark.parametrize("values", [TEXTS, STRUCTS, LISTS, DAY_BESIDE])
def test_what_verify_asks_of_spark_has_failed_for_that_row(values: pa.Array) -> None:
    held = pa.StructArray.from_arrays([values], ["v"])
    first, bad, last = _answers(pa.chunked_array([held]))
    assert bad is FAILED_THERE
    assert [first, last] == _answers(pa.chunked_array([held.take(pa.array([0, 2]))]))


def test_its_row_has_no_document_and_a_letter_says_why() -> None:
    view = View("v", TABLE, ("id",), (("id", "id"),), {"f": "CAST(b AS string)", "g": "1"})
    rows = [Entry("v", str(at), 8, b'{"id":1}', "t", 0, at, 0) for at in range(3)]
    own = {name: pa.array([getattr(row, name) for row in rows]) for name in OWN}
    columns = {FIELD + "f": TEXTS, FIELD + "g": pa.array([1] * 3), FAILED: pa.nulls(3, pa.string())}
    decoded = from_arrow(spec_of(view), pa.RecordBatch.from_pydict({**own, **columns}))
    documents = [entry.document and orjson.loads(entry.document) for entry in decoded.entries]
    assert documents == [{"id": 1, "f": "a", "g": 1}, None, {"id": 1, "f": None, "g": 1}]
    (letter,) = decoded.letters
    assert letter.key == "1" and "could not compute field f: `CAST(b AS string)`" in letter.reason


def test_a_row_adds_nothing_to_an_aggregate_of_it() -> None:
    item = Aggregate("last", TABLE, (("id", "id"),), "max", False, "CAST(b AS string)")
    taken = read_with(item, TEXTS)
    assert [change.row[-1] for change in taken.changes if change.row] == ["a", None, None]
    (letter,) = taken.letters
    assert "could not compute aggregate last" in letter.reason


@pytest.mark.parametrize(
    ("kind", "judged"),
    [
        (TEXT, True),
        (INT, False),
        (BYTES, False),
        (T.ArrayType(TEXT), True),
        (T.MapType(INT, T.ArrayType(TEXT)), True),
        (T.MapType(TEXT, INT), True),
        (struct(a=INT, b=struct(c=TEXT)), True),
        (struct(a=INT, b=T.ArrayType(INT)), False),
        (struct(a=TEXT, b=BYTES), False),  # its text is no sooner UTF-8 than those bytes
    ],
)
def test_spark_itself_judges_what_a_cast_to_a_string_tells(kind: T.DataType, judged: bool) -> None:
    assert told_by_cast(kind) is judged
