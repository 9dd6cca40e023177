"""Whose an index is: told in its mapping's ``_meta``, so that nobody writes or removes what another one made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticsearch import Elasticsearch

from sinks.elasticsearch.client import part_of
from sinks.elasticsearch.settings import Settings
from sinks.renamed import former

PIPELINE, SINK = "pipeline", "sink"


def owner(settings: Settings, **part: object) -> dict[str, Any]:
    """What an index says of itself.

    Args:
        settings: the sink's.
        part: what it is in the sink: its view, its generation.
    """
    return {SINK: settings.name, **part, **({PIPELINE: settings.pipeline} if settings.pipeline else {})}


def made_by(client: Elasticsearch, index: str) -> Any:
    """What an index says of itself; None if nothing of ours made it. Raises the client's errors."""
    return told(part_of(client.indices.get_mapping(index=index), index, "mappings"))


def told(mappings: Mapping[str, Any]) -> Any:
    """What an index's mapping says of whose it is; None if nothing of ours made it."""
    return (mappings.get("_meta") or {}).get("headwater")


def is_owner(ours: Mapping[str, Any], theirs: object) -> bool:
    """Whether an index that says ``theirs`` is ours. One made before pipelines were told (2026-11) names none: then the
    rest decides."""
    return isinstance(theirs, Mapping) and not is_of_other(ours, theirs) and _rest(ours) == _rest(theirs)


def is_of_other(ours: Mapping[str, Any], theirs: object) -> bool:
    """Whether an index says that another pipeline has made it, or another sink: by another name it is another one."""
    if not isinstance(theirs, Mapping):
        return False
    return any(name in ours and name in theirs and ours[name] != theirs[name] for name in (PIPELINE, SINK))


def in_words(ours: Mapping[str, Any], theirs: object) -> str:
    """Who has made an index that says ``theirs``."""
    if not isinstance(theirs, Mapping):
        return "someone else"
    told = f"sink {theirs.get(SINK)}"
    if not is_of_other(ours, theirs):
        return f"{told} for view {theirs.get('view')}"
    if PIPELINE not in ours or PIPELINE not in theirs:
        return told
    return f"{told} of {'this pipeline' if ours[PIPELINE] == theirs[PIPELINE] else f'pipeline {theirs[PIPELINE]}'}"


def way_out(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """What to do where an index is another's (``is_of_other``). To delete it is no way: its readers would lose it."""
    apart = "give this sink an `index_prefix:` (or `index:`) that the other does not have, or rename the view"
    if ours.get(PIPELINE) != theirs.get(PIPELINE, ours.get(PIPELINE)):
        return apart
    return f"{former(str(theirs.get(SINK)))}; or {apart}"


def _rest(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name != PIPELINE}
