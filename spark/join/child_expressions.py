"""Spark SQL over the rows that aggregates count: computed in the JVM before a change reaches the row store.

``sum(distance)`` over a plain column needs no Spark. ``where: "NOT cancelled"`` or ``sum(price * amount)`` does: the
records pass through Python once to get their typed columns, as one struct a table, and come out with one more column
for each such aggregate. Of ``sum(distance)`` with a ``where`` that column is the condition alone: the value is taken as
without one, because some values of Postgres (``infinity``, ``NaN``) have no place in Spark's types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc import types
from cdc.catalogue import Table
from cdc.errors import ConfigError, DecodeError
from cdc.gather import Gathering
from cdc.join.expressions import mentions, over_struct, quoted
from cdc.join.layout import TableLayout
from cdc.join.ordering import has_order
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from spark.join.records import COMPUTED
from spark.join.stage import view_of
from spark.reading.expressions import (
    AS_TEXT,
    CONDITION,
    STEADY,
    Refuse,
    no_condition,
    reason,
    refuse_double_quotes,
    selected,
    unplaced,
    unsteady,
    unwritten,
    way_out,
)
from spark.reading.guard import guarded
from spark.reading.record import RECORD, RECORD_DDL
from spark.reading.spec import unpack

ORDERED = (
    "make a number, a moment or a plain text of it: of an interval, "
    "`unix_micros(CAST(b AS timestamp)) - unix_micros(CAST(a AS timestamp))`"
)


def needed(view: JoinedView) -> list[TableLayout]:
    """The tables whose rows Spark SQL has to see."""
    return [layout for layout in view.layout.tables.values() if any(a.computed for a in layout.aggregates)]


def _columns(layout: TableLayout) -> list[str]:
    """The columns that a table's expressions name."""
    texts = [text for a in layout.aggregates if a.computed for text in _texts(a)]
    said: set[str] = set().union(*(mentions(text, layout.table.by_name) for text in texts))
    return [column.name for column in layout.table.columns if column.name in said]


# A struct needs a field, and `count(*) where 1 = 1` names none. Beside others it would be one of `struct(*)`.
_NO_COLUMN = "__row"


def _struct(layout: TableLayout) -> str:
    by_name = layout.table.by_name
    fields = [f"{quoted(name)}:{types.spark_type(by_name[name])}" for name in _columns(layout)]
    return "struct<" + ",".join(fields or [f"{quoted(_NO_COLUMN)}:boolean"]) + ">"


def record_schema(view: JoinedView) -> str:
    """DDL of records with a struct beside them for each table that needs one."""
    structs = [f"`__t{layout.number}` {_struct(layout)}" for layout in needed(view)]
    return ", ".join([RECORD_DDL, *structs])


