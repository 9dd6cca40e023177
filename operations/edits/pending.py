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
from operations.state.accepted import Running, living_runs, read_accepted, read_runs, sinks_of
from operations.state.evolution import read_evolution
from operations.state.folder import register_of


def pending(pipeline: Pipeline) -> Changes | None:
    """What the `run` that is alive would do if this file was applied; None if there is none alive.

    Args:
        pipeline: the loaded file.
    """
    runs = living_runs(pipeline)
    return _changes(runs[0], pipeline, runs[1:]) if runs else None


def let_go(pipeline: Pipeline) -> Sequence[str]:
    """Sinks that a `run` would let go of if this file was applied; also one on another machine that may be alive, and
    one whose note nobody can read, as another was started after it, if it has the sink now.

    Args:
        pipeline: the loaded file.
    """
    runs = read_runs(pipeline)
    seen = [running.alive(pipeline) for running in runs]
    # Of those that nobody sees from here only the newest: others have noted something after they had.
    alive = [one for at, one in enumerate(runs) if seen[at] or (at == 0 and seen[at] is None)]
    gone = [name for name in _sinks_before(pipeline, [*runs[:1], *alive]) if name not in pipeline.sinks]
    own, mine = set[str](), list[str]()  # sinks of those whose notes there are: these ask about them by their own words
    for running in alive:
        changes, its = _changes(running, pipeline), running.only or sinks_of(running.taken)
        own.update(its)
        if changes.unread is not None:  # their names can be read all the same
            mine += [one for one in gone if one in its]
        elif not changes.restart:
            mine += changes.removed
    more = [one for one in gone if one not in own and _runs(pipeline, one)]
    return tuple(dict.fromkeys([*mine, *more]))


def _sinks_before(pipeline: Pipeline, runs: Collection[Running]) -> Sequence[str]:
    """Sinks of the files that these went by, and of the one that was applied last: those without a note go by that."""
    names = [name for running in runs for name in sinks_of(running.taken)]
    with suppress(StateError):  # `apply` writes it anew
        names += sinks_of(applied) if (applied := read_accepted(pipeline)) is not None else []
    return list(dict.fromkeys(names))


def unheard(pipeline: Pipeline, actions: Collection[Action], *, begun: bool) -> str | None:
    """A warning where a `run` may be alive that is not told of this file, as its state folder is another; else None.

    Args:
        pipeline: the loaded file.
        actions: of ``apply``.
        begun: ``operations.state.folder.is_begun``, before it.
    """
    if begun or any(action.captures for action in actions):
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


def _changes(running: Running, pipeline: Pipeline, others: Sequence[Running] = ()) -> Changes:
    try:
        old = loads(running.taken.text, running.taken.file)
    except ConfigError as error:  # variables that are set for it and not here: it knows by itself what has changed
        return Changes(unread=error.what.replace("\n", "; "))
    found = changes_between(old, pipeline, running.only)
    beside = {}
    for sink in found.others:
        before = _before(sink, old, others, held=_runs(pipeline, sink))
        if before is not None and sink in before.sinks and sink in pipeline.sinks:
            beside[sink] = replace(changes_between(before, pipeline, [sink]), others=())
    return replace(found, beside=beside)


def _before(sink: str, old: Pipeline, others: Sequence[Running], *, held: bool) -> Pipeline | None:
    """What another process goes by that has a sink; None if there is none. One whose note can't be read here, or that
    an older Headwater has without a note, took up what was applied, as the newest one has (``old``)."""
    noted = next((one.taken for one in others if one.has(sink)), None)
    if noted is not None:
        with suppress(ConfigError):
            return loads(noted.text, noted.file)
    return old if noted is not None or held else None


def under_way(pipeline: Pipeline) -> tuple[set[str], set[str]]:
    """What the `run` that is alive does already: sinks whose next generation it builds as this file says, and tables
    whose capture it is about to make, or is making.

    Args:
        pipeline: the loaded file.
    """
    building, capturing = set[str](), set[str]()
    for running in living_runs(pipeline):
        with suppress(ConfigError):
            old = loads(running.taken.text, running.taken.file)
            same = {sink for sink, part in pipeline.sinks.items() if old.sinks.get(sink) == part}
            same = same if old.views == pipeline.views else set()
            todo = [one for sink in same for one in read_evolution(pipeline, sink).todo.items()]
            building |= same & {*running.building}
            capturing |= {table for table, one in todo if one.capture and not one.waits}
    return building, capturing


def told(found: Changes | None) -> dict[str, Any] | None:
    """The shape in ``--json``."""
    return None if found is None else found.to_dict()
