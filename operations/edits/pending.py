"""What will become of a file in the `run` that is alive, before it is applied."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from cdc.errors import ConfigError
from cdc.pipeline import Pipeline, loads
from connectors.actions import Action
from operations.edits.changes import Changes, changes_between
from operations.state.accepted import Running, living_run, read_running, sinks_of
from operations.state.evolution import read_evolution
from operations.state.folder import register_of


def pending(pipeline: Pipeline) -> Changes | None:
    """What the `run` that is alive would do if this file was applied; None if there is none alive.

    Args:
        pipeline: the loaded file.
    """
    running = living_run(pipeline)
    return None if running is None else _changes(running, pipeline)


def let_go(pipeline: Pipeline) -> Sequence[str]:
    """Sinks that a `run` would let go of if this file was applied; also one on another machine that may be alive, and
    one beside the newest whose note nobody can read, if it has the sink now.

    Args:
        pipeline: the loaded file.
    """
    running = read_running(pipeline)
    if running is None or running.alive(pipeline) is False:
        return ()
    changes, only = _changes(running, pipeline), running.only
    gone = [name for name in sinks_of(running.taken) if name not in pipeline.sinks]
    mine = () if changes.restart else changes.removed
    if changes.unread is not None:  # their names can be read all the same
        mine = [one for one in gone if not only or one in only]
    return (*mine, *(one for one in gone if only and one not in only and _runs(pipeline, one)))


def unheard(pipeline: Pipeline, actions: Collection[Action], *, begun: bool) -> str | None:
    """A warning where a `run` may be alive that is not told of this file, as its state folder is another; else None.

    Args:
        pipeline: the loaded file.
        actions: of ``apply``.
        begun: whether there was anything in the state folder before it (``operations.state.folder.is_begun``).
    """
    if begun or any(action.kind == "connector" and action.before is None for action in actions):
        return None
    folder = Path(pipeline.engine.state_dir).absolute()
    return (
        f"warning: pipeline {pipeline.name} is captured already, and there is nothing of it in engine.state_dir "
        f"({folder}): a `run` whose state is elsewhere is not told of this file, and one that is started with this "
        "folder knows no sink's place. If the key was changed, stop `run` and move the folder there, or put it back"
    )


def _runs(pipeline: Pipeline, sink: str) -> bool:
    """Whether somebody has a sink now that the file may lack."""
    register = register_of(pipeline, sink)
    return any(register.generation(number).lease.held_by_other() for number in register.kept())


def _changes(running: Running, pipeline: Pipeline) -> Changes:
    try:
        old = loads(running.taken.text, running.taken.file)
    except ConfigError as error:  # variables that are set for it and not here: it knows by itself what has changed
        return Changes(unread=error.what.replace("\n", "; "))
    return changes_between(old, pipeline, running.only)


def under_way(pipeline: Pipeline) -> tuple[set[str], set[str]]:
    """What the `run` that is alive does already: sinks whose next generation it builds as this file says, and tables
    whose capture it is about to make, or is making.

    Args:
        pipeline: the loaded file.
    """
    running = living_run(pipeline)
    if running is None:
        return set(), set()
    try:
        old = loads(running.taken.text, running.taken.file)
    except ConfigError:
        return set(), set()
    same = {
        name for name, sink in pipeline.sinks.items() if old.sinks.get(name) == sink and old.views == pipeline.views
    }
    todo = [one for sink in same for one in read_evolution(pipeline, sink).todo.items()]
    return same & set(running.building), {table for table, one in todo if one.capture and not one.waits}


def told(found: Changes | None) -> dict[str, Any] | None:
    """The shape in ``--json``."""
    return None if found is None else found.to_dict()
