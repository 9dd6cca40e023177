"""Typed rows for verification: a warehouse's columns against Postgres's text, and Spark SQL over that text.

A typed column can't hold all that a document can (docs/types.md): no NaN in decimals, no infinite dates. Dates and
times are compared as numbers, because Python's own end with the year 9999.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from cdc import truth
from cdc.keys import document_id
from cdc.types import canonical_result, spark_type
from cdc.types.times import days_of
from cdc.view import View
from console.compare import parse, single

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOMENT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?Z?)?")
_JSON_KINDS = frozenset(("json", "jsonb", "hstore", "point"))


def moment_number(text: str) -> int | None:
    """Days (a date) or microseconds (a timestamp) since 1970 of canonical text; None for ±infinity."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction = found.groups()
    days = days_of(int(year), int(month), int(day))
    if hour is None:
        return days
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _element_kind(kind: str) -> str:
    while kind.startswith("array<"):
        kind = kind[6:-1]
    return kind


def _expected(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and kind.startswith("array<"):
        return [_expected(item, kind[6:-1]) for item in value]
    if kind.startswith("decimal"):
        return None if value in ("NaN", "Infinity", "-Infinity") else value
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return moment_number(value)
    return value


def comparable_expected(view: View, document: Mapping[str, Any]) -> dict[str, Any]:
    """An expected document as the warehouse's columns can hold it."""
    by_name = view.table.by_name
    return {out: _expected(document[out], spark_type(by_name[source])) for source, out in view.columns}


def comparable_rows(view: View, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Any]]:
    """(key, comparable row) of a warehouse table's batches, without our own version column."""
    by_out = {out: view.table.by_name[source] for source, out in view.columns}
    keys = [dict(view.columns)[name] for name in view.key]
    for batch in batches:
        columns: dict[str, list[Any]] = {}
        for name in (n for n in batch.schema.names if n in by_out or n in view.fields):
            column = by_out.get(name)
            json_text = column is not None and column.base_type in _JSON_KINDS and not column.array
            columns[name] = [_held(value, json_text=json_text) for value in _numbers(batch.column(name)).to_pylist()]
        texts = {name: _key_texts(batch.column(name), columns[name]) for name in keys}
        for index, row in enumerate(zip(*columns.values(), strict=True)):
            yield document_id([texts[name][index] for name in keys]), dict(zip(columns, row, strict=True))


def _key_texts(array: pa.Array, values: list[Any]) -> list[Any]:
    if pa.types.is_temporal(array.type):
        return [canonical_result(value) for value in array.to_pylist()]
    return values


def _numbers(array: pa.Array) -> pa.Array:
    """Dates as days and timestamps as microseconds, in arrays too."""
    kind = array.type
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return pc.cast(array.cast(pa.timestamp("us", kind.tz)), pa.int64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _numbers(array.values)
        if inner.type != array.values.type:
            return type(array).from_arrays(array.offsets, inner, mask=array.is_null())
    return array


def _held(value: Any, *, json_text: bool) -> Any:
    if json_text and value is not None:
        return parse(value)
    return canonical_result(value)


def with_singles(view: View, document: Any) -> Any:
    """A document or comparable row, with every ``real`` as the number it is; untouched bytes if there is none."""
    reals = [out for source, out in view.columns if view.table.by_name[source].base_type in ("float4", "real")]
    if not reals:
        return document
    values = parse(document) if isinstance(document, bytes) else document
    return {**values, **{name: single(values[name]) for name in reals if name in values}}


def evaluate(
    spark: SparkSession, view: View, rows: Sequence[Mapping[str, str | None]]
) -> list[Mapping[str, Any] | None]:
    """A view's fields for each row, in order; None for a row that its condition leaves out.

    Args:
        spark: a session.
        view: a view with Spark SQL.
        rows: column -> Postgres's text.
    """
    from pyspark.sql import functions as F  # noqa: N812

    said = " ".join([*view.fields.values(), view.where or ""])
    needed = [column for column in view.table.columns if column.name.lower() in said.lower()]
    texts = {c.name: [_cast_text(truth.expected(c, row[c.name])) for row in rows] for c in needed}
    table = pa.table(
        {"__i": pa.array(range(len(rows)), pa.int32()), **{n: pa.array(v, pa.string()) for n, v in texts.items()}}
    )
    frame = spark.createDataFrame(table)
    typed = [F.col("__i")]
    for column in needed:
        typed.append(_cast(F.col(f"`{column.name}`"), spark_type(column)).alias(column.name))
    outputs = [F.expr(expression).alias(f"__f_{name}") for name, expression in view.fields.items()]
    keep = F.expr(view.where) if view.where else F.lit(True)
    answers = frame.select(*typed).select("__i", keep.alias("__where"), *outputs).toArrow().to_pylist()
    out: list[Mapping[str, Any] | None] = [None] * len(rows)
    for row in answers:
        if row["__where"] is True:
            out[row["__i"]] = {name: row[f"__f_{name}"] for name in view.fields}
    return out


def _cast_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value in ("infinity", "-infinity") else value
    return orjson.dumps(value).decode()


def _cast(column: Any, kind: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if kind.startswith("array<"):
        return F.from_json(column, kind)
    if kind == "binary":
        return F.unbase64(column)
    if kind.startswith("decimal"):
        column = F.when(~column.isin("NaN", "Infinity", "-Infinity"), column)
    return column.cast(kind)
