"""What the engine left behind for a sink: its target and its checkpoints; listed and removed by ``headwater drop``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from cdc.pipeline import ElasticsearchSink, IcebergSink, Pipeline, RedisSink
from sinks import iceberg
from sinks.configure import sink_config
from sinks.factory import open_sink
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.state import Generation


def sink_state(pipeline: Pipeline, only: Sequence[str] = ()) -> list[str]:
    """One line for each sink that has run here: its target and its state folder."""
    from console.engine import chosen_sinks, state_dir

    lines = []
    for name in chosen_sinks(pipeline, only):
        if only or (state_dir(pipeline) / pipeline.name / name).exists():
            lines.append(f"{name}: {_target(pipeline, name)}, and its checkpoints")
    return lines


def _views_of_file(pipeline: Pipeline, name: str) -> list[str]:
    """View names as far as the file alone tells them; a whole schema's tables are only in the state folder."""
    sink = pipeline.sinks[name]
    if sink.view or sink.views:
        return [sink.view] if sink.view else list(sink.views)
    tables = pipeline.source.tables if sink.tables == "all" or sink.tables is None else sink.tables
    return [table.rsplit(".", 1)[-1] for table in tables if not table.endswith("*")]


def _target(pipeline: Pipeline, name: str) -> str:
    sink = pipeline.sinks[name]
    if isinstance(sink, ElasticsearchSink):
        return "its Elasticsearch indices"
    if isinstance(sink, RedisSink):
        return "its Redis keys"
    return f"its Iceberg tables in namespace {sink.namespace}"


def drop_sink_state(pipeline: Pipeline, only: Sequence[str] = ()) -> None:
    """Remove targets and state; nothing happens for what is not there.

    The target goes first: with its state gone a sink would fill from offset 0, which must find an empty target.

    Raises:
        StateError: a process is running the sink.
        SinkUnavailable, SinkRefused: the target's server does not answer or refuses.
    """
    from console.engine import chosen_sinks, state_dir

    for name in chosen_sinks(pipeline, only):
        folder = state_dir(pipeline) / pipeline.name / name
        if not only and not folder.exists():
            continue
        generation = Generation(state_dir(pipeline), pipeline.name, name)
        generation.lock()
        try:
            views = sorted({*generation.views(), *_views_of_file(pipeline, name)})
            _drop_target(pipeline, name, views)
            if pipeline.row_store is not None:
                _drop_rows(pipeline, generation, views)
        finally:
            generation.unlock()
        shutil.rmtree(folder)


def _drop_target(pipeline: Pipeline, name: str, views: Sequence[str]) -> None:
    sink = pipeline.sinks[name]
    if isinstance(sink, IcebergSink):
        for table in views:
            iceberg.drop_table(sink, f"hw_{name}", table)
        return
    if not views:
        return
    config = sink_config(name, sink, [], {})
    config["targets"] = {view: _plain_target(sink, view) for view in views}
    opened = open_sink(config)
    try:
        for view in views:
            opened.drop(view)
    finally:
        opened.close()


def _drop_rows(pipeline: Pipeline, generation: Generation, views: Sequence[str]) -> None:
    """Empty the row stores of joined views; nothing happens for the others, which have none."""
    from console.engine import row_store_settings

    for view in views:
        store = RedisRowStore(StoreSettings(**row_store_settings(pipeline, generation, view)))
        try:
            store.drop()
        finally:
            store.close()


def _plain_target(sink: ElasticsearchSink | RedisSink, view: str) -> dict[str, object]:
    if isinstance(sink, RedisSink):
        return {}
    return {"index": sink.index or view.lower(), "generation": 1, "properties": {}}
