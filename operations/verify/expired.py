"""Documents of a cache that lets them expire: one that is not there may be right."""

from __future__ import annotations

import time

from cdc.ages import at_least
from cdc.pipeline import RedisSink
from operations.opened import Opened
from operations.state.folder import register_of


def may_have_expired(build: Opened) -> bool:
    """Whether what a generation lacks may have been there for ``ttl_seconds``. Nothing may of one that is younger: what
    is to be shown to readers for the first time is held against all that it must have, unless its fill took so long.

    Args:
        build: the generation.
    """
    part = build.part
    if not isinstance(part, RedisSink) or part.ttl_seconds is None:
        return False
    began = register_of(build.pipeline, build.sink).get(build.number).created_at
    return at_least(began, time.time()) >= part.ttl_seconds
