"""What a window measures, in terms of Spark SQL and of what Measure.java keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc.join.expressions import quoted
from cdc.timed import Measure, WindowView
from cdc.utf8 import whole
from cdc.view import View
from spark.reading.expressions import Refuse, reason, selected, way_out

# How the kind of a decimals' average begins (Measure.java).
AVERAGE = "avg:decimal:"


@dataclass(frozen=True)
class Plan:
    """How a measure is had.

    Attributes:
        inputs: Spark SQL over an event's columns, one for each of ``kinds``.
        kinds: what Measure.java keeps of them.
        result: Spark SQL; ``{0}``, ``{1}`` stand for what was kept.
        type: of the result.
    """

    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    result: str
    type: str


# (name, why) -> the error that refuses a measure.
Refused = Callable[[str, str], Exception]


def empty_frame(spark: SparkSession, view: View) -> DataFrame:
    """No rows, of the columns that expressions over an event see."""
    schema: Any = ", ".join(f"{quoted(name)} {kind}" for name, kind in view.spark_schema())
    return spark.createDataFrame([], schema)


def type_of(
    empty: DataFrame, view: View, path: tuple[str, ...], said: str, refuse: Refuse, name: str = ""
) -> T.DataType:
    """An expression's type.

    Args:
        empty: of ``empty_frame``.
        view: whose expression it is.
        path: where it stands below the view.
        said: the expression.
        refuse: makes the error for a part of the view.
        name: what people know it by; the last of the path.
    """
    try:
        return selected(empty, said).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        shown = name or path[-1]
        what = f"view {view.name}: `{shown}: {said}` is not Spark SQL over {view.table.qualified}: {reason(error)}"
        raise refuse(path, what, way_out(error)) from error


def planned(spark: SparkSession, view: WindowView, refuse: Refused) -> dict[str, Plan]:
    """Each measure of a view, by its name; raises what ``refuse`` makes."""
    empty = empty_frame(spark, view)
    return {name: _plan(empty, name, measure, refuse) for name, measure in view.measures.items()}


def _plan(empty: DataFrame, name: str, measure: Measure, refuse: Refused) -> Plan:
    said = measure.value
    if measure.function == "count":
        counted = "1L" if said == "*" else f"CASE WHEN ({said}) IS NOT NULL THEN 1L END"
        if said != "*":
            _kind(empty, name, said, refuse)
        return Plan((counted,), ("count",), "{0}", "bigint")
    kind = _kind(empty, name, said, refuse)
    if measure.function == "approx_count_distinct":
        return Plan((whole(f"CAST(({said}) AS string)", "string"),), ("distinct",), "{0}", "bigint")
    number = isinstance(kind, T.NumericType)
    if measure.function == "percentile":
        if not number:
            raise refuse(name, f"{said} is a {kind.simpleString()}, and no number")
        return Plan((f"CAST(({said}) AS double)",), (f"quantile:{measure.rank}",), "{0}", "double")
    if measure.function in ("sum", "avg"):
        if not number:
            raise refuse(name, f"{said} is a {kind.simpleString()}, and no number")
        return _total(empty, name, measure, kind, refuse)
    return _extreme(name, measure, kind, refuse)


def _kind(empty: DataFrame, name: str, said: str, refuse: Refused) -> T.DataType:
    try:
        return selected(empty, said).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        raise refuse(name, reason(error)) from error


def _total(empty: DataFrame, name: str, measure: Measure, kind: T.DataType, refuse: Refused) -> Plan:
    """A sum, or an average: that is a sum and a count. Types are those of Spark's own functions."""
    said = measure.value
    try:
        of = empty.select(F.expr(f"{measure.function}({said})")).schema[0].dataType
    except AnalysisException as error:  # of a random number, say
        raise refuse(name, reason(error)) from error
    type_ = of.simpleString()
    if isinstance(kind, T.DecimalType):
        given, word = f"CAST(({said}) AS decimal(38,{kind.scale}))", "sum:decimal"
    elif isinstance(kind, T.IntegralType) and measure.function == "sum":
        given, word = f"CAST(({said}) AS bigint)", "sum:long"
    else:
        given, word = f"CAST(({said}) AS double)", "sum:double"
    if measure.function == "sum":
        return Plan((given,), (word,), f"try_cast({{0}} AS {type_})", type_)
    if isinstance(kind, T.DecimalType) and isinstance(of, T.DecimalType):
        # Null where Spark's own sum of such decimals has no room. Divided in Java: what `/` gives of a wide decimal has
        # fewer digits than this type, and of others it is rounded before it becomes this type, and again then.
        digits = min(kind.precision + 10, 38)
        return Plan((given,), (f"{AVERAGE}{digits}:{of.precision}:{of.scale}",), "{0}", type_)
    counted = f"CASE WHEN ({said}) IS NOT NULL THEN 1L END"
    return Plan((given, counted), (word, "count"), "CASE WHEN {1} > 0 THEN {0} / {1} END", type_)


def _extreme(name: str, measure: Measure, kind: T.DataType, refuse: Refused) -> Plan:
    """A least or greatest value: numbers, texts and moments."""
    said, word, type_ = f"({measure.value})", measure.function, kind.simpleString()
    if isinstance(kind, T.IntegralType):
        return Plan((f"CAST({said} AS bigint)",), (f"{word}:long",), "{0}", type_)
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return Plan((f"CAST({said} AS double)",), (f"{word}:double",), "{0}", type_)
    if isinstance(kind, T.DecimalType):
        return Plan((said,), (f"{word}:decimal",), "{0}", type_)
    if isinstance(kind, T.StringType):
        return Plan((whole(said, kind.jsonValue()),), (f"{word}:string",), "{0}", type_)
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        return Plan((f"unix_micros(CAST({said} AS timestamp))",), (f"{word}:long",), "timestamp_micros({0})", type_)
    if isinstance(kind, T.DateType):
        result = "date_from_unix_date(CAST({0} AS int))"
        return Plan((f"CAST(unix_date({said}) AS bigint)",), (f"{word}:long",), result, type_)
    raise refuse(name, f"{measure.value} is a {type_}, which has no order here")
