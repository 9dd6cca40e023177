"""Spark SQL over canonical values, for verification: every value goes to Spark as text and Spark makes the type of it.

The pipeline hands Spark typed Arrow values that its codec made; two ways to one value, so that a mistake in one shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from cdc import truth
from cdc.catalogue import Table
from cdc.types import spark_type
from cdc.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Values of Postgres that Spark's types can't hold.
_MOMENTS, _INFINITE = ("date", "timestamp", "timestamp_ntz"), ("infinity", "-infinity")
_NO_DECIMALS = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True)
class Shape:
    """What a row is to Spark SQL.

    Attributes:
        columns: name -> Spark SQL type.
        structs: name -> a row or null.
        arrays: name -> any number of rows.
    """

    columns: Mapping[str, str]
    structs: Mapping[str, Shape] = field(default_factory=dict)
    arrays: Mapping[str, Shape] = field(default_factory=dict)

    def arrays_of(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        """Rows of canonical values as columns of text."""
        out = {n: pa.array([_text(row[n], kind) for row in rows], pa.string()) for n, kind in self.columns.items()}
        for name, shape in self.structs.items():
            out[name] = pa.array([row[name] and shape._texts(row[name]) for row in rows], shape._arrow())
        for name, shape in self.arrays.items():
            texts = [[shape._texts(item) for item in row[name]] for row in rows]
            out[name] = pa.array(texts, pa.list_(shape._arrow()))
        return out

    def _arrow(self) -> pa.DataType:
        fields = [pa.field(name, pa.string()) for name in self.columns]
        fields += [pa.field(name, shape._arrow()) for name, shape in self.structs.items()]
        return pa.struct(fields + [pa.field(name, pa.list_(shape._arrow())) for name, shape in self.arrays.items()])

    def _texts(self, row: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {name: _text(row[name], kind) for name, kind in self.columns.items()}
        for name, shape in self.structs.items():
            out[name] = row[name] and shape._texts(row[name])
        for name, shape in self.arrays.items():
            out[name] = [shape._texts(item) for item in row[name]]
        return out

    def typed(self, row: str = "", depth: int = 0) -> list[str]:
        """Spark SQL that makes typed columns of such texts.

        Args:
            row: Spark SQL for the row that they are fields of; none at the top.
            depth: of arrays around it.
        """
        place = {name: f"{row}.{_quoted(name)}" if row else _quoted(name) for name in self._names()}
        out = [_as(_cast(place[name], kind), name) for name, kind in self.columns.items()]
        for name, shape in self.structs.items():
            made = ", ".join(shape.typed(place[name], depth))
            out.append(_as(f"CASE WHEN {place[name]} IS NOT NULL THEN struct({made}) END", name))
        for name, shape in self.arrays.items():
            made = ", ".join(shape.typed(f"__x{depth}", depth + 1))
            out.append(_as(f"transform({place[name]}, __x{depth} -> struct({made}))", name))
        return out

    def _names(self) -> list[str]:
        return [*self.columns, *self.structs, *self.arrays]


@dataclass(frozen=True)
class Answers:
    """What expressions gave.

    Attributes:
        types: their Spark SQL types (``simpleString``).
        rows: for each row, in order, their values as Python objects.
    """

    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def ask(spark: SparkSession, shape: Shape, rows: Sequence[Mapping[str, Any]], expressions: Sequence[str]) -> Answers:
    """Evaluate Spark SQL expressions over rows.

    Args:
        spark: a session.
        shape: of the rows.
        rows: canonical values by name; none to learn the types only.
        expressions: over the names of ``shape``.
    """
    from pyspark.sql import functions as F  # noqa: N812

    texts = {"__i": pa.array(range(len(rows)), pa.int32()), **shape.arrays_of(rows)}
    typed = spark.createDataFrame(pa.table(texts)).selectExpr("__i", *shape.typed())
    asked = typed.select("__i", *(F.expr(said).alias(f"__{at}") for at, said in enumerate(expressions)))
    types = tuple(kind for _, kind in asked.dtypes[1:])
    out: list[tuple[Any, ...]] = [()] * len(rows)
    if rows:
        places, *answers = (column.to_pylist() for column in asked.toArrow().columns)
        for place, *answer in zip(places, *answers, strict=True):
            out[place] = tuple(answer)
    return Answers(types, out)


def table_shape(table: Table, expressions: Iterable[str]) -> Shape:
    """The shape of a table's rows, with the columns that expressions name."""
    said = words(expressions)
    needed = [column for column in table.columns if column.name.lower() in said] or table.columns[:1]
    return Shape({column.name: spark_type(column) for column in needed})


def words(expressions: Iterable[str]) -> set[str]:
    """What may be a name in Spark SQL, in lower case: Spark makes no difference."""
    text = " ".join(expressions).lower()
    return {*re.findall(r"\w+", text), *(name.replace("``", "`") for name in re.findall(r"`((?:[^`]|``)+)`", text))}


def canonical_rows(table: Table, shape: Shape, rows: Iterable[Mapping[str, str | None]]) -> list[dict[str, Any]]:
    """Postgres's text rows as ``ask`` takes them."""
    columns = [table.by_name[name] for name in shape.columns]
    return [{column.name: truth.expected(column, row[column.name]) for column in columns} for row in rows]


def computed(
    spark: SparkSession, view: View, shape: Shape, rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any] | None]:
    """A view's fields for each row, in order; None for a row that its condition leaves out."""
    names = list(view.fields)
    answers = ask(spark, shape, rows, [*view.fields.values(), view.where or "true"])
    return [dict(zip(names, answer, strict=False)) if answer[-1] is True else None for answer in answers.rows]


def _text(value: Any, kind: str) -> str | None:
    held = value if kind == "string" else _held(value, kind)
    return held if held is None or isinstance(held, str) else orjson.dumps(held).decode()


def _held(value: Any, kind: str) -> Any:
    """A value, or None if Spark's type has no place for it; see docs/types.md."""
    if isinstance(value, list) and kind.startswith("array<"):
        return [_held(item, kind[6:-1]) for item in value]
    if kind.startswith("decimal"):
        return None if value in _NO_DECIMALS else value
    return None if kind in _MOMENTS and value in _INFINITE else value


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _as(expression: str, name: str) -> str:
    return f"{expression} AS {_quoted(name)}"


def _cast(text: str, kind: str) -> str:
    if kind == "string":
        return text
    if kind.startswith("array<"):
        return f"from_json({text}, '{kind}')"
    if kind == "binary":
        return f"unbase64({text})"
    return f"CAST({text} AS {kind})"