def with_structs(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records in, records with typed structs out (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    decoders = spec.decoders()
    plans = []
    for layout in needed(view_of(spec)):
        by_name = layout.table.by_name
        converters = [(name, types.arrow_converter(by_name[name])) for name in _columns(layout)]
        fields = [pa.field(name, types.arrow_type(by_name[name])) for name, _ in converters]
        plans.append((layout, converters, pa.struct(fields or [pa.field(_NO_COLUMN, pa.bool_())])))
    for batch in batches:
        structs: list[list[dict[str, object] | None]] = [[] for _ in plans]
        plain = (batch.column(name).to_pylist() for name in RECORD.names)
        for key, value, topic, partition, offset in zip(*plain, strict=True):
            table = decoders[topic].table.qualified
            for found, (layout, converters, _) in zip(structs, plans, strict=True):
                row = None
                if layout.table.qualified == table and value is not None:
                    try:
                        after = decoders[topic].decode(key, value, topic, partition, offset).after
                        row = None if after is None else _typed(after, converters)
                    except (DecodeError, *types.REFUSALS):
                        row = None  # the next stage meets the same record and sends it to the dead letters
                found.append(row)
        arrays = [batch.column(name) for name in RECORD.names]
        arrays += [pa.array(found, kind) for found, (_, _, kind) in zip(structs, plans, strict=True)]
        names = RECORD.names + [f"__t{layout.number}" for layout, _, _ in plans]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _typed(after: dict[str, object], converters: list[tuple[str, types.Converter | None]]) -> dict[str, object]:
    row: dict[str, object] = {}
    for name, convert in converters:
        value = after.get(name)
        row[name] = value if convert is None or value is None else convert(value)
    return row


def computed_columns(view: JoinedView) -> list[Column]:
    """The record's own columns, then one for each computed aggregate, as ``spark.reading.guard`` makes them."""
    found = [F.col(name) for name in RECORD.names]
    for layout in needed(view):
        struct = f"__t{layout.number}"
        for number, aggregate in enumerate(layout.aggregates):
            if aggregate.computed:
                made = guarded(_value(layout, aggregate, struct), F.col(struct).isNotNull())
                found.append(made.alias(COMPUTED.format(layout.number, number)))
    return found


def _value(layout: TableLayout, aggregate: Aggregate, struct: str) -> Column:
    """What a row contributes: the value where the condition holds; a plain count contributes 1.

    Of one over a column whether it holds: ``RowMaker`` has the value.
    """
    names = layout.table.by_name
    where = None if aggregate.where is None else F.expr(over_struct(aggregate.where, names, struct))
    if aggregate.column is not None and where is not None:
        return where
    value = F.lit(1) if aggregate.value is None else F.expr(over_struct(aggregate.value, names, struct))
    if aggregate.value is not None and aggregate.function == "count" and not aggregate.distinct:
        value = F.when(value.isNotNull(), F.lit(1))
    return value if where is None else F.when(where, value)


def analysed(spark: SparkSession, view: JoinedView, refuse: Refuse = unplaced) -> JoinedView:
    """Check the expressions of a view's aggregates, and give each the type that Spark finds.

    Args:
        spark: any session.
        view: the view.
        refuse: makes the error for a part of the view.

    Raises:
        ConfigError: expressions do not parse, or name columns that their tables have not: all of them (terminal).
    """
    if not needed(view):
        return view
    empty, found = spark.createDataFrame([], record_schema(view)), Gathering()
    places = dict(_places(view.tree, ()))
    kinds: dict[int, str] = {}
    for layout in needed(view):
        for aggregate in layout.aggregates:
            if aggregate.computed:
                with found.step():
                    at = partial(refuse, places.get(id(aggregate), ()))
                    kinds[id(aggregate)] = _kind(empty, view, layout, aggregate, at)
    found.end()
    tree = _with_kinds(view.tree, kinds)
    return replace(view, root=tree)


def _places(node: Node, path: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each aggregate's place below the view."""
    for aggregate in node.aggregates:
        yield id(aggregate), (*path, "aggregates", aggregate.name)
    for part, nodes in (("refs", node.refs), ("children", node.children)):
        for below in nodes:
            yield from _places(below, (*path, part, below.name))


def _kind(
    empty: DataFrame,
    view: JoinedView,
    layout: TableLayout,
    aggregate: Aggregate,
    refuse: Callable[[str, str], ConfigError],
) -> str:
    struct = f"__t{layout.number}"
    text = f"{aggregate.value or '*'}" + (f" where {aggregate.where}" if aggregate.where else "")
    said = f"view {view.name}: aggregate {aggregate.name}: `{text}`"
    try:
        for part in _texts(aggregate):
            given = selected(empty, over_struct(part, layout.table.by_name, struct)).schema[0].dataType
            if part is aggregate.where and given.simpleString() != "boolean":
                raise refuse(f"view {view.name}: aggregate {aggregate.name}: {no_condition(part)}", CONDITION)
        held = empty.select(_value(layout, aggregate, struct).alias("v")).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        plain = _as_written(empty.sparkSession, layout.table, aggregate) or error
        raise refuse(
            f"{said} is not Spark SQL over {layout.table.qualified}: {reason(plain)}", way_out(plain)
        ) from error
    if why := unwritten(held, f"aggregate {aggregate.name}"):
        raise refuse(f"view {view.name}: {why}", AS_TEXT)
    kind = held.simpleString()
    number = kind in ("tinyint", "smallint", "int", "bigint", "float", "double") or kind.startswith("decimal")
    if aggregate.function in ("sum", "avg") and not number and aggregate.column is None:
        raise refuse(f"{said} gives {kind}, which has no sum", "cast it to a number, or take min, max or count")
    if kind.startswith(("array", "struct", "map", "binary", "variant")):
        raise refuse(f"{said} gives {kind}, which is not one value", "take a part of it, or turn it into a string")
    if aggregate.function in ("min", "max") and aggregate.column is None and not has_order(kind):
        raise refuse(f"{said} gives {kind}, which has no order here", ORDERED)
    return kind


def refuse_unsteady_parts(spark: SparkSession, view: JoinedView, refuse: Refuse = unplaced) -> None:
    """As ``refuse_unsteady``, of what the view's aggregates compute.

    Raises:
        ConfigError: all such expressions (terminal).
    """
    found, places = Gathering(), dict(_places(view.tree, ()))
    for layout in needed(view):
        empty = _empty(spark, layout.table)
        for aggregate in layout.aggregates:
            for text in _texts(aggregate):
                with found.step():
                    place = partial(refuse, places.get(id(aggregate), ()))
                    said = f"view {view.name}: aggregate {aggregate.name}"
                    refuse_double_quotes(text, empty.columns, said, place)
                    if why := unsteady(empty, text):
                        raise place(f"{said}: `{text}` {why}", STEADY)
    found.end()


def _texts(aggregate: Aggregate) -> list[str]:
    """What of an aggregate is Spark SQL: its value, unless that is a column, and its condition."""
    texts = (None if aggregate.column else aggregate.value, aggregate.where)
    return [text for text in texts if text is not None]


def _empty(spark: SparkSession, table: Table) -> DataFrame:
    """No rows of a table, under its own columns' names."""
    columns = ", ".join(f"{quoted(column.name)} {types.spark_type(column)}" for column in table.columns)
    return spark.createDataFrame([], columns)


def _as_written(spark: SparkSession, table: Table, aggregate: Aggregate) -> AnalysisException | ParseException | None:
    """What Spark says of an aggregate over its table's own columns: over the structs it names words of ours."""
    empty = _empty(spark, table)
    for text in _texts(aggregate):
        try:
            selected(empty, text)
        except (AnalysisException, ParseException) as error:
            return error
    return None


def _with_kinds(node: Node, kinds: dict[int, str]) -> Node:
    return replace(
        node,
        refs=tuple(_with_kinds(ref, kinds) for ref in node.refs),
        children=tuple(_with_kinds(child, kinds) for child in node.children),
        aggregates=tuple(replace(a, kind=kinds.get(id(a), a.kind)) for a in node.aggregates),
    )
