"""What the engine left behind for a sink: its targets and its checkpoints; removed by ``drop`` and ``retire``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cdc.errors import StateError
from cdc.pipeline import Pipeline, SearchSink
from operations.rowstore import row_store_settings
from operations.state.accepted import living_run, runs_without
from operations.state.alarms import forget_alarm
from operations.state.folder import chosen_sinks, register_of, state_dir
from operations.state.history import HISTORY, history_folder
from operations.state.pausing import rests
from operations.state.verified import forget_verified
from sinks.configure import plain_config
from sinks.elasticsearch.standing.queries import drop_queries
from sinks.factory import open_target
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark.disk.lease import STOP_IT
from spark.disk.made_of import as_defined
from spark.disk.state import Generation


def sink_state(pipeline: Pipeline, only: Sequence[str] = ()) -> list[str]:
    """One line for each sink that has run here: its target and its state folder."""
    lines = []
    for name in chosen_sinks(pipeline, only):
        if only or _left(state_dir(pipeline) / pipeline.name / name):
            entries = register_of(pipeline, name).entries()
            all_of = f", of {len(entries)} generations" if len(entries) > 1 else ""
            stays = "; its history stays" if history_folder(pipeline, name).exists() else ""
            lines.append(f"{name}: {pipeline.sinks[name].kept}, and its checkpoints{all_of}{stays}")
    return lines


def _left(folder: Path) -> list[Path]:
    """What a sink's folder holds besides its history, which nothing of ours removes."""
    return [path for path in folder.glob("*") if path.name != HISTORY]


def views_of_file(pipeline: Pipeline, name: str) -> list[str]:
    """View names as far as the file alone tells them; a whole schema's tables are only in the state folder."""
    sink = pipeline.sinks[name]
    if sink.view or sink.views:
        return [sink.view] if sink.view else list(sink.views)
    tables = pipeline.source.tables if sink.tables == "all" or sink.tables is None else sink.tables
    names = [table.rsplit(".", 1)[-1] for table in tables if not table.endswith("*")]
    return [name for name in names if sink.can_name(name)]  # of others there is nothing


def drop_sink_state(pipeline: Pipeline, only: Sequence[str] = ()) -> None:
    """Remove targets and state of all generations; nothing happens for what is not there.

    The target goes first: with its state gone a sink would fill from offset 0, which must find an empty target.

    Raises:
        StateError: a process is running a sink, or would do so at once (nothing was removed then).
        SinkUnavailable, SinkRefused: the target's server does not answer or refuses.
    """
    _refuse_resumed(pipeline, only)
    for name in chosen_sinks(pipeline, only):
        folder = state_dir(pipeline) / pipeline.name / name
        if not only and not _left(folder):
            continue
        register = register_of(pipeline, name)
        # The newest first: what is interrupted then still knows the generation that readers see.
        for entry in reversed(register.entries()):
            generation = register.generation(entry.number)
            generation.lock(STOP_IT)
            try:
                drop_generation(as_defined(pipeline, generation), name, generation)
            finally:
                generation.unlock()
        if isinstance(pipeline.sinks[name], SearchSink) and (views := views_of_file(pipeline, name)):
            drop_queries(plain_config(pipeline, name, 1, views))
        forget_verified(pipeline, name)
        forget_alarm(pipeline, name)
        for path in _left(folder):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not history_folder(pipeline, name).exists():
            folder.rmdir()


def _refuse_resumed(pipeline: Pipeline, only: Sequence[str]) -> None:
    """Refuse paused sinks that a `run` would take up as soon as the note of their pause is gone with all the rest: it
    would fill anew what was to be removed, perhaps while that is still being removed.

    Raises:
        StateError: there is one (terminal).
    """
    running = living_run(pipeline)
    if running is None:
        return
    back = [name for name in chosen_sinks(pipeline, only) if rests(pipeline, name) and not runs_without(pipeline, name)]
    if back:
        file, names = pipeline.file or "FILE", ", ".join(back)
        raise StateError(
            f"sink {names} is paused, and `headwater run` (process {running.pid}) has it in its file",
            means="it would be filled anew at once, for its pause would be gone as well; nothing was removed",
            fix=f"take it out of the file, `headwater apply {file}`, then this again with the old file; or end that "
            "`run` before",
        )


def drop_generation(pipeline: Pipeline, name: str, generation: Generation) -> None:
    """Remove what a generation wrote: its target and its rows in the row store.

    Args:
        pipeline: as the generation was defined.
        name: the sink's name.
        generation: of the sink.

    Raises:
        SinkUnavailable, SinkRefused: the target's server does not answer or refuses.
    """
    noted = filter(pipeline.sinks[name].can_name, generation.views())
    views = sorted({*noted, *views_of_file(pipeline, name)})
    if views:
        opened = open_target(plain_config(pipeline, name, generation.number, views))
        try:
            for view in views:
                opened.drop(view)
        finally:
            opened.close()
    if pipeline.row_store is not None:
        _drop_rows(pipeline, generation, views)


def _drop_rows(pipeline: Pipeline, generation: Generation, views: Sequence[str]) -> None:
    """Empty the row stores of joined views, in one pass; nothing happens for the others, which have none."""
    settings = [StoreSettings(**row_store_settings(pipeline, generation, view)) for view in views]
    if settings:
        store = RedisRowStore(settings[0])
        try:
            store.drop(*(one.namespace for one in settings[1:]))
        finally:
            store.close()
