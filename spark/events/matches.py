"""Matches' flow: events with their clocks, Spark SQL for what they are, state by key in Spark, sinks in Python.

As spark/events/windows.py, with Matches.java in the middle. docs/decisions/windows.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc.join.expressions import quoted
from cdc.timed import Kind, MatchView
from cdc.utf8 import whole
from spark.events.kept import Open, documents_of
from spark.events.measures import empty_frame, type_of
from spark.events.timed import given_events, start_timed, with_own_classes
from spark.flow import Flow
from spark.reading.expressions import AS_TEXT, Refuse, unplaced, unwritten
from spark.running import Query


def analyse_matches(spark: SparkSession, view: MatchView, refuse: Refuse = unplaced) -> MatchView:
    """Check a view's expressions, and learn the types of its documents' fields.

    Raises:
        ConfigError: they do not parse, or name what is not there (terminal).
    """
    empty = empty_frame(spark, view)
    first = _fields(empty, view, "first", view.first, refuse)
    then = {} if view.then is None else _fields(empty, view, "then", view.then, refuse)
    state = {"key": "string", "at": "timestamp", **first}
    if view.count:
        state |= {"since": "timestamp", "count": "bigint"}
    elif view.keep != "alone":
        inner = ", ".join(f"{quoted(name)}: {kind}" for name, kind in {"at": "timestamp", **then}.items())
        state |= {"followed": "boolean", "count": "bigint", "then": f"array<struct<{inner}>>"}
    return replace(view, state=state | {"late": "bigint"})


def _fields(empty: DataFrame, view: MatchView, part: str, kind: Kind, refuse: Refuse) -> dict[str, str]:
    known = type_of(empty, view, ("match", part, "where"), kind.where, refuse, f"{part}.where")
    if known != T.BooleanType():
        what = f"view {view.name}: `{part}.where: {kind.where}` must be true or false for an event"
        raise refuse(("match", part, "where"), what, "compare something: `type = 'searched'`")
    type_of(empty, view, ("match", part, "key"), kind.key, refuse, f"{part}.key")
    found = {}
    for name, said in kind.fields.items():
        path, shown = ("match", part, "fields", name), f"{part}.fields.{name}"
        field = type_of(empty, view, path, said, refuse, shown)
        if why := unwritten(field, shown):
            raise refuse(path, f"view {view.name}: {why}", AS_TEXT)
        found[name] = field.simpleString()
    return found


def matches(spark: SparkSession, events: DataFrame, view: MatchView) -> DataFrame:
    """The stateful step; see ``spark.events.windows.windows``.

    Raises:
        ConfigError: the session lacks our own classes (terminal).
    """
    kinds = (view.first, view.then or Kind("false", "CAST(NULL AS string)"))
    parts = [part for kind in kinds for part in _computed(kind, _types(events, kind))]
    given, jvm = given_events(events, parts), spark._jvm
    ours: Any = jvm.headwater.spark.Matches if jvm is not None else None
    with with_own_classes(view):
        made = ours.match(given._jdf, ours.plan([view.within, view.delay, view.correct], view.keep, view.count))
    state = F.when(F.col("value").isNotNull(), F.expr(_told(view))).alias("state")
    return DataFrame(made, spark).select("*", state).drop("value")


def _types(events: DataFrame, kind: Kind) -> list[T.DataType]:
    """Of its fields."""
    if not kind.fields:
        return []
    return [field.dataType for field in events.select(*map(F.expr, kind.fields.values())).schema]


def _computed(kind: Kind, types: Sequence[T.DataType]) -> list[str]:
    # A field that is computed of an event that is none of these may fail there, and shall not.
    fields = ", ".join(
        f"CASE WHEN ({kind.where}) THEN {whole(f'({said})', type_.jsonValue())} END AS {quoted(name)}"
        for (name, said), type_ in zip(kind.fields.items(), types, strict=True)
    )
    # Spark keeps no struct without fields.
    struct = f"struct({fields})" if fields else "struct(true AS `__`)"
    return [
        f"coalesce(({kind.where}), false)",
        f"CASE WHEN ({kind.where}) THEN {whole(f'CAST(({kind.key}) AS string)', 'string')} END",
        struct,
    ]


def _told(view: MatchView) -> str:
    """Spark SQL that makes a document's fields of what Matches.java gives."""
    parts = ["value.key AS key", "timestamp_micros(value.at) AS at"]
    parts += [f"value.first.{quoted(name)} AS {quoted(name)}" for name in view.first.fields]
    if view.count:
        parts += ["timestamp_micros(value.since) AS since", "value.count AS count"]
    elif view.keep != "alone":
        fields = ["timestamp_micros(one.at) AS at"]
        fields += [f"one.said.{quoted(name)} AS {quoted(name)}" for name in (view.then or view.first).fields]
        parts += ["value.count > 0 AS followed", "value.count AS count"]
        parts.append(f"transform(value.then, one -> struct({', '.join(fields)})) AS then")
    return f"struct({', '.join([*parts, 'value.late AS late'])})"


def is_matched(flow: Flow) -> bool:
    """Whether a flow keeps matches."""
    return any(isinstance(view, MatchView) for view in flow.spec.views.values())


def start_matches(spark: SparkSession, flow: Flow, opened: Open = documents_of) -> Query:
    """Start a flow of one view of matches.

    Raises:
        ClusterError: an executor does not see the flow's folder (terminal).
        ConfigError: without our own classes (terminal).
    """
    view = flow.spec.view
    assert isinstance(view, MatchView)
    return start_timed(spark, flow, partial(matches, view=view), opened)
