"""Bulk requests: encoded by hand, cut by bytes and count, every item answered.

A bulk request answers 200 while some of its items failed, so success is read item by item and only the items that the
server could not take *now* are sent again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson
from elastic_transport import TransportError
from elasticsearch import ApiError, Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import STALE, WRITTEN, Answer, Item, rejected
from sinks.elasticsearch.client import CLOSED, NO_INDEX, PASSING, is_passing, part_of, reason_of, refused
from sinks.elasticsearch.settings import Address
from sinks.retry import Patience

# Only what an answer needs; without it the server repeats index, id, shards and sequence numbers for every item.
FILTER = "errors,ingest_took,items.*.status,items.*.result"
FILTER += ",items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
# The server quotes the whole value, which may be megabytes, before it says what is wrong with it.
PREVIEW = re.compile(r"(?<=Preview of field's value: ').{200,}(?=')", re.DOTALL)
# How long the server itself waits for a shard to become active (it default is 1 min, longer than our own timeout).
SHARD_TIMEOUT = "20s"
# Programming errors that a document can trip over in the server. After this many of them in a row it is called poison.
# Any other 500 (a failing disk, a closing node) is the server's trouble and holds the batch: whole batches must not be
# called poison because a disk was full.
POISON_KINDS = frozenset(
    f"{name}_exception"
    for name in (
        *("null_pointer", "class_cast", "index_out_of_bounds", "array_index_out_of_bounds", "negative_array_size"),
        *("string_index_out_of_bounds", "arithmetic", "number_format", "unsupported_operation", "illegal_state"),
    )
) | {"stack_overflow_error"}
POISON_TRIES = 8
# The last item of a request that has nothing but deletes. A delete knows no ``require_alias``, and one with an external
# version makes the index that it does not find; but the server makes none that any item of its request requires to be
# an alias. This one changes nothing: not the document that is there, and it makes none.
GUARD = b'{"update":{"_id":"headwater"}}\n{"doc":{}}\n'
# What every item is told where the alias leads to several indices of which none is to be written to.
NO_WRITE_INDEX = "no write index is defined for alias"
# "…[coordinating_operation_bytes=60000000, max_coordinating_bytes=53687091]". OpenSearch and older Elasticsearch have
# one limit for both kinds of operation. OpenSearch that watches shards tells of the node, too; a shard's limit grows.
PRESSURE = re.compile(
    r"(?:coordinating|primary|node)_operation_bytes=(\d+), "
    r"(?:node_)?max_(?:coordinating|primary|coordinating_and_primary)_bytes=(\d+)"
)

Deliver = Callable[[int, Answer], None]


class Line(NamedTuple):
    """One encoded item: its place in the caller's list, and its action (and document) lines."""

    place: int
    data: bytes


def _short(value: re.Match[str]) -> str:
    return f"{value[0][:80]}…"


def encode(place: int, item: Item, address: Address | None = None) -> Line:
    """An item as bulk lines with an external version.

    ``external_gte`` takes an equal version again: a repeated batch must be able to finish what it began.

    Args:
        place: in the caller's list.
        item: the item.
        address: where it goes; its key is its id if there is none.
    """
    identity, routing = address or (item.key, None)
    routed = b"" if routing is None else b'"routing":%b,' % orjson.dumps(routing)
    head = b'{"_id":%b,%b"version":%d,"version_type":"external_gte"}}\n' % (
        orjson.dumps(identity),
        routed,
        item.version,
    )
    if item.document is None:
        return Line(place, b'{"delete":' + head)
    document = item.document
    if b"\n" in document or b"\r" in document:
        # A raw line break in valid JSON is white space between tokens (Postgres keeps those of a json column), but
        # here it would end the item and break the whole request.
        document = document.replace(b"\n", b" ").replace(b"\r", b" ")
    return Line(place, b'{"index":%b%b\n' % (head, document))


def chunks(lines: Sequence[Line], max_bytes: int, max_count: int) -> Iterator[list[Line]]:
    """Cut into requests; a single line over ``max_bytes`` gets a request of its own."""
    chunk: list[Line] = []
    size = 0
    for line in lines:
        if chunk and (size + len(line.data) > max_bytes or len(chunk) >= max_count):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line.data)
    if chunk:
        yield chunk


def never_fits(reason: str) -> bool:
    """Whether what was sent is more than a server ever has room for at once, whatever else it does. Pure.

    Args:
        reason: the server's, of a request or an item of it.
    """
    found = PRESSURE.search(reason)
    return found is not None and int(found[1]) > int(found[2])


