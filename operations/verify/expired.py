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
    """Whether documents of a generation expire: what it lacks may have been there. Each one's version tells, which
    outlives it by ``fence_seconds``, so it is the same of one that readers do not see yet.

    Args:
        build: the generation.
    """
    return isinstance(build.part, RedisSink) and build.part.ttl_seconds is not None


def versions_may_be_gone(build: Opened) -> bool:
    """Whether a generation is old enough to have had documents whose versions have expired as well.

    Only of the one that readers see. What is to be shown to them is held against all that it must have, however long
    its fill took: an empty one would only have to wait to be equal.

    Args:
        build: the generation.
    """
    part = build.part
    if not isinstance(part, RedisSink) or part.ttl_seconds is None:
        return False
    entry = register_of(build.pipeline, build.sink).get(build.number)
    began, least = entry.created_at or _first_query(build.generation), part.ttl_seconds + part.fence_seconds
    return entry.stage == "living" and began is not None and at_least(began, time.time()) >= least


def _first_query(generation: Generation) -> float | None:
    """When the first query of a generation that is older than its register began: Spark writes a checkpoint's
    ``metadata`` then, and never again. None if nothing tells."""
    found = list[float]()
    for flow in generation.flows():
        with suppress(OSError):
            found.append((generation.checkpoint(flow) / "metadata").stat().st_mtime)
    return min(found, default=None)
