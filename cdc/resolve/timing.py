"""Views of windows and matches, held against the source's catalogue."""

from __future__ import annotations

from typing import Any

from cdc.catalogue import Table
from cdc.outbox import events_topics, is_outbox
from cdc.pipeline import Pipeline
from cdc.pipeline.timing import Event, Match, Timing, Window
from cdc.pipeline.views import View
from cdc.resolve.names import MOMENTS, Path, error, known
from cdc.timed import Kind, MatchView, Measure, TimedView, WindowView, measure_of, micros_of
from cdc.types import spark_type


def resolve_timing(pipeline: Pipeline, name: str, model: View, table: Table) -> TimedView:
    """A view of windows or matches.

    Args:
        pipeline: the loaded file, which was checked.
        name: the view's.
        model: the view, which has one of the two.
        table: the table of events.

    Raises:
        ConfigError: the table has no such column, or a moment is none (terminal).
    """
    timing: Timing | None = model.window or model.match
    assert timing is not None and timing.delay is not None
    path: Path = ("views", name, "window" if model.window else "match")
    for key in ("time", "sent", "received"):
        _moment(pipeline, table, getattr(timing, key), (*path, key))
    outbox = is_outbox(pipeline, table.qualified)
    common: dict[str, Any] = {
        "topics": events_topics(pipeline, model.events) if outbox else (),
        "time": timing.time,
        "sent": timing.sent,
        "received": timing.received,
        "delay": micros_of(timing.delay),
        "correct": micros_of(timing.correct_for) if timing.correct_for else 0,
    }
    if isinstance(timing, Window):
        common["null_is_text"] = pipeline.null_is_text(name)
        return _window(name, model, timing, table, common)
    assert isinstance(timing, Match) and timing.within is not None
    then = None if timing.then is None else _event(timing.then)
    common |= {"first": _event(timing.first), "then": then, "within": micros_of(timing.within)}
    return MatchView(name, table, table.primary_key, (), keep=timing.keep, count=timing.count, **common)


def _window(name: str, model: View, window: Window, table: Table, common: dict[str, Any]) -> WindowView:
    size = micros_of(window.size) if window.size else 0
    measures = {key: found for key, said in window.measures.items() if isinstance(found := measure_of(said), Measure)}
    return WindowView(
        name,
        table,
        table.primary_key,
        (),
        size=size,
        slide=micros_of(window.slide) if window.slide else size,
        gap=micros_of(window.gap) if window.gap else 0,
        condition=model.where,
        by=dict(window.by),
        groupings=window.groupings or (tuple(window.by),),
        measures=measures,
        **common,
    )


def _event(event: Event) -> Kind:
    return Kind(event.where, event.key, dict(event.fields))


def _moment(pipeline: Pipeline, table: Table, name: str | None, path: Path) -> None:
    if name is None:
        return
    known(pipeline, table, name, path)
    kind = spark_type(table.by_name[name])
    if kind not in MOMENTS:
        what = f"{table.qualified}.{name} is a {table.by_name[name].type_name}, and no moment"
        raise error(pipeline, path, what, "name a column of type timestamptz, or timestamp (taken for UTC)")