def judge(result: dict[str, Any], tries: int, *, alone: bool = False) -> Answer | str:
    """One item's result: an answer, or (a string) the reason to try it again.

    Args:
        result: what the server says about the item.
        tries: how often in a row this item has failed with a 500, this time included.
        alone: it was the only one of its request. What a shard is sent is measured as a whole: among others an item
            need not be the one that is too large.

    Raises:
        SinkRefused: the index or its write alias is gone, the alias leads to several, or rights are missing: no item
            can be written.
    """
    status: int = result["status"]
    error = result.get("error")
    if error is None and result.get("result") == "noop":
        # No plain write or delete ends so, but for one that a `drop` of an ingest pipeline has swallowed.
        return rejected("an ingest pipeline has dropped it (see index.default_pipeline and index.final_pipeline)")
    if error is None and (status < 300 or status == 404):
        return WRITTEN  # 404 without an error: a delete of what was not there
    kind = str((error or {}).get("type"))
    reason = f"{status} {kind}: {PREVIEW.sub(_short, str((error or {}).get('reason')))}"
    cause = ((error or {}).get("caused_by") or {}).get("reason")
    if cause:
        reason += f" ({cause})"
    if kind == "version_conflict_engine_exception":
        return STALE
    if kind in (NO_INDEX, CLOSED):
        raise SinkRefused(
            f"the index to write to is gone or closed: {reason}",
            means="someone deleted or closed it while the sink was running; nothing is written to an unmapped index",
            fix="reopen it if it was closed; else `headwater rebuild FILE SINK --auto`: what came after a snapshot was"
            " made is not in it, and is not read again",
        )
    if NO_WRITE_INDEX in reason:
        raise SinkRefused(
            f"the alias to write by leads to several indices: {reason}",
            means="somebody has given it to another index, as restoring one under another name does; nothing was "
            "written since",
            fix="take it from the other index, then start `headwater run FILE` again",
        )
    if kind in ("security_exception",):
        raise SinkRefused(f"no right to write: {reason}", fix="give this sink's user the index privilege 'write'")
    poison = status == 500 and kind in POISON_KINDS and tries >= POISON_TRIES
    if poison or (alone and never_fits(reason)):
        return rejected(reason)
    # 404 with another error than above: a shard that moves, starts or is closed just now. No document earns that.
    if status in PASSING or status == 404 or kind == "cluster_block_exception":
        return reason
    return rejected(reason)


def heed(guard: dict[str, Any]) -> None:
    """What is said of ``GUARD``: where an index stands in the alias's place, the deletes before it have gone through.

    It is asked for nothing else: whatever befalls the document that is not there, there is an alias.

    Raises:
        SinkRefused: as ``judge``: there is none, or its index is closed.
    """
    if (guard.get("error") or {}).get("type") in (NO_INDEX, CLOSED):
        judge(guard, 0)


def operations(lines: Sequence[Line]) -> bytes:
    """Lines as one request, which is refused if what it is written to is no alias."""
    data = [line.data for line in lines]
    return b"".join([*data, GUARD] if all(one.startswith(b'{"delete":') for one in data) else data)


class Bulk:
    """Sends chunks of one sink. Holds no state, so several threads may call ``send``."""

    def __init__(self, client: Elasticsearch, who: str) -> None:
        self._client, self._who = client, who

    def send(self, index: str, lines: list[Line], patience: Patience, deliver: Deliver) -> None:
        """Deliver an answer for each line, however long that takes.

        Raises:
            SinkUnavailable: the patience ran out.
            SinkRefused: final for the whole request.
        """
        internal: Counter[int] = Counter()
        while lines:
            try:
                answer = self._client.bulk(
                    index=index,
                    operations=operations(lines),  # type: ignore[arg-type]
                    require_alias=True,
                    filter_path=FILTER,
                    timeout=SHARD_TIMEOUT,
                )
                body, failed = answer.body, part_of(answer, "errors")
            except (ApiError, TransportError) as error:
                if self._split(error, index, lines, patience, deliver):
                    return
                patience.hold(f"{self._who}: {reason_of(error)}")
                continue
            if not failed and "ingest_took" not in body:
                for line in lines:
                    deliver(line.place, WRITTEN)
                patience.progress()
                return
            results = body["items"]
            for guard in results[len(lines) :]:
                heed(next(iter(guard.values())))
            lines, too_many = self._settle(lines, results[: len(lines)], internal, patience, deliver)
            if too_many:
                return self._halve(index, lines, patience, deliver)

    def _settle(
        self,
        lines: list[Line],
        results: list[dict[str, Any]],
        internal: Counter[int],
        patience: Patience,
        deliver: Deliver,
    ) -> tuple[list[Line], bool]:
        """Deliver what is decided; wait and return what is not, and whether it has to be sent in smaller requests (then
        there is nothing to wait for). ``internal`` counts each place's 500s in a row."""
        again: list[Line] = []
        why, alone, too_many = "", len(lines) == 1, False
        for line, result in zip(lines, results, strict=True):
            verdict = next(iter(result.values()))
            internal[line.place] = internal[line.place] + 1 if verdict["status"] == 500 else 0
            answer = judge(verdict, internal[line.place], alone=alone)
            if isinstance(answer, str):
                again.append(line)
                why = answer
                too_many = too_many or (not alone and never_fits(answer))
            else:
                deliver(line.place, answer)
        if again:
            if len(again) < len(lines):
                patience.progress()
            if not too_many:
                patience.hold(f"{self._who}: {len(again)} of {len(lines)} items: {why}")
        return again, too_many

    def _split(self, error: Exception, index: str, lines: list[Line], patience: Patience, deliver: Deliver) -> bool:
        """Deal with a request that failed as a whole: True when it was dealt with, False to wait and repeat it."""
        status = error.meta.status if isinstance(error, ApiError) else None
        reason = reason_of(error)
        if status in (400, 413) or never_fits(reason):
            if len(lines) == 1:
                deliver(lines[0].place, rejected(reason))
                return True
        elif is_passing(error):
            if status != 429 or len(lines) == 1:
                return False
            patience.hold(f"{self._who}: {reason}")  # an overloaded server digests smaller requests
        elif status == 404:
            judge({"status": 404, "error": {"type": NO_INDEX, "reason": reason}}, 0)
        else:
            raise refused(f"{self._who}: {reason}", error) from error
        self._halve(index, lines, patience, deliver)
        return True

    def _halve(self, index: str, lines: list[Line], patience: Patience, deliver: Deliver) -> None:
        middle = len(lines) // 2
        self.send(index, lines[:middle], patience, deliver)
        self.send(index, lines[middle:], patience, deliver)
