"""The next generation of a sink whose view was changed, and what was begun for a file that is none any more: what `run`
has done in a process of its own."""

from __future__ import annotations

from pathlib import Path

from cdc.pipeline import Pipeline, loads
from cdc.saying import Say
from operations.opened import kept_tables
from operations.state.accepted import Text
from operations.state.folder import register_of
from spark.disk.made_of import outdated
from spark.disk.state import Generation


def build(say: Say, taken: Text, sink: str, master: str | None) -> bool:
    """Build it as the file says that was applied; what was saved since does not count.

    Args:
        say: told what happens, a line each.
        taken: that file.
        sink: the sink's name.
        master: where Spark runs, if not where the file says.

    Returns:
        whether it equals Postgres, and readers see it.
    """
    from operations.rebuild.next_one import build_next
    from operations.run.machines import with_master

    pipeline = with_master(loads(taken.text, taken.file), master)
    return build_next(say, pipeline, Path(taken.file), sink, again=False)


def left_behind(pipeline: Pipeline, sink: str, *, idle: bool) -> list[int]:
    """Generations that `run` has begun by itself for an older file, and that no reader has seen. One that a person has
    asked for is that person's.

    Args:
        pipeline: the loaded file.
        sink: the sink's name; the file asks for no next generation of it.
        idle: nobody builds one of it for another reason: what has not begun to write goes as well.
    """
    register = register_of(pipeline, sink)
    own = [one for one in register.entries() if one.own]
    cut = {one.number for one in own if one.stage == "retiring"}  # in the middle of its removal
    begun = [register.generation(one.number) for one in own if one.unseen]
    gone = {it.number for it in begun if outdated(pipeline, it) or (idle and not it.started)}
    gone |= {it.number for it in begun if it.started and _narrower(pipeline, it, register.generation())}
    return sorted(cut | gone)


def _narrower(pipeline: Pipeline, generation: Generation, living: Generation) -> bool:
    """Whether one of a sink of all tables was begun for a file that named some: the living one keeps others."""
    if pipeline.sinks[generation.sink].tables != "all" or not living.started:
        return False
    return not {*kept_tables(pipeline, living)} <= {*kept_tables(pipeline, generation)}


def remove_left(say: Say, taken: Text, sink: str, master: str | None) -> None:
    """Remove what ``left_behind`` names: it would be kept up to date for good, and a promotion would show what that
    file said. Arguments as ``build``.

    Raises:
        HeadwaterError: as ``retire``.
    """
    from operations.generations.retire import retire
    from operations.run.machines import with_master

    pipeline = with_master(loads(taken.text, taken.file), master)
    for number in left_behind(pipeline, sink, idle=True):
        retire(pipeline, sink, number, say)
