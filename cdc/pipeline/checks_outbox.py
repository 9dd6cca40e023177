"""Whether ``source.outbox`` and the views over events fit the rest of the file, as far as the file alone can tell."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.pipeline.joins import Nested
from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, near, shown
from cdc.pipeline.sinks import IcebergSink
from cdc.pipeline.source import Outbox
from cdc.pipeline.views import JOINS, View

AT: Path = ("source", "outbox")
_ALONE = "keep events in a view of their own, and look them up by their columns"


def check_outbox(pipeline: Pipeline) -> Iterator[Wrong]:
    """What does not fit: in the outbox itself, in views over it or beside it, in sinks of its history."""
    outbox = pipeline.source.outbox
    if outbox is not None:
        yield from _table(pipeline, outbox)
        yield from _columns(outbox)
        yield from _types(outbox)
    for name, view in pipeline.views.items():
        if outbox is not None and is_root(outbox, view.root):
            yield from _of_events(name, view, outbox)
        elif view.events:
            fix = "take `events` out, or name the table of events in source.outbox"
            what = f"views.{name}.events: {shown(view.root)} is not source.outbox.table, whose rows are events"
            yield Wrong(("views", name, "events"), what, fix if outbox is None else f"root: {outbox.table}")
        if outbox is not None:
            yield from _joined(view, ("views", name), outbox)
    if outbox is not None:
        yield from _histories(pipeline, outbox)


def is_root(outbox: Outbox, name: str) -> bool:
    """Whether a table's name in the file, with its schema or without, is the outbox's."""
    return name in (outbox.table, outbox.table.partition(".")[2])


def _table(pipeline: Pipeline, outbox: Outbox) -> Iterator[Wrong]:
    if not pipeline.captures(outbox.table):
        fix = near(outbox.table, pipeline.source.tables, "add it there: what is not captured is not in the log")
        yield Wrong((*AT, "table"), f"source.outbox.table: {shown(outbox.table)} is not in source.tables", fix)


def _columns(outbox: Outbox) -> Iterator[Wrong]:
    named: dict[str, str] = {}
    for key in ("id", "aggregate_type", "aggregate_id"):
        column = getattr(outbox, key)
        if column in named:
            what = f"source.outbox.{key}: {shown(column)} is source.outbox.{named[column]} already"
            yield Wrong((*AT, key), what, "name another column")
        named.setdefault(column, key)


def _types(outbox: Outbox) -> Iterator[Wrong]:
    """Kafka calls a topic a.b and a topic a_b one, and refuses the second."""
    seen: dict[str, str] = {}
    for index, one in enumerate(outbox.types):
        other = seen.setdefault(one.replace(".", "_"), one)
        at: Path = (*AT, "types", index)
        if other == one and one in outbox.types[:index]:
            yield Wrong(at, f"source.outbox.types: {shown(one)} is here a second time", "name each type once")
        elif other != one:
            what = f"source.outbox.types: topics of {shown(other)} and {shown(one)} would collide in Kafka"
            yield Wrong(at, what, "leave one of them out: its events go to the topic of all others")


def _of_events(name: str, view: View, outbox: Outbox) -> Iterator[Wrong]:
    at: Path = ("views", name)
    if "events" in view.model_fields_set and not view.events:
        what = f"views.{name}.events: an empty list shows no event"
        yield Wrong((*at, "events"), what, "name types, or leave `events` out for all of them")
    for index, one in enumerate(view.events):
        if one not in outbox.types:
            what = f"views.{name}.events: {shown(one)} is not in source.outbox.types"
            fix = near(one, outbox.types, "add it there, and it has a topic of its own")
            yield Wrong((*at, "events", index), what, fix)
        elif one in view.events[:index]:
            yield Wrong((*at, "events", index), f"views.{name}.events: {shown(one)} is here a second time")
    for join in view.joins:
        what = f"views.{name}.{join}: events are not joined with rows, which change while events do not"
        yield Wrong((*at, join), what, _ALONE)


def _joined(part: View | Nested, path: Path, outbox: Outbox) -> Iterator[Wrong]:
    for join in JOINS:
        for name, item in getattr(part, join).items():
            at: Path = (*path, join, name)
            if is_root(outbox, item.table):
                where = ".".join(map(str, at))
                what = f"{where}.table: the rows of {shown(item.table)} are events, which are not joined"
                yield Wrong((*at, "table"), what, _ALONE)
            if isinstance(item, Nested):
                yield from _joined(item, at, outbox)


def _histories(pipeline: Pipeline, outbox: Outbox) -> Iterator[Wrong]:
    for name, sink in pipeline.sinks.items():
        if not isinstance(sink, IcebergSink) or not sink.history:
            continue
        if pipeline.event_types(name):
            what = f"sinks.{name}.history: events of {outbox.table} have no history, each is one already"
            yield Wrong(("sinks", name, "history"), what, "keep them in an iceberg sink of their own without history")
