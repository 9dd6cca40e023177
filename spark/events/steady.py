"""What views of events may not compute: what gives another value each time, bytes that are taken for their text, and
Postgres's quotes of a column. Asked of a file before it is applied; what runs goes on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from cdc.fold import FoldView
from cdc.gather import Gathering
from cdc.stateful import StatefulView
from cdc.timed import Kind, MatchView, WindowView
from spark.events.fold import frame_of
from spark.events.measures import empty_frame, type_of
from spark.reading.expressions import AS_HEX, STEADY, Refuse, moves, refuse_double_quotes, unplaced, unsteady

# A part of a view: where it stands below the view, what it is called, its Spark SQL.
Part = tuple[tuple[str, ...], str, str]


def refuse_unsteady_events(spark: SparkSession, view: StatefulView, refuse: Refuse = unplaced) -> None:
    """As ``spark.reading.expressions.refuse_unsteady``, of a view of events; and bytes by which it finds or counts.

    A cast makes a text of bytes, which is none of most: such events would be dead letters, each of them.

    Args:
        spark: any session.
        view: one that ``analyse_stateful`` has given.
        refuse: makes the error for a part of the view.

    Raises:
        ConfigError: all such expressions (terminal).
    """
    if isinstance(view, FoldView):
        # Columns of an event are `event.name` in a fold: in quotes they do not parse.
        if why := moves(frame_of(spark, view)):
            raise refuse(("fold", "step"), f"view {view.name}: what `step` and `initial` give {why}", STEADY)
        return
    empty, found = empty_frame(spark, view), Gathering()
    for path, name, text in _parts(view):
        with found.step():
            refuse_double_quotes(text, empty.columns, f"view {view.name}: {name}", partial(refuse, path))
            if why := unsteady(empty, text):
                raise refuse(path, f"view {view.name}: `{name}: {text}` {why}", STEADY)
    for path, name, text in _as_text(view):
        with found.step():
            if isinstance(type_of(empty, view, path, text, refuse, name), T.BinaryType):
                raise refuse(path, f"view {view.name}: `{name}: {text}` is a binary, by which nothing is found", AS_HEX)
    found.end()


def _parts(view: StatefulView) -> Iterator[Part]:
    if isinstance(view, WindowView):
        if view.condition is not None:
            yield ("where",), "where", view.condition
        yield from ((("window", "by", name), name, text) for name, text in view.by.items())
        for name, measure in view.measures.items():
            if measure.value != "*":
                yield ("window", "measures", name), name, measure.value
    elif isinstance(view, MatchView):
        yield from _of_kind("first", view.first)
        if view.then is not None:
            yield from _of_kind("then", view.then)


def _as_text(view: StatefulView) -> Iterator[Part]:
    """Those of which the engine takes the text, whatever their type is."""
    if isinstance(view, WindowView):
        for name, measure in view.measures.items():
            if measure.function == "approx_count_distinct":
                yield ("window", "measures", name), name, measure.value
    elif isinstance(view, MatchView):
        for part, kind in {"first": view.first, "then": view.then}.items():
            if kind is not None:
                yield ("match", part, "key"), f"{part}.key", kind.key


def _of_kind(part: str, kind: Kind) -> Iterator[Part]:
    yield ("match", part, "where"), f"{part}.where", kind.where
    yield ("match", part, "key"), f"{part}.key", kind.key
    yield from ((("match", part, "fields", name), f"{part}.fields.{name}", text) for name, text in kind.fields.items())
