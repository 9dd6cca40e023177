"""Spark SQL fields and conditions of a view, computed in the JVM between the two Python halves of a flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc.errors import ConfigError
from cdc.gather import Gathering
from cdc.join.expressions import quoted, tokens
from cdc.log import letters as deadletters
from cdc.view import View
from spark.reading.computed import FAILED, expressions_of
from spark.reading.entries import TALLY, Decoded, decode_batches
from spark.reading.guard import with_computed
from spark.reading.spec import FlowSpec, unpack

# An entry's own columns: name -> (Arrow type, Spark type).
META: dict[str, tuple[pa.DataType, str]] = {
    "view": (pa.string(), "string"),
    "id": (pa.string(), "string"),
    "version": (pa.int64(), "bigint"),
    "document": (pa.binary(), "binary"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "offset": (pa.int64(), "bigint"),
    "ts_ms": (pa.int64(), "bigint"),
}
# A table may have a column called `view` or `offset`: ours travel under a prefix that no Postgres user would choose.
PREFIX = "__m_"


@dataclass(frozen=True)
class Computed:
    """What Spark SQL adds to a view's documents: output name -> Spark type (``simpleString``)."""

    types: dict[str, str]


# Makes the error for a part of a view: its path below the view, what is wrong, the way out.
Refuse = Callable[[tuple[str | int, ...], str, str], ConfigError]
COLUMN_NAMES = "use the table's own column names; see docs/types.md for the type each column has in Spark"
AS_SPARK = "write the type as Spark calls it: `text` and `varchar` are string there, cast(… AS string)"
# By the beginning of Spark's own name for an error: the way out, where it is not to look at names.
WAYS_OUT = {
    "UNRESOLVED_ROUTINE": "use a function that Spark SQL has: some of Postgres's are called otherwise there",
    "PARSE_": "write one expression of Spark SQL; a text stands in single quotes",
    "UNSUPPORTED_DATATYPE": AS_SPARK,
    "DATATYPE_MISSING_SIZE": AS_SPARK,
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "a column of json is a text in Spark: get_json_object(meta, '$.a')",
    "DATATYPE_MISMATCH": "cast one side, `CAST(day AS string)`; docs/types.md says the type each column has in Spark",
}
CONDITION = "compare something: `price > 0`, `name IS NOT NULL`"
AS_TEXT = "cast it: cast(… AS string); a column of type interval is text already"
AS_HEX = "make a text of it: hex(…); a cast keeps bytes that are no text"
STEADY = "let the database write it into a column; what depends on the time belongs into the query of readers"


def unplaced(path: tuple[str | int, ...], what: str, fix: str) -> ConfigError:
    """An error that names no place in the pipeline file."""
    return ConfigError(what, fix=fix)


def analyse(spark: SparkSession, view: View, refuse: Refuse = unplaced) -> Computed:
    """Check a view's expressions against its root's columns and learn their types.

    Args:
        spark: any session.
        view: its joined aggregates' types are known.
        refuse: makes the error for a part of the view.

    Raises:
        ConfigError: expressions do not parse or name columns that the root has not: all of them (terminal).
    """
    if not view.needs_spark:
        return Computed({})
    empty, found = spark.createDataFrame([], _schema(spark, view)), Gathering()
    types: dict[str, str] = {}
    for name, expression in view.fields.items():
        with found.step():
            kind = _type_of(empty, view, name, expression, partial(refuse, ("fields", name)))
            if why := unwritten(kind, name):
                raise refuse(("fields", name), f"view {view.name}: {why}", AS_TEXT)
            types[name] = kind.simpleString()
    if view.where:
        with found.step():
            if _type_of(empty, view, "where", view.where, partial(refuse, ("where",))) != T.BooleanType():
                raise refuse(("where",), f"view {view.name}: {no_condition(view.where)}", CONDITION)
    found.end()
    return Computed(types)


def _type_of(
    empty: DataFrame, view: View, name: str, expression: str, refuse: Callable[[str, str], Exception]
) -> T.DataType:
    try:
        return selected(empty, expression).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        what = f"view {view.name}: `{name}: {expression}` is not Spark SQL over {view.table.qualified}: {reason(error)}"
        raise refuse(what, way_out(error, view.fields)) from error


