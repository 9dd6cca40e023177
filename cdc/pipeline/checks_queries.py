"""Whether ``queries`` fits the sinks of the file."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, near, shown
from cdc.pipeline.queries import MatchPush, Queries
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
        yield from _saved(pipeline, view, part)
        for name, one in part.push.items():
            yield from _push(pipeline, (*at, "push", name), one)
    yield from _names(pipeline)


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


def _saved(pipeline: Pipeline, view: str, part: Queries) -> Iterator[Wrong]:
    """Whether documents of another view of the same sink can be its queries."""
    sink = pipeline.sinks.get(part.changes)
    if part.saved is None or not isinstance(sink, RedisSink):
        return
    at, where, name = ("queries", view, "saved", "view"), f"queries.{view}.saved.view", part.saved.view
    if name == view:
        yield Wrong(at, f"{where}: that is the view on which they stand", "give the queries a view of their own")
    elif sink.tables is None and name not in sink.view_names:
        fix = near(name, sink.view_names, "add it there")
        yield Wrong(at, f"{where}: sinks.{part.changes} has no view {shown(name)}", fix)


def _push(pipeline: Pipeline, at: Path, one: MatchPush) -> Iterator[Wrong]:
    """An address with what it is signed with, or a topic that is nobody else's."""
    where = ".".join(map(str, at))
    if (one.topic is None) == (one.url is None):
        yield Wrong(at, f"{where}: either `url` or `topic`", "leave one of both out, and give the other one")
    elif one.url is not None and one.secret is None:
        fix = "`openssl rand -base64 32` makes one"
        yield Wrong(at, f"{where}: missing key 'secret', which what is sent to `url` is signed with", fix)
    elif one.topic is not None and one.secret is not None:
        yield Wrong((*at, "secret"), f"{where}.secret: records of a topic are not signed", "take it out")
    elif one.topic is not None and _ours(pipeline, one.topic):
        fix = "choose a name that does not begin as the pipeline's topics do"
        yield Wrong((*at, "topic"), f"{where}.topic: {shown(one.topic)} may be a topic of the pipeline itself", fix)


def _ours(pipeline: Pipeline, topic: str) -> bool:
    """Whether a topic is the pipeline's, or may become it: with an outbox every type of event may get its own."""
    events = pipeline.events_topic
    if pipeline.source.outbox is not None and (topic == events or topic.startswith((f"{events}.", f"{events}_"))):
        return True  # Kafka calls a topic a.b and a topic a_b one
    return topic.startswith((pipeline.topic(""), pipeline.signal_topic, pipeline.notification_topic, "__"))


def _names(pipeline: Pipeline) -> Iterator[Wrong]:
    """All that is sent anything has one name space: in `status`, in metrics and in Redis."""
    known = {name: f"push.{name}" for name in pipeline.push}
    for view, part in pipeline.queries.items():
        for name in part.push:
            where = f"queries.{view}.push.{name}"
            if name in known:
                at: Path = ("queries", view, "push", name)
                yield Wrong(at, f"{where}: {known[name]} has this name too", "give each a name of its own")
            known.setdefault(name, where)


def _fitting(pipeline: Pipeline, key: str) -> list[str]:
    kind = SearchSink if key == "search" else RedisSink
    return [name for name, sink in pipeline.sinks.items() if isinstance(sink, kind)]


def _choose(names: list[str]) -> str:
    return f"choose from {', '.join(names)}" if names else "add such a sink"
