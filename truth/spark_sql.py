"""Spark SQL over canonical values, for verification: every value goes to Spark as text and Spark makes the type of it.

The pipeline hands Spark typed Arrow values that its codec made; two ways to one value, so that a mistake in one shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from cdc.catalogue import Table
from cdc.types import spark_type
from cdc.view import View
from truth import values as truth
from truth.answers import plain
from truth.moments import is_beyond
from truth.said import Said

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession

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
        lists: name -> Spark SQL type of each of any number of values.
        order: all names as they stand in the row, which shows where it is meant as a whole; as above if empty.
    """

    columns: Mapping[str, str]
    structs: Mapping[str, Shape] = field(default_factory=dict)
    arrays: Mapping[str, Shape] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def arrays_of(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        """Rows of canonical values as columns of text."""
        import pyarrow as pa  # a fifth of a second, and not every view has Spark SQL

        out = {n: pa.array([_text(row[n], kind) for row in rows], pa.string()) for n, kind in self.columns.items()}
        for name, kind in self.lists.items():
            out[name] = pa.array([[_text(item, kind) for item in row[name]] for row in rows], pa.list_(pa.string()))
        for name, shape in self.structs.items():
            out[name] = pa.array([row[name] and shape._texts(row[name]) for row in rows], shape._arrow())
        for name, shape in self.arrays.items():
            texts = [[shape._texts(item) for item in row[name]] for row in rows]
            out[name] = pa.array(texts, pa.list_(shape._arrow()))
        return out

    def _arrow(self) -> pa.DataType:
        import pyarrow as pa

        fields = [pa.field(name, pa.string()) for name in self.columns]
        fields += [pa.field(name, pa.list_(pa.string())) for name in self.lists]
        fields += [pa.field(name, shape._arrow()) for name, shape in self.structs.items()]
        return pa.struct(fields + [pa.field(name, pa.list_(shape._arrow())) for name, shape in self.arrays.items()])

    def _texts(self, row: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {name: _text(row[name], kind) for name, kind in self.columns.items()}
        out |= {name: [_text(item, kind) for item in row[name]] for name, kind in self.lists.items()}
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
        out = {name: _cast(place[name], kind) for name, kind in self.columns.items()}
        for name, kind in self.lists.items():
            out[name] = f"transform({place[name]}, __x{depth} -> {_cast(f'__x{depth}', kind)})"
        for name, shape in self.structs.items():
            made = ", ".join(shape.typed(place[name], depth))
            out[name] = f"CASE WHEN {place[name]} IS NOT NULL THEN struct({made}) END"
        for name, shape in self.arrays.items():
            made = ", ".join(shape.typed(f"__x{depth}", depth + 1))
            out[name] = f"transform({place[name]}, __x{depth} -> struct({made}))"
        return [_as(out[name], name) for name in self._names()]

    def _names(self) -> list[str]:
        return list(self.order or (*self.columns, *self.lists, *self.structs, *self.arrays))


@dataclass(frozen=True)
class Answers:
    """What expressions gave.

    Attributes:
        types: their Spark SQL types (``simpleString``).
        rows: for each row, in order, their values as Python objects.
    """

    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Failed:
    """In the place of a value that Spark could not compute."""

    def __repr__(self) -> str:
        return "what Spark could not compute"


FAILED = Failed()


def ask(spark: SparkSession, shape: Shape, rows: Sequence[Mapping[str, Any]], expressions: Sequence[str]) -> Answers:
    """Evaluate Spark SQL expressions over rows; where one fails for a row, that row has FAILED there.

    Args:
        spark: a session.
        shape: of the rows.
        rows: canonical values by name; none to learn the types only.
        expressions: over the names of ``shape``.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812

    texts = {"__i": pa.array(range(len(rows)), pa.int32()), **shape.arrays_of(rows)}
    typed = spark.createDataFrame(pa.table(texts)).selectExpr("__i", *shape.typed())
    types = tuple(kind for _, kind in typed.select(*map(F.expr, expressions)).dtypes)
    out: list[tuple[Any, ...]] = [()] * len(rows)
    if rows:
        there = F.col("__i").isNotNull()
        columns = [_tried(F.expr(said), there).alias(f"__{at}") for at, said in enumerate(expressions)]
        asked = typed.select("__i", *columns).toArrow()
        places, *answers = asked.column(0).to_pylist(), *map(_answers, asked.columns[1:])
        for place, *answer in zip(places, *answers, strict=True):
            out[place] = tuple(answer)
    return Answers(types, out)


def _tried(value: Column, present: Column) -> Column:
    """A struct of a value that may fail for a row in ANSI mode: null where it did, and where ``present`` is not true.

    Spark's own ``TryEval`` has no name in its Python interface. The engine has such a function too; a second opinion
    does not share it.
    """
    from pyspark import SparkContext
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None
    columns = context._jvm.org.apache.spark.sql.classic.ExpressionUtils
    held = F.struct(F.when(present, value).alias("v"))
    tried = context._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(columns.expression(held._jc))
    return F.when(present, Column(columns.column(tried)))


def _answers(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column of ``_tried``."""
    found: list[Any] = []
    for chunk in column.chunks:
        values = _read(chunk.field("v"))
        if chunk.null_count:
            values = [FAILED if bad else value for value, bad in zip(values, chunk.is_null().to_pylist(), strict=True)]
        found += values
    return found


def _read(values: pa.Array) -> list[Any]:
    """The values; ``FAILED`` in the place of one with a text that is not UTF-8: Spark casts any bytes to a string."""
    try:
        return plain(values)
    except UnicodeDecodeError:
        if len(values) == 1:
            return [FAILED]
        return [value for at in range(len(values)) for value in _read(values.slice(at, 1))]


def words_of(spark: SparkSession, shape: Shape, row: Mapping[str, Any], expression: str) -> str:
    """What Spark says of an expression that fails for a row: the class of its error and its words."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812

    texts = {"__i": pa.array([0], pa.int32()), **shape.arrays_of([row])}
    typed = spark.createDataFrame(pa.table(texts)).selectExpr("__i", *shape.typed())
    try:
        typed.select(F.expr(expression).alias("v")).toArrow()
    except PySparkException as error:
        return str(error).strip().split("\n", maxsplit=1)[0]
    return "it gives a text that is not UTF-8; hex(…) and base64(…) make a text of bytes"


def table_shape(table: Table, expressions: Iterable[str]) -> Shape:
    """The shape of a table's rows, with the columns that expressions name; ``*`` names all."""
    said = Said.of(expressions)
    needed = [column for column in table.columns if said.every or said.mentions(column.name)] or table.columns[:1]
    return Shape({column.name: spark_type(column) for column in needed})


def canonical_rows(table: Table, shape: Shape, rows: Iterable[Mapping[str, str | None]]) -> list[dict[str, Any]]:
    """Postgres's text rows as ``ask`` takes them."""
    columns = [table.by_name[name] for name in shape.columns]
    return [{column.name: truth.expected(column, row[column.name]) for column in columns} for row in rows]


class Broken(NamedTuple):
    """A row whose document can't be computed.

    Attributes:
        said: the expressions that failed, by name.
        words: Spark's own about the first of them, only if they were asked for; or why Spark was not asked.
    """

    said: Mapping[str, str]
    words: str = ""


def computed(
    spark: SparkSession, view: View, shape: Shape, rows: Sequence[Mapping[str, Any] | Broken], *, words: bool = False
) -> list[Mapping[str, Any] | Broken | None]:
    """A view's fields for each row, in order; None for a row that its condition leaves out.

    Args:
        spark: a session.
        view: the view.
        shape: of the rows.
        rows: canonical values by name; what is known to be broken stays that.
        words: also ask for Spark's own words about what fails: a job for each such row.
    """
    said = {**{f"field {name}": text for name, text in view.fields.items()}, "where": view.where or "true"}
    whole = [row for row in rows if not isinstance(row, Broken)]
    answers = iter(ask(spark, shape, whole, list(said.values())).rows)
    found: list[Mapping[str, Any] | Broken | None] = []
    for row in rows:
        if isinstance(row, Broken):
            found.append(row)
            continue
        answer = next(answers)
        if answer[-1] is not True and answer[-1] is not FAILED:
            found.append(None)
            continue
        failed = {name: text for (name, text), value in zip(said.items(), answer, strict=True) if value is FAILED}
        if failed:
            why = words_of(spark, shape, row, next(iter(failed.values()))) if words else ""
            found.append(Broken(failed, why))
        else:
            found.append(dict(zip(view.fields, answer, strict=False)))
    return found


def _text(value: Any, kind: str) -> str | None:
    held = value if kind == "string" else _held(value, kind)
    return held if held is None or isinstance(held, str) else orjson.dumps(held).decode()


def _held(value: Any, kind: str) -> Any:
    """A value, or None if Spark's type has no place for it; see docs/types.md."""
    if isinstance(value, list) and kind.startswith("array<"):
        return [_held(item, kind[6:-1]) for item in value]
    if kind == "string" and isinstance(value, orjson.Fragment | Mapping):  # json is a text to Spark, in an array too
        return orjson.dumps(value).decode()
    if kind.startswith("decimal"):
        return None if value in _NO_DECIMALS else value
    if kind in _MOMENTS and value is not None:
        return None if value in _INFINITE or is_beyond(value) else value
    return value


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