def unwritten(kind: T.DataType, path: str) -> str:  # noqa: PLR0911 (one return a type)
    """Why no document can hold a value of a type, or nothing. Pure.

    Python's half has no class for an interval of months; one of days and seconds it has. A variant comes to it as two
    strings of bytes, and a map's keys become names: of a structure none can be made.

    Args:
        kind: the type, and whatever is in it.
        path: what people know it by.
    """
    if isinstance(kind, T.CalendarIntervalType | T.YearMonthIntervalType):
        return f"{path} is of type {kind.simpleString()}, which no document can hold"
    if isinstance(kind, T.VariantType):
        return f"{path} is of type variant, which no document can hold (from_json with a schema makes an object)"
    if isinstance(kind, T.ArrayType):
        return unwritten(kind.elementType, path)
    if isinstance(kind, T.MapType):
        if isinstance(kind.keyType, T.ArrayType | T.MapType | T.StructType):
            return f"{path} is a map by {kind.keyType.simpleString()}, of which no name in a document can be made"
        return unwritten(kind.keyType, path) or unwritten(kind.valueType, path)
    if isinstance(kind, T.StructType):
        return next(filter(None, (unwritten(field.dataType, f"{path}.{field.name}") for field in kind.fields)), "")
    return ""


def text_of(kind: T.DataType) -> str:
    """The way out where a value has to be a text. Pure."""
    return AS_HEX if isinstance(kind, T.BinaryType) else "cast it: cast(… AS string)"


def no_condition(where: str) -> str:
    """What is wrong with a ``where`` of another type. Pure."""
    return f"`where: {where}` must be true or false for a row"


def way_out(error: AnalysisException | ParseException, fields: Collection[str] = ()) -> str:
    """What to do about what Spark does not take. Pure.

    Args:
        error: Spark's.
        fields: names of the view's fields, which are none of its columns.
    """
    if isinstance(error, OtherRows):
        return "write one value of this row's own columns"
    name = error.getCondition() or ""
    if name.startswith("UNRESOLVED_COLUMN"):
        missed = str((error.getMessageParameters() or {}).get("objectName", "")).strip("`").lower()
        if missed in {field.lower() for field in fields}:
            return "a field does not see the view's other fields: write that one's expression here, too"
    return next((way for beginning, way in WAYS_OUT.items() if name.startswith(beginning)), COLUMN_NAMES)


class OtherRows(ParseException):
    """Spark SQL that is no value of one row, as Spark alone does not say."""


def refuse_unsteady(spark: SparkSession, view: View, refuse: Refuse = unplaced) -> None:
    """Refuse what gives another value each time that it is asked: sinks, rebuilds and ``verify`` would never agree.

    Not asked of what runs already: that goes on as it was.

    Args:
        spark: any session.
        view: one that ``analyse`` has taken.
        refuse: makes the error for a part of the view.

    Raises:
        ConfigError: all such expressions (terminal).
    """
    if not view.needs_spark:
        return
    empty, found = spark.createDataFrame([], _schema(spark, view)), Gathering()
    where = {("where",): view.where} if view.where else {}
    for path, expression in ({("fields", name): text for name, text in view.fields.items()} | where).items():
        with found.step():
            refuse_double_quotes(expression, empty.columns, f"view {view.name}: {path[-1]}", partial(refuse, path))
            if why := unsteady(empty, expression):
                raise refuse(path, f"view {view.name}: `{path[-1]}: {expression}` {why}", STEADY)
    found.end()


def refuse_double_quotes(
    expression: str, columns: Collection[str], said: str, refuse: Callable[[str, str], Exception]
) -> None:
    """Refuse a text in double quotes that is called as a column, which Postgres would take it for: Spark takes it for
    that very text, in every document, and `verify` would agree. Not asked of what runs already.

    Args:
        expression: Spark SQL.
        columns: that it may name.
        said: what it belongs to.
        refuse: makes the error.
    """
    names = {column.lower() for column in columns}
    for token in tokens(expression):
        inside = token.text[1:-1].replace('""', '"')
        if token.kind == "string" and token.text.startswith('"') and inside.lower() in names:
            raise refuse(
                f"{said}: in Spark SQL {token.text} is a text, not the column of that name",
                f"the column is {quoted(inside)}, in backticks; where the text is meant, put it in single quotes",
            )


def unsteady(empty: DataFrame, expression: str) -> str:
    """Why an expression, which ``selected`` takes, may give another value for the same row; empty if it does not."""
    return moves(empty.select(F.expr(expression)))


