"""What the engine left behind for a sink: its targets and its checkpoints; removed by ``drop`` and ``retire``."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path

from cdc.errors import Fenced, StateError
from cdc.pipeline import Pipeline, SearchSink
from operations.rowstore import refuse_no_store, row_store_settings
from operations.state.accepted import living_runs
from operations.state.alarms import forget_alarm
from operations.state.folder import chosen_sinks, register_of, state_dir
from operations.state.history import HISTORY, history_folder
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

    Raises:
        StateError: a process is running a sink, or would do so at once (nothing was removed then).
        ConfigError: a generation joins tables, and the file has no ``row_store`` (nor then).
        SinkUnavailable, SinkRefused: a target's server does not answer or refuses; the same again goes on.
    """
    folder = state_dir(pipeline) / pipeline.name
    names = [name for name in chosen_sinks(pipeline, only) if only or _left(folder / name)]
    with ExitStack() as held:
        # All of them before anything is removed, and until nothing is left: nobody takes one whose target is gone.
        dropped: dict[str, list[Generation]] = {}
        for name in names:
            register = register_of(pipeline, name)
            dropped[name] = [register.generation(entry.number) for entry in register.entries()]
            for generation in dropped[name]:
                there = generation.folder.exists()
                generation.lock(STOP_IT)
                held.callback(_let_go, generation, there)
        _refuse_resumed(pipeline, names)
        for generation in chain.from_iterable(dropped.values()):
            refuse_no_store(as_defined(pipeline, generation), generation)
        for name, generations in dropped.items():
            _drop_sink(pipeline, name, generations)


def _let_go(generation: Generation, there: bool) -> None:
    """Unlock a generation; of one that was not there before nothing stays, for by a folder a sink has run here."""
    if there or not generation.folder.exists():
        generation.unlock()
    else:
        with suppress(Fenced):  # it is gone, and somebody has begun anew there since
            generation.discard()


def _drop_sink(pipeline: Pipeline, name: str, generations: Sequence[Generation]) -> None:
    """Remove a sink's targets and state; its generations are held.

    The targets go first: with its state gone a sink would fill from offset 0, which must find an empty target.
    """
    register = register_of(pipeline, name)
    # What is interrupted then still knows the generation that readers see, and keeps none up to date that is half gone.
    for generation in sorted(generations, key=lambda one: (register.stage(one.number) == "living", -one.number)):
        if register.stage(generation.number) not in ("living", "retiring"):
            register.move(generation.number, "retiring")
        drop_generation(as_defined(pipeline, generation), name, generation)
    # A generation that goes by a former file may have its own at another index.
    for made_of in _of_other_indices(name, pipeline, *(as_defined(pipeline, one) for one in generations)):
        drop_queries(plain_config(made_of, name, 1, views_of_file(made_of, name)))
    forget_verified(pipeline, name)
    forget_alarm(pipeline, name)
    # The register before the leases, so that nobody goes by it; before that the places in the log, which a generation
    # of the same number would go on from if this was killed in between.
    for generation in generations:
        generation.clear()
    held = {one.number for one in generations}
    if new := [entry.number for entry in register.entries() if entry.number not in held]:
        raise StateError(
            f"generation {new[0]} of sink {name} was begun meanwhile",
            means="the others are gone",
            fix="end what fills it; then the same again goes on",
        )
    folder, kept = state_dir(pipeline) / pipeline.name / name, {one.folder for one in generations}
    for path in _left(folder):
        if path not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for generation in generations:
        generation.discard()
    if not history_folder(pipeline, name).exists():
        with suppress(OSError):  # a `run` that was started just now fills it anew
            folder.rmdir()


def _of_other_indices(name: str, *pipelines: Pipeline) -> list[Pipeline]:
    """Of a file's forms those in which a search sink has views, each at other indices than the ones before it. Pure."""
    found: dict[tuple[str, ...], Pipeline] = {}
    for made_of in pipelines:
        part = made_of.sinks[name]
        if isinstance(part, SearchSink) and (views := views_of_file(made_of, name)):
            found.setdefault(tuple(part.index_of(view) for view in views), made_of)
    return list(found.values())


def _refuse_resumed(pipeline: Pipeline, sinks: Collection[str]) -> None:
    """Refuse sinks that a `run` has in its file and does not hold: paused ones, and those that it could not open and
    tries again. It would fill anew what was to be removed.

    Raises:
        StateError: there is one (terminal).
    """
    for running in living_runs(pipeline):
        if back := [name for name in sinks if running.has(name)]:
            file, names = pipeline.file or "FILE", ", ".join(back)
            raise StateError(
                f"`headwater run` (process {running.pid}) has sink {names} in its file, and does not run it just now",
                means="it would be filled anew at once, for a pause, or what it is refused for, would be gone as well; "
                "nothing was removed",
                fix=f"take it out of the file, `headwater apply {file}`, then this again with the old file; or end "
                "that `run` before",
            )


def drop_generation(pipeline: Pipeline, name: str, generation: Generation) -> None:
    """Remove what a generation wrote: its target and its rows in the row store.

    Args:
        pipeline: as the generation was defined.
        name: the sink's name.
        generation: of the sink.

    Raises:
        ConfigError: it joins tables, and the file has no ``row_store``: nobody would know of its rows any more.
        SinkUnavailable, SinkRefused: the target's server does not answer or refuses.
    """
    refuse_no_store(pipeline, generation)
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


def drop_left_queries(pipeline: Pipeline, name: str, generation: Generation) -> list[str]:
    """Remove the standing queries that a generation has at a place of its own: those that stand were taken along when
    readers were led away. Nothing happens where another generation of the sink is at that place.

    Args:
        pipeline: the loaded file.
        name: the sink's name.
        generation: one that readers do not see, of the sink.

    Returns:
        the indices that were removed.

    Raises:
        SinkUnavailable: the server does not answer (transient). SinkRefused: it refuses.
    """
    register, defined = register_of(pipeline, name), as_defined(pipeline, generation)
    part = defined.sinks[name]
    if not isinstance(part, SearchSink):
        return []
    numbers = [entry.number for entry in register.entries() if entry.number != generation.number]
    others = [as_defined(pipeline, register.generation(number)).sinks[name] for number in numbers]
    taken = {one.index_of(view) for one in others if isinstance(one, SearchSink) for view in generation.views()}
    left = [view for view in generation.views() if part.index_of(view) not in taken]
    return drop_queries(plain_config(defined, name, generation.number, left)) if left else []


def _drop_rows(pipeline: Pipeline, generation: Generation, views: Sequence[str]) -> None:
    """Empty the row stores of joined views, in one pass; nothing happens for the others, which have none."""
    settings = [StoreSettings(**row_store_settings(pipeline, generation, view)) for view in views]
    if settings:
        store = RedisRowStore(settings[0])
        try:
            store.drop(*(one.namespace for one in settings[1:]))
        finally:
            store.close()
