"""Generations that can't follow a changed table: what they go on with, why what reads it is stopped, what helps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cdc.pipeline import Pipeline
from cdc.resolve.views import topics_of
from cdc.wording import split, worded
from operations.schema.case import Case
from operations.schema.decide import Verdict
from operations.state.evolution import Todo
from operations.state.folder import register_of
from operations.state.frozen import freeze, read_frozen
from spark.disk.state import Generation

if TYPE_CHECKING:
    from operations.opened import Opened

# What helps flows that a table with another key has stopped, until that was done.
READ_ANEW = "reads the table again; the next generation is then built by itself"
# Said of what a refused view has stopped, once the table was altered so that the view can be made again.
AGAIN = "it can be followed again, by another generation"
BUILT = "a new generation is built (`evolving` in status)"


def freeze_as_decided(pipeline: Pipeline, found: Sequence[tuple[Generation, Case]]) -> set[tuple[str, int]]:
    """Let generations whose target can't hold what comes go on with the table as it was, or without it.

    Args:
        pipeline: the loaded file.
        found: each view that reads a changed table, of each generation.

    Returns:
        (sink, generation) of those that an earlier change had stopped, where nothing is refused any more.
    """
    again, file = set[tuple[str, int]](), pipeline.file or "FILE"
    for generation, case in found:
        was = case.was
        mine = [one for other, one in found if other.folder == generation.folder]
        named = sorted({one.view for one in mine if one.decision.stops} | {case.view})  # one text for the generation
        why = f"{views_named(named)} can't follow a change of table {was.qualified}: {'; '.join(case.decision.why)}"
        if case.decision.verdict is Verdict.REFUSE:
            fix = f"correct the view in {file}, then `headwater rebuild {file} {case.sink} --auto` makes it anew"
            freeze(generation, was, worded(why, fix=fix))
        elif case.decision.stops:
            fix = f"`headwater apply {file} --wait` {READ_ANEW}"
            freeze(generation, was, worded(why, fix=fix))
        elif case.decision.verdict is Verdict.NEW_GENERATION:
            freeze(generation, was)
        # Who has another key than the one that it was stopped with is refused for that, whatever came last.
        stands = any(one.decision.stops or one.whole.stops for one in mine)
        if not stands and was.qualified in read_frozen(generation).refused:
            fix = f"`headwater rebuild {file} {case.sink} --auto` makes it anew"
            freeze(generation, was, worded(f"a change of table {was.qualified} has stopped it; {AGAIN}", fix=fix))
            again.add((case.sink, case.generation))
    return again


def still_to_do(why: str, todo: Todo | None, *, mended: bool, former: bool = False) -> str:
    """Why flows are stopped, with what is to be done about it now: nobody is asked for what is under way. Pure.

    Args:
        why: as it was frozen.
        todo: what is under way for the table in their sink.
        mended: changes of the table were missing in its topic, and are no more.
        former: their generation was replaced: nobody reads it, and it needs nothing.
    """
    what = split(why)[0]
    if former:
        return f"{what}; readers see another generation"
    if todo is None or not todo.rebuild:
        return why
    if AGAIN in why:
        return worded(what, fix=f"nothing; {BUILT}")
    if mended and READ_ANEW in why:
        return worded(what, fix=f"nothing, its table was read again: {BUILT}")
    return why


def with_standing(build: Opened, said: Mapping[str, str]) -> dict[str, str]:
    """Why flows are stopped, with every view that stands with them: plain views of a sink share one flow, so there are
    some of other tables among them. Pure.

    Args:
        build: the generation, opened.
        said: topic -> why what reads it is stopped.
    """
    flows: dict[str, tuple[list[str], set[str]]] = {}
    for view in build.views:
        names, topics = flows.setdefault(build.flow_folder(view).name, ([], set()))
        names.append(view.name)
        topics.update(topics_of(build.pipeline, view))
    found = {}
    for topic, why in said.items():
        names = sorted(name for views, topics in flows.values() if topic in topics for name in views)
        first, *rest = why.splitlines()
        stands = [f"what stands: {views_named(names)}"] if names else []
        found[topic] = "\n".join(["; ".join([first, *stands]), *rest])
    return found


def stands_with(case: Case, found: Iterable[Case]) -> list[str]:
    """The refused views with which a view stands: the flows of their generation that read the table stop, also where
    the view itself could follow, or shows nothing of what has changed. Pure.

    Args:
        case: the view.
        found: what a change of the same table means for all views.

    Returns:
        sorted; none if the view itself is refused.
    """
    if case.decision.verdict is Verdict.REFUSE:
        return []
    of = (case.sink, case.generation)
    return sorted(
        one.view for one in found if (one.sink, one.generation) == of and one.decision.verdict is Verdict.REFUSE
    )


def views_named(names: Sequence[str]) -> str:
    """Views in words. Pure."""
    return f"view{'s' * (len(names) > 1)} {', '.join(names)}"


def is_former(pipeline: Pipeline, generation: Generation) -> bool:
    """Whether readers have seen a generation, and see another one now.

    Args:
        pipeline: the loaded file.
        generation: one that is kept up to date, or filled.
    """
    previous = register_of(pipeline, generation.sink).previous()
    return any(entry.number == generation.number for entry in previous)