def moves(frame: DataFrame) -> str:
    """As ``unsteady``, of a frame that is made already."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    jvm: Any = frame.sparkSession._jvm
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if plan.deterministic() and not plan.containsPattern(clock):
        return ""
    each = "a clock, a random number or who asks would give each sink, rebuild and `verify` another document"
    return f"is not made of the row alone: {each}"


def selected(empty: DataFrame, expression: str) -> DataFrame:
    """An expression over no rows, which gives its result no name.

    Most of Spark's keywords may be names: it reads ``paid AND`` as ``paid AS `AND` ``, and nobody would miss what was
    cut off. Behind WHEN no name may be. (A comment may be the end: hence a line of its own.)

    Raises:
        AnalysisException, ParseException: it is not Spark SQL over these columns, names its result, or is no value of
            one row.
    """
    found = empty.select(F.expr(expression))
    try:
        empty.select(F.expr(f"CASE WHEN {expression}\nTHEN 1 END"))
    except ParseException:
        why = "its last word is taken for a name of the result; is something missing before or behind it?"
        raise ParseException(why) from None
    except AnalysisException:  # it parses, and is no condition
        pass
    _refuse_other_rows(found)
    return found


# What Spark puts between an expression's select and its rows: why that is no value of one row.
_NOT_OF_ONE_ROW = {
    "Aggregate": "it takes many rows to one, and this sees one row; a view's `aggregates` count and sum",
    "Generate": "it makes rows of one row, and a field or condition is one value; keep the array",
    "Window": "it looks at other rows (OVER), and a field or condition sees one row",
}


def _refuse_other_rows(found: DataFrame) -> None:
    """Spark alone takes ``sum(a)`` for a select of one row: here it would fail, or count the rows of a batch."""
    if len(found.columns) != 1:  # `*`
        raise OtherRows("it gives several columns, and a field or condition is one value")
    plan: Any = found._jdf.queryExecution().analyzed()
    while True:
        why = _NOT_OF_ONE_ROW.get(plan.nodeName())
        if why:
            raise OtherRows(why)
        if plan.children().size() != 1:
            return
        plan = plan.children().head()


def reason(error: Exception) -> str:
    """The first line of Spark's own words that says something: those about a wrong syntax begin with an empty one."""
    return str(error).strip().split("\n", maxsplit=1)[0]


def _schema(spark: SparkSession, view: View) -> T.StructType:
    schema = T.StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in view.spark_schema()))
    assert isinstance(schema, T.StructType)
    return schema


def entry_schema(view: View) -> str:
    """DDL of the rows between the halves: an entry's own columns (prefixed), then the root's typed columns."""
    own = [(PREFIX + name, kind) for name, (_, kind) in META.items()]
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in [*own, *view.spark_schema()])


def entries_with_rows(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """First half: Kafka records in, entries with their typed rows out (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    view = spec.view
    for decoded in decode_batches(spec, batches, typed=True):
        yield entry_batch(spec, view, decoded)


def entry_batch(spec: FlowSpec, view: View, decoded: Decoded) -> pa.RecordBatch:
    """Entries with their typed rows as one Arrow batch of ``entry_schema``, behind them a tally (``entries.TALLY``).

    Dead letters leave from here.
    """
    deadletters.send(spec.dead_letters, decoded.letters)
    row_schema = view.arrow_schema()
    nulls = (None,) * len(row_schema)
    *own, typed = zip(*decoded.entries, decoded.tally(), strict=True)  # an entry is META's columns and its row
    arrays = [pa.array(values, kind) for values, (kind, _) in zip(own, META.values(), strict=True)]
    columns = zip(*(nulls if row is None else row for row in typed), strict=True)
    arrays += [pa.array(values, f.type) for values, f in zip(columns, row_schema, strict=True)]
    names = [PREFIX + name for name in META] + row_schema.names
    return pa.RecordBatch.from_arrays(arrays, names=names)


def without_tallies(frame: DataFrame) -> DataFrame:
    """Only the entries of a frame of ``entry_schema``."""
    return frame.where(F.col(PREFIX + "view") != TALLY)


def compute(frame: DataFrame, view: View) -> DataFrame:
    """Select the entry's own columns and what ``spark.reading.computed.Results`` reads of every expression."""
    present = F.col(PREFIX + "document").isNotNull()
    own = [F.col(PREFIX + name).alias(name) for name in META]
    return with_computed(frame, view, present).select(*own, *map(quoted, expressions_of(view)), FAILED)
