"""Which views are compared, and in which generations. Pure but for what is kept of generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cdc.errors import HeadwaterError, UnknownName
from cdc.pipeline import Pipeline
from cdc.resolve.names import near
from cdc.view import View
from operations.opened import Opened
from spark.disk.made_of import as_defined
from spark.disk.register import Register


def view_names(pipeline: Pipeline, register: Register, number: int | None) -> Sequence[str]:
    """The names of the views of a generation that can't be opened; none if they are not known.

    Args:
        pipeline: the loaded file.
        register: of the sink.
        number: of the generation; None for the living one.
    """
    try:
        generation = register.generation(number)
        return as_defined(pipeline, generation).sinks[register.sink].view_names or generation.views()
    except HeadwaterError:
        return pipeline.sinks[register.sink].view_names


def holding_any(
    builds: Mapping[str, Opened], views: Sequence[str], failed: Mapping[str, Collection[str]]
) -> tuple[dict[str, Opened], set[str]]:
    """The generations that hold one of these views at least.

    Args:
        builds: sink -> its generation.
        views: names.
        failed: sinks that could not be opened, and the names of their views; none where these are not known.

    Returns:
        the generations, and those of the failed sinks that may hold one.

    Raises:
        UnknownName: no sink has a view of that name.
    """
    there = list(dict.fromkeys(view.name for build in builds.values() for view in build.views))
    maybe = {sink for sink, names in failed.items() if not names or set(views) & set(names)}
    for name in views:
        if name not in there and not any(not failed[sink] or name in failed[sink] for sink in maybe):
            choice = f"choose from {', '.join(there)}" if there else ""
            raise UnknownName(f"no sink that is compared has a view {name}", fix=near(name, there) or choice)
    kept = {sink: build for sink, build in builds.items() if any(view.name in views for view in build.views)}
    return kept, maybe


def holders(builds: Mapping[str, Opened], called: str) -> list[tuple[View, list[Opened]]]:
    """Each different view of a name, with the generations that hold it; `tables: all` may call one as the file does.

    Args:
        builds: sink -> its generation.
        called: the name.
    """
    found: list[tuple[View, list[Opened]]] = []
    for build in builds.values():
        for view in (view for view in build.views if view.name == called):
            known = next((holding for same, holding in found if same == view), None)
            if known is None:
                found.append((view, [build]))
            else:
                known.append(build)
    return found
