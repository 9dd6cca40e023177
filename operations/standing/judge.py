"""What enters, changes and leaves: from what was known of documents, and what they are found to match now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import orjson

from sinks.redis.stream.matches import Event, Kept

Op = Literal["entered", "changed", "left"]
# Why something is told.
CHANGE, QUERY = "change", "query"
NOTHING: frozenset[str] = frozenset()


class Looked(NamedTuple):
    """One look at a document.

    Attributes:
        key, version: of the document.
        document: as it was found; None for one that is gone.
        matches: the queries that it matches, of those that were asked.
        asked: the queries that were asked; None for all that there are. What is known of others stays.
        fresh: it is a new version; else a document as it stands, which may be known already.
        cause: why it is looked at.
    """

    key: str
    version: int
    document: bytes | None
    matches: frozenset[str]
    asked: frozenset[str] | None = None
    fresh: bool = True
    cause: str = CHANGE


def judged(known: Kept | None, looked: Looked) -> tuple[Kept | None, dict[str, Op]]:
    """What is known of a document after a look at it, and what has become of it under each query."""
    was = NOTHING if known is None else known.names
    if looked.document is None:
        now = NOTHING
    elif looked.asked is None:
        now = looked.matches
    else:
        now = (was - looked.asked) | looked.matches
    ops: dict[str, Op] = dict.fromkeys(was - now, "left")
    ops |= dict.fromkeys(now - was, "entered")
    if looked.fresh or known is None or known.version != looked.version:
        ops |= dict.fromkeys(now & was, "changed")
    return (Kept(looked.version, now) if now else None), ops


def fold(known: Mapping[str, Kept], looks: Iterable[Looked]) -> tuple[dict[str, Kept | None], list[Event]]:
    """Looks in their order: what is known otherwise afterwards (None: nothing is matched), and what is told.

    Args:
        known: what was known of the documents that are looked at; those that match nothing are left out.
        looks: of one document in the order of its versions.
    """
    now: dict[str, Kept | None] = dict(known)
    events: list[Event] = []
    for looked in looks:
        before = now.get(looked.key)
        after, ops = judged(before, looked)
        now[looked.key] = after
        if ops:
            told = orjson.dumps(ops, option=orjson.OPT_SORT_KEYS)
            events.append(Event(looked.key, looked.version, looked.document, told, looked.cause))
    return {key: kept for key, kept in now.items() if kept != known.get(key)}, events
