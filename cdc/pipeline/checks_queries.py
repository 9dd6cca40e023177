"""Whether ``queries`` fits the sinks of the file."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, near, shown
from cdc.pipeline.queries import Queries
from cdc.pipeline.search import SearchSink
from cdc.pipeline.sinks import RedisSink


def check_queries(pipeline: Pipeline) -> Iterator[Wrong]:
    """What does not fit: a view that there is not, a sink of another kind, one that lacks the view or its changes."""
    for view, part in pipeline.queries.items():
        at: Path = ("queries", view)
        tabled = any(sink.tables is not None for sink in pipeline.sinks.values())
        if view not in pipeline.views and not tabled:
            fix = near(view, pipeline.views) or f"views here: {', '.join(pipeline.views) or 'none'}"
            yield Wrong(at, f"queries: there is no view {shown(view)}", fix)
            continue
        yield from _sink(pipeline, view, part, "search")
        yield from _sink(pipeline, view, part, "changes")


def _sink(pipeline: Pipeline, view: str, part: Queries, key: str) -> Iterator[Wrong]:
    name, at = getattr(part, key), ("queries", view, key)
    where = f"queries.{view}.{key}"
    wanted = _fitting(pipeline, key)
    sink = pipeline.sinks.get(name)
    if sink is None:
        yield Wrong(at, f"{where}: there is no sink {shown(name)}", near(name, pipeline.sinks) or _choose(wanted))
    elif key == "search" and not isinstance(sink, SearchSink):
        yield Wrong(at, f"{where}: sinks.{name} is no search server, which alone can judge a query", _choose(wanted))
    elif key == "changes" and not isinstance(sink, RedisSink):
        yield Wrong(at, f"{where}: sinks.{name} is no redis sink, which alone keeps changes", _choose(wanted))
    elif isinstance(sink, RedisSink) and sink.changes is None:
        yield Wrong(at, f"{where}: sinks.{name} keeps no changes", "give it `changes: {}`")
    elif sink.view_names and view not in sink.view_names:
        yield Wrong(at, f"{where}: sinks.{name} has no view {shown(view)}", "add it there")


def _fitting(pipeline: Pipeline, key: str) -> list[str]:
    kind = SearchSink if key == "search" else RedisSink
    return [name for name, sink in pipeline.sinks.items() if isinstance(sink, kind)]


def _choose(names: list[str]) -> str:
    return f"choose from {', '.join(names)}" if names else "add such a sink"
