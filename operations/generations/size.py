"""About what a generation takes on its servers: what a second one beside it will, for ``headwater plan``."""

from __future__ import annotations

from typing import Any

from cdc.errors import HeadwaterError
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline
from operations.opened import Opened
from sinks.configure import plain_config
from sinks.factory import open_target
from sinks.rowstore.redis import RedisRowStore

# `plan` must not wait for a server that is away.
GIVE_UP_SECONDS = 3.0


def size_of(build: Opened) -> dict[str, int | None]:
    """How many bytes a generation holds, estimated from a part of it.

    Args:
        build: the generation.

    Returns:
        ``bytes`` in its sink, ``row_store_bytes`` of its joined views; None where a server does not tell.
    """
    return {"bytes": _in_sink(build.pipeline, build), "row_store_bytes": _in_row_store(build)}


def _in_sink(pipeline: Pipeline, build: Opened) -> int | None:
    views = [view.name for view in build.views]
    try:
        target = open_target(plain_config(pipeline, build.sink, build.number, views))
        try:
            return sum(target.size(view) for view in views)
        finally:
            target.close()
    except HeadwaterError:
        return None


def _in_row_store(build: Opened) -> int | None:
    found = 0
    patience: dict[str, Any] = {"give_up_seconds": GIVE_UP_SECONDS}
    try:
        for view in build.views:
            if isinstance(view, JoinedView):
                store = RedisRowStore(build.row_store(view, **patience))
                try:
                    found += store.size()
                finally:
                    store.close()
    except HeadwaterError:
        return None
    return found
