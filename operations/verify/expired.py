"""Documents of a cache that lets them expire: one that is not there may be right."""

from __future__ import annotations

import time
from contextlib import suppress

from cdc.ages import at_least
from cdc.pipeline import RedisSink
from operations.opened import Opened
from operations.state.folder import register_of
from spark.disk.state import Generation


def may_have_expired(build: Opened) -> bool:
    """Whether what a generation lacks may have been there for ``ttl_seconds``.

    Only of the one that readers see. What is to be shown to them is held against all that it must have, however long
    its fill took: an empty one would only have to wait to be equal.

    Args:
        build: the generation.
    """
    part = build.part
    if not isinstance(part, RedisSink) or part.ttl_seconds is None:
        return False
    entry = register_of(build.pipeline, build.sink).get(build.number)
    began = entry.created_at or _first_query(build.generation)
    return entry.stage == "living" and began is not None and at_least(began, time.time()) >= part.ttl_seconds


def _first_query(generation: Generation) -> float | None:
    """When the first query of a generation that is older than its register began: Spark writes a checkpoint's
    ``metadata`` then, and never again. None if nothing tells."""
    found = list[float]()
    for flow in generation.flows():
        with suppress(OSError):
            found.append((generation.checkpoint(flow) / "metadata").stat().st_mtime)
    return min(found, default=None)
