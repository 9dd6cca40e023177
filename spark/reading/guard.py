"""Spark SQL that may fail for a row and must not end the query: division by zero, a cast of bad text, an overflow.

In ANSI mode a failing expression fails its task, and so its view for all rows. ``guarded`` puts it into a struct inside
Spark's own ``TryEval``: the struct is null where the expression failed, and holds its value (which may be null)
everywhere else. docs/decisions/expressions.md says why this and nothing else.
"""

from __future__ import annotations

from functools import reduce

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc.join.expressions import mentions, quoted
from cdc.utf8 import has_bytes, has_text
from cdc.view import View
from spark.reading.computed import FAILED, SEEN_CHARS, VALUE, WHERE, expressions_of

_GUARDED = "__g"


def guarded(value: Column, present: Column) -> Column:
    """A struct of the value; null where it failed, and where ``present`` is not true: there nothing is computed.

    Args:
        value: what may fail.
        present: a condition that never fails and is no constant. It also keeps Spark from computing what two
            expressions share before either of them, outside of what guards them.
    """
    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None
    columns = context._jvm.org.apache.spark.sql.classic.ExpressionUtils
    # What can't be null by its type is null inside of a null struct, which Arrow would refuse.
    held = F.struct(F.when(present, value).alias(VALUE))
    tried = context._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(columns.expression(held._jc))
    return F.when(present, Column(columns.column(tried)))


def with_computed(frame: DataFrame, view: View, present: Column) -> DataFrame:
    """A frame of rows with the value of each expression beside them, and ``FAILED``.

    Where the condition leaves a row out, what its fields are does not matter: then nothing has failed. A text that is
    not UTF-8 has: Spark casts any bytes to a string, and no sink and no Python can hold it.

    Args:
        frame: with the columns of ``view.spark_schema``.
        view: a view with expressions.
        present: see ``guarded``.
    """
    said = expressions_of(view)
    tried = [guarded(F.expr(text), present).alias(_GUARDED + name) for name, (_, text) in said.items()]
    kinds, own = frame.select(*(F.expr(text) for _, text in said.values())).schema, frame.columns
    bad = {
        name: _is_bad(name, texts=told_by_cast(kind.dataType) and text not in own)
        for (name, (_, text)), kind in zip(said.items(), kinds, strict=True)
    }
    any_bad = reduce(Column.__or__, bad.values())
    if view.where:
        any_bad = any_bad & (bad[WHERE] | F.coalesce(_value(WHERE), F.lit(False)))
    columns = F.array_compact(F.array(*(F.when(is_bad, F.lit(name)) for name, is_bad in bad.items())))
    told = F.struct(F.when(present, columns).alias("columns"), _seen(view).alias("seen"))
    values = [F.when(~bad[name], _value(name)).alias(name) for name in said]
    kept = [F.col(quoted(name)) for name in own]
    return frame.select("*", *tried).select(*kept, *values, F.when(present & any_bad, told).alias(FAILED))


def told_by_cast(kind: T.DataType) -> bool:
    """Whether a cast to a string tells if the texts in a value are UTF-8: it has some, and no bytes beside them. Pure.

    A value that has both is left to ``cdc.types.plain``.
    """
    said = kind.jsonValue()
    return has_text(said) and not has_bytes(said)


def _is_bad(name: str, *, texts: bool) -> Column:
    failed = F.col(quoted(_GUARDED + name)).isNull()
    if not texts:
        return failed
    return failed | ~F.coalesce(F.is_valid_utf8(_value(name).cast("string")), F.lit(True))


def _value(name: str) -> Column:
    return F.col(quoted(_GUARDED + name)).getField(VALUE)


def _seen(view: View) -> Column:
    """The values that the view's expressions name, as JSON text."""
    names = [name for name, _ in view.spark_schema()]
    said = set[str]().union(*(mentions(text, names) for _, text in expressions_of(view).values()))
    if not said:
        return F.lit(None).cast("string")
    return F.substring(F.to_json(F.struct(*(F.col(quoted(n)) for n in names if n in said))), 1, SEEN_CHARS)
