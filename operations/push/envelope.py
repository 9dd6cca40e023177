"""Batches of events for a webhook, cut so that the same batch comes about when it is sent again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from cdc.json_text import elements, members
from operations.push.events import Told
from operations.push.signing import message_id

# Of a body, as it is sent. A snapshot event has a quarter of this; a single event may be larger.
BODY_BYTES = 1 << 20


class Batch(NamedTuple):
    """What one POST holds.

    Attributes:
        events: in order.
        cursor: up to where everything was told once it is taken; None in the middle of a snapshot.
    """

    events: list[Told]
    cursor: str | None

    @property
    def body(self) -> bytes:
        """JSON: a list of events, each as ``tail --json`` prints it."""
        return b"[%b]" % b",".join(map(_framed, self.events))

    def message(self, *about: str) -> str:
        """Its id: follows from its end, so it is the same in every process that sends it again. In a snapshot nobody
        goes on in the middle, and ``about`` says which one it is.
        """
        return message_id(*about, *(one.cursor or one.name for one in self.events))


def batch_of(body: bytes) -> Batch:
    """The batch that a body holds; each event's data as the bytes that they were, so that numbers keep their digits.

    Raises:
        ValueError: it is none of ours.
    """
    events: list[Told] = []
    for one in elements(body.decode()):
        part = members(one)
        if not {"event", "data", "cursor"} <= part.keys():
            raise ValueError("no event")
        events.append(Told(orjson.loads(part["event"]), part["data"].encode(), orjson.loads(part["cursor"])))
    if not events:
        raise ValueError("no events")
    return Batch(events, events[-1].cursor)


def cut(events: Sequence[Told], most: int, end: str | None = None) -> Batch:
    """The next batch.

    Args:
        events: that are to be sent; at least one.
        most: events of a batch that nobody has begun to send.
        end: the cursor at which the batch ended that somebody has begun to send before: wherever it is, for then there
            may have been more events in one.
    """
    ends = (place for place, one in enumerate(events, 1) if end is not None and one.cursor == end)
    count = next(ends, 0) or _fitting(events[:most])
    return Batch(list(events[:count]), events[count - 1].cursor)


def _framed(one: Told) -> bytes:
    framed: bytes = orjson.dumps({"event": one.name, "data": orjson.Fragment(one.data), "cursor": one.cursor})
    return framed


def _fitting(events: Sequence[Told]) -> int:
    size = 1  # of the brackets, less the comma that the first has not
    for count, one in enumerate(events):
        size += len(_framed(one)) + 1
        if size > BODY_BYTES and count:
            return count
    return len(events)
