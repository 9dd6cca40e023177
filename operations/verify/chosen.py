"""Which views are compared, and in which generations. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.errors import UnknownName
from cdc.resolve.names import near
from cdc.view import View
from operations.opened import Opened


def holding_any(builds: Mapping[str, Opened], views: Sequence[str]) -> dict[str, Opened]:
    """The generations that hold one of these views at least; all if none is named.

    Args:
        builds: sink -> its generation.
        views: names.

    Raises:
        UnknownName: no generation holds a view of that name.
    """
    if not views:
        return dict(builds)
    there = list(dict.fromkeys(view.name for build in builds.values() for view in build.views))
    for name in views:
        if name not in there:
            choice = f"choose from {', '.join(there)}" if there else ""
            raise UnknownName(f"no sink that is compared has a view {name}", fix=near(name, there) or choice)
    return {sink: build for sink, build in builds.items() if any(view.name in views for view in build.views)}


def holders(builds: Mapping[str, Opened], views: Sequence[str]) -> list[tuple[View, list[Opened]]]:
    """Each different view, with the generations that hold it; `tables: all` may call one as the file does.

    Args:
        builds: sink -> its generation.
        views: only those of these names; all if there are none.
    """
    found: list[tuple[View, list[Opened]]] = []
    for build in builds.values():
        for view in build.views:
            if views and view.name not in views:
                continue
            known = next((holding for same, holding in found if same == view), None)
            if known is None:
                found.append((view, [build]))
            else:
                known.append(build)
    return found
