"""Deletes that stay deleted.

Elasticsearch keeps a deleted document's version for ``index.gc_deletes`` and forgets it at a restart; after that an
older write of the same key would bring the document back. So every delete first leaves a fence, a tiny document in a
hidden index whose own external version is the delete's version, and an upsert that could be older than a delete is
checked against the fences first.

Looking up every key of every batch would be dear, so the highest fence of all is kept under one id (its version is the
value): an upsert above it can't be older than any delete. During a first load that is every upsert, and the price is
one small GET a batch.

The order makes it safe: fence, then delete; and between a check and its write a delete by someone else is still in
Elasticsearch's own memory (``gc_deletes`` is an hour).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import Answer, Item
from sinks.elasticsearch.bulk import Bulk, Line, encode
from sinks.elasticsearch.client import each_document, part_of
from sinks.elasticsearch.settings import Target
from sinks.retry import Patience

log = logging.getLogger(__name__)

HIGHEST = "highest"
# Its version says of which stretch of time somebody has begun the purge.
PURGED = "purged"
KEY_PREFIX = "."  # keeps these two apart from every key
MGET_COUNT = 5000

PROPERTIES: dict[str, Any] = {"at": {"type": "date", "format": "epoch_millis"}}


def _at_once(_seconds: float) -> bool:
    """The default pause: none."""
    return False


class Fences:
    """The fences of one sink's targets."""

    def __init__(self, client: Elasticsearch, bulk: Bulk, who: str) -> None:
        self._client, self._bulk, self._who = client, bulk, who

    def raise_for(self, target: Target, deletes: Sequence[Item], patience: Patience) -> None:
        """Leave a fence for every delete; returns when all are durable.

        Raises:
            SinkUnavailable, SinkRefused: as ``Bulk.send``.
        """
        note = b'{"at":%d}' % int(time.time() * 1000)
        highest = max(item.version for item in deletes)
        marks = [Item(KEY_PREFIX + item.key, item.version, note) for item in deletes]
        marks.append(Item(HIGHEST, highest, note))
        failed: list[str] = []
        lines: list[Line] = [encode(place, mark) for place, mark in enumerate(marks)]
        self._bulk.send(target.fence_writer, lines, patience, partial(_note, failed))
        if failed:
            raise SinkRefused(
                f"{self._who}: a delete's fence was refused: {failed[0]}",
                means="the delete was not carried out, because without a fence an older write could undo it",
                fix=f"is the index {target.fences} as setup made it?",
            )

    def above(self, target: Target, upserts: Sequence[Item]) -> dict[str, int]:
        """Fences that may be above ``upserts``: key -> version of its newest delete; a key without one is left out.

        Raises:
            ApiError, TransportError: for the caller to translate or retry.
        """
        highest = self.highest(target)
        return self.of(target, [item.key for item in upserts if item.version < highest], target.fence_writer)

    def of(self, target: Target, keys: Sequence[str], index: str) -> dict[str, int]:
        """The fences of keys: key -> version of its newest delete; a key without one is left out.

        Args:
            target: whose.
            keys: of documents.
            index: the fences' index, or its alias for writing.

        Raises:
            ApiError, TransportError: for the caller to translate or retry.
            SinkRefused: the fences are gone.
        """
        found: dict[str, int] = {}
        for start in range(0, len(keys), MGET_COUNT):
            part = keys[start : start + MGET_COUNT]
            answer = self._client.mget(
                index=index,
                ids=[KEY_PREFIX + key for key in part],
                filter_path="docs._version,docs._id,docs.error",
                source=False,
            )
            for key, doc in zip(part, each_document(answer), strict=True):
                if "error" in doc:
                    raise missing(self._who, target)
                if "_version" in doc:
                    found[key] = doc["_version"]
        return found

    def highest(self, target: Target) -> int:
        """The highest version of any delete so far; -1 when there was none.

        Raises:
            ApiError, TransportError: for the caller to translate or retry.
            SinkRefused: the fences are gone.
        """
        answer = self._client.options(ignore_status=404).get(index=target.fence_writer, id=HIGHEST, source=False)
        if answer.meta.status == 404 and "found" not in answer.body:
            raise missing(self._who, target)
        version: int = answer.body.get("_version", -1) if part_of(answer, "found") else -1
        return version

    def take_turn(self, target: Target, every_seconds: float) -> bool:
        """Whether nobody else has begun the purge of the present stretch of so many seconds; now it is ours.

        Raises:
            ApiError, TransportError: for the caller to translate or leave.
        """
        answer = self._client.options(ignore_status=409).index(
            index=target.fence_writer,
            id=PURGED,
            document={"at": int(time.time() * 1000)},
            version=int(time.time() // every_seconds),
            version_type="external",
            require_alias=True,
        )
        return answer.meta.status != 409

    def purge(
        self, target: Target, older_than_seconds: int, patience: Patience, pause: Callable[[float], bool] = _at_once
    ) -> int:
        """Forget fences that are too old to matter: nothing older than the log's own tombstones can be replayed.

        Args:
            target: whose.
            older_than_seconds: how old.
            patience: of each request.
            pause: called with the seconds that a page took, before the next one; where it is true, there is none.

        Returns how many were removed.
        """
        before = int((time.time() - older_than_seconds) * 1000)
        ours = {"ids": {"values": [HIGHEST, PURGED]}}
        old = {"bool": {"filter": {"range": {"at": {"lt": before}}}, "must_not": ours}}
        purged = 0
        while True:
            began = time.monotonic()
            self._client.indices.refresh(index=target.fence_writer)
            answer = self._client.search(
                index=target.fence_writer, query=old, size=MGET_COUNT, version=True, source=False
            )
            hits = part_of(answer, "hits", "hits")
            if not hits:
                return purged
            lines = [encode(place, Item(hit["_id"], hit["_version"], None)) for place, hit in enumerate(hits)]
            left: list[str] = []
            self._bulk.send(target.fence_writer, lines, patience, partial(_note, left))
            purged += len(hits) - len(left)
            if left:  # the next page would have them again, for ever
                log.warning("old fences of %s can't be removed: %s", target.concrete, left[0])
                return purged
            if pause(time.monotonic() - began):
                return purged


def _note(reasons: list[str], _place: int, answer: Answer) -> None:
    """Why an item was rejected, if it was."""
    if answer.reason:
        reasons.append(answer.reason)


def missing(who: str, target: Target) -> SinkRefused:
    """The fence index is gone."""
    return SinkRefused(
        f"{who}: the index {target.fences} is gone",
        means="it remembers which documents were deleted; without it a replay could bring them back",
        fix="`headwater rebuild FILE SINK --auto`: the deletes after a snapshot was made are not in it",
    )
