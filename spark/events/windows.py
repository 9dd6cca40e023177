"""Windows' flow: events with their clocks, Spark SQL for groups and values, state by window in Spark, sinks in Python.

records ─► event_rows (mapInArrow) ─► groups and values (Spark SQL) ─► Windows.java (transformWithState) ─►
measures (Spark SQL) ─► documents ─► spark/events/kept.py

docs/decisions/windows.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc.errors import ConfigError
from cdc.join.expressions import quoted
from cdc.timed import WindowView
from cdc.utf8 import whole
from spark.events.kept import Open, documents_of
from spark.events.measures import AVERAGE, Plan, empty_frame, planned, type_of
from spark.events.timed import given_events, start_timed, with_own_classes
from spark.flow import Flow
from spark.reading.entries import OWN
from spark.reading.expressions import Refuse, text_of, unplaced
from spark.running import Query

# A group's value must have a text that is its own, and a JSON form.
_GROUPS = (T.StringType, T.BooleanType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType)


def analyse_windows(spark: SparkSession, view: WindowView, refuse: Refuse = unplaced) -> WindowView:
    """Check a view's expressions, and learn the types of its documents' fields.

    Raises:
        ConfigError: they do not parse, name what is not there, or can't be measured (terminal).
    """
    empty = empty_frame(spark, view)
    if view.condition is not None and type_of(empty, view, ("where",), view.condition, refuse) != T.BooleanType():
        what = f"view {view.name}: `where: {view.condition}` must be true or false for an event"
        raise refuse(("where",), what, "compare something: `type = 'viewed'`")
    state: dict[str, str] = {"grouping": "string"} if len(view.groupings) > 1 else {}
    for name, said in view.by.items():
        kind = type_of(empty, view, ("window", "by", name), said, refuse, name)
        if not isinstance(kind, _GROUPS):
            what = f"view {view.name}: `{name}: {said}` is a {kind.simpleString()}, by which nothing is grouped"
            raise refuse(("window", "by", name), what, text_of(kind))
        state[name] = kind.simpleString()
    state |= {"window_start": "timestamp", "window_end": "timestamp"}
    for name, plan in planned(spark, view, partial(_measure_refused, view, refuse)).items():
        state[name] = plan.type
    return replace(view, state=state | {"late": "bigint"})


def _measure_refused(view: WindowView, refuse: Refuse, name: str, why: str) -> ConfigError:
    measure = view.measures[name]
    what = f"view {view.name}: `{name}: {measure.function}({measure.value})` can't be measured: {why}"
    return refuse(("window", "measures", name), what, "see docs/windows.md for what each function takes")


# -- the stages --------------------------------------------------------------------------------------------------------


def windows(spark: SparkSession, events: DataFrame, view: WindowView) -> DataFrame:
    """The stateful step: each window that has had events, with its measures.

    Args:
        spark: the session.
        events: of ``spark.events.timed.event_rows``.
        view: its fields' types are known.

    Returns:
        an entry's own columns, why it could not be counted (``failed``), whether it is ``gone``, and ``state``.

    Raises:
        ConfigError: the session lacks our own classes (terminal).
    """
    plans = planned(spark, view, partial(_measure_refused, view, unplaced))
    given = given_events(events, _parts(view, plans))
    jvm: Any = spark._jvm
    kinds = [kind for plan in plans.values() for kind in plan.kinds]
    groupings = [[list(view.by).index(name) for name in names] for names in view.groupings]
    times_of = [view.size, view.slide, view.gap, view.delay, view.correct]
    with with_own_classes(view):
        ours = jvm.headwater.spark.Windows
        if any(kind.startswith(AVERAGE) for kind in kinds):
            ours.averages()  # an older jar has none, and would fail in each task instead of here
        made = ours.window(given._jdf, ours.plan(times_of, len(view.by), kinds, groupings))
    frame = DataFrame(made, spark)
    state = F.when(F.col("value").isNotNull(), F.expr(_told(view, plans))).alias("state")
    return frame.select(*OWN, "failed", "gone", state)


def _parts(view: WindowView, plans: dict[str, Plan]) -> list[str]:
    """Spark SQL of what Windows.java is given of an event: whether it counts, its groups, what is measured."""
    parts = ["true" if view.condition is None else f"coalesce(CAST(({view.condition}) AS boolean), false)"]
    for name, said in view.by.items():
        text = view.state[name].startswith("string")
        parts.append(f"{whole(f'({said})', 'string') if text else f'({said})'} AS {quoted(name)}")
    inputs = [said for plan in plans.values() for said in plan.inputs]
    return parts + [f"({said}) AS `__{at}`" for at, said in enumerate(inputs)]


def _told(view: WindowView, plans: dict[str, Plan]) -> str:
    """Spark SQL that makes a document's fields of what Windows.java gives."""
    parts = []
    if len(view.groupings) > 1:
        names = ", ".join(f"'{','.join(names)}'" for names in view.groupings)
        parts.append(f"element_at(array({names}), value.grouping + 1) AS grouping")
    parts += [f"value.{quoted(name)} AS {quoted(name)}" for name in view.by]
    parts += ["timestamp_micros(value.start) AS window_start", "timestamp_micros(value.end) AS window_end"]
    at = 0
    for name, plan in plans.items():
        slots = [f"value.m{at + index}" for index in range(len(plan.kinds))]
        parts.append(f"CAST({plan.result.format(*slots)} AS {plan.type}) AS {quoted(name)}")
        at += len(plan.kinds)
    return f"struct({', '.join([*parts, 'value.late AS late'])})"


# -- the flow ----------------------------------------------------------------------------------------------------------


def is_windowed(flow: Flow) -> bool:
    """Whether a flow keeps windows."""
    return any(isinstance(view, WindowView) for view in flow.spec.views.values())


def start_windows(spark: SparkSession, flow: Flow, opened: Open = documents_of) -> Query:
    """Start a flow of one view of windows.

    Raises:
        ClusterError: an executor does not see the flow's folder (terminal).
        ConfigError: without our own classes (terminal).
    """
    view = flow.spec.view
    assert isinstance(view, WindowView)
    return start_timed(spark, flow, partial(windows, view=view), opened)
