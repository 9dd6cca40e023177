"""Whether the webhooks of the file have something to send."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, near, shown
from cdc.pipeline.sinks import RedisSink


def check_push(pipeline: Pipeline) -> Iterator[Wrong]:
    """Each names a view that one sink keeps the changes of."""
    keeping = {
        name: sink for name, sink in pipeline.sinks.items() if isinstance(sink, RedisSink) and sink.changes is not None
    }
    for name, hook in pipeline.push.items():
        path: Path = ("push", name)
        where = f"push.{name}"
        if hook.sink is not None and hook.sink not in pipeline.sinks:
            fix = near(hook.sink, pipeline.sinks) or f"sinks here: {', '.join(pipeline.sinks)}"
            yield Wrong((*path, "sink"), f"{where}: there is no sink {shown(hook.sink)}", fix)
            continue
        named = [hook.sink] if hook.sink is not None else list(keeping)
        if hook.sink is not None and hook.sink not in keeping:
            what = f"{where}: sinks.{hook.sink} keeps no changes"
            yield Wrong((*path, "sink"), what, "give it `changes: {}`; only a redis sink can keep them")
            continue
        if not named:
            yield Wrong(path, f"{where}: no sink keeps changes", "give a redis sink `changes: {}`")
            continue
        having = [one for one in named if keeping[one].tables is not None or hook.view in keeping[one].view_names]
        if not having:
            known = [view for one in named for view in keeping[one].view_names]
            fix = near(hook.view, known) or f"views there: {', '.join(known)}"
            yield Wrong((*path, "view"), f"{where}: sinks.{', sinks.'.join(named)} has no view {shown(hook.view)}", fix)
        elif len(having) > 1:
            what = f"{where}: several sinks keep changes of {shown(hook.view)}"
            yield Wrong((*path, "view"), what, f"say which: sink: {having[0]}")


def sink_of(pipeline: Pipeline, name: str) -> str:
    """The sink whose changes a webhook of a checked file sends."""
    hook = pipeline.push[name]
    if hook.sink is not None:
        return hook.sink
    keeping = [
        sink
        for sink, part in pipeline.sinks.items()
        if isinstance(part, RedisSink)
        and part.changes is not None
        and (part.tables is not None or hook.view in part.view_names)
    ]
    return keeping[0]
