"""Tables of which every version is kept, because a view shows their rows as they were (``as_of``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdc.catalogue import Catalogue
from cdc.pipeline import Pipeline


def kept_versions(pipeline: Pipeline, catalogue: Catalogue) -> dict[str, list[str]]:
    """``schema.table`` -> names of the views that show its rows as they were.

    Args:
        pipeline: the loaded file; tables that it names and the source does not have are left out.
        catalogue: the captured tables.
    """
    found: dict[str, list[str]] = {}
    for view, model in pipeline.views.items():
        for name in dict.fromkeys(_named(model)):
            same = [table for table in catalogue.tables.values() if name in (table.qualified, table.name)]
            if len(same) == 1:
                found.setdefault(same[0].qualified, []).append(view)
    return found


def _named(part: Any) -> Iterator[str]:
    for ref in part.refs.values():
        if ref.as_of is not None:
            yield ref.table
        yield from _named(ref)
    for child in part.children.values():
        yield from _named(child)
