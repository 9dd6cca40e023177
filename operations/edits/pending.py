"""What will become of a file in the `run` that is alive, before it is applied."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdc.errors import ConfigError, StateError
from cdc.pipeline import Pipeline, loads
from connectors.actions import Action
from operations.edits.changes import Changes, changes_between
from operations.state.accepted import Running, living_run, read_accepted, read_running, sinks_of
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
    one whose note nobody can read, as another was started after it, if it has the sink now.

    Args:
        pipeline: the loaded file.
    """
    running = read_running(pipeline)
    alive = running is not None and running.alive(pipeline) is not False
    gone = [name for name in _sinks_before(pipeline, running) if name not in pipeline.sinks]
    own: Collection[str] = ()  # sinks of the one whose note there is, as it would be asked about by its own words
    mine: Sequence[str] = ()
    if running is not None and alive:
        changes = _changes(running, pipeline)
        own = running.only or sinks_of(running.taken)
        mine = () if changes.restart else changes.removed
        if changes.unread is not None:  # their names can be read all the same
            mine = [one for one in gone if one in own]
    return (*mine, *(one for one in gone if one not in own and _runs(pipeline, one)))


def _sinks_before(pipeline: Pipeline, running: Running | None) -> Sequence[str]:
    """Sinks of the file that the newest `run` went by, and of the one that was applied last: older ones go by that."""
    names = [] if running is None else sinks_of(running.taken)
    with suppress(StateError):  # `apply` writes it anew
        names += sinks_of(applied) if (applied := read_accepted(pipeline)) is not None else []
    return list(dict.fromkeys(names))


def captures(action: Action) -> bool:
    """Whether an action of ``apply`` makes the connector: no other state folder has the pipeline."""
    return action.kind == "connector" and action.before is None


def unheard(pipeline: Pipeline, actions: Collection[Action], *, begun: bool) -> str | None:
    """A warning where a `run` may be alive that is not told of this file, as its state folder is another; else None.

    Args:
        pipeline: the loaded file.
        actions: of ``apply``.
        begun: ``operations.state.folder.is_begun``, before it.
    """
    if begun or any(captures(action) for action in actions):
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
    found = changes_between(old, pipeline, running.only)
    # What another process goes by has no note. It took up what was applied, as this one has.
    held = [sink for sink in found.others if sink in old.sinks and sink in pipeline.sinks and _runs(pipeline, sink)]
    return replace(found, beside={sink: replace(changes_between(old, pipeline, [sink]), others=()) for sink in held})


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
