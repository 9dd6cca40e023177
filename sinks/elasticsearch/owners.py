"""Whose an index is: told in its mapping's ``_meta``, so that nobody writes or removes what another one made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinks.elasticsearch.settings import Settings

PIPELINE = "pipeline"


def owner(settings: Settings, **part: object) -> dict[str, Any]:
    """What an index says of itself.

    Args:
        settings: the sink's.
        part: what it is in the sink: its view, its generation.
    """
    return {"sink": settings.name, **part, **({PIPELINE: settings.pipeline} if settings.pipeline else {})}


def is_owner(ours: Mapping[str, Any], theirs: object) -> bool:
    """Whether an index that says ``theirs`` is ours. One made before pipelines were told (2026-11) names none: then the
    rest decides."""
    if not isinstance(theirs, Mapping):
        return False
    known = PIPELINE in ours and PIPELINE in theirs
    return _rest(ours) == _rest(theirs) and (not known or ours[PIPELINE] == theirs[PIPELINE])


def is_of_other(settings: Settings, theirs: object) -> bool:
    """Whether an index says that another pipeline has made it."""
    return (
        isinstance(theirs, Mapping)
        and bool(settings.pipeline)
        and theirs.get(PIPELINE, "")
        not in (
            "",
            settings.pipeline,
        )
    )


def _rest(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name != PIPELINE}
