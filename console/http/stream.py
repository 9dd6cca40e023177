"""A view's changes as server-sent events: the door; what is told comes from ``operations/push``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cdc.errors import HeadwaterError, Refused
from cdc.filters import MAX_CHARS as MAX_FILTER
from console.http.gone import gone
from console.http.reports import Asked
from operations.push import events as told
from operations.push.cursor import MAX_CHARS, RESET
from operations.push.events import Told
from operations.push.lens import Lens
from operations.push.streams import Subscriber

# A reader that takes nothing for so long is told so as soon as it takes something again, and let go: it goes on from
# its cursor. Meanwhile it costs what lies in its socket. One that never does is ended by the kernel (server.py).
SLOW_SECONDS = 20.0
# Each is a slice: a page of documents has megabytes, and takes a slow line longer than that.
SLICE_BYTES = 64 << 10
# How a browser's EventSource comes again.
RETRY = b"retry: 2000\n\n"

router = APIRouter()

From = Annotated[
    str | None, Query(max_length=MAX_CHARS, description="To go on from; as the header, which is stronger.")
]
LastEvent = Annotated[str | None, Header(max_length=MAX_CHARS)]


@router.get("/v1/stream/{view}", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
async def stream(
    request: Request,
    view: str,
    asked: Asked,
    sink: Annotated[str | None, Query(max_length=500, description="Needed where several keep its changes.")] = None,
    filter: Annotated[
        str | None, Query(max_length=MAX_FILTER, description="JMESPath that must be true of a document.")
    ] = None,
    fields: Annotated[str | None, Query(max_length=2_000, description="Only these, with commas between.")] = None,
    start: Annotated[
        Literal["snapshot", "now"],
        Query(alias="from", description="First all documents, or only what comes."),
    ] = "snapshot",
    cursor: From = None,
    last_event_id: LastEvent = None,
) -> Response:
    """Every change of a view's documents as server-sent events, docs/push.md: `change`, `reset`, `snapshot`, `ready`,
    `alive`, `slow`."""
    refuse_unseeing(request)
    streams = request.app.state.streams
    lens = Lens.of(filter, [name for name in (fields or "").split(",") if name])
    place = streams.place(asked.pipeline, view, sink)
    subscriber = streams.subscribe(
        place, told.Changes(lens), last_event_id or cursor or None, documents=start == "snapshot"
    )
    return await begun(subscriber)


def refuse_unseeing(request: Request) -> None:
    """Refuse a token that may not see what rows hold.

    Raises:
        Refused: it may not.
    """
    if request.state.role not in ("operate", "stream"):
        raise Refused("a stream shows what rows hold: this token may not see that", fix="use one that may stream")


async def begun(subscriber: Subscriber) -> Response:
    """The answer that sends a subscriber's events; what is wrong is answered with a status, before anything was sent.

    Raises:
        HeadwaterError: as ``Subscriber.told``.
    """
    events = subscriber.told()
    try:
        first = await anext(events, None)
    except BaseException:
        subscriber.close()
        raise
    return Events(subscriber, first, events)


class Events(Response):
    """Sends a subscriber's events until either side has enough."""

    media_type = "text/event-stream"

    def __init__(
        self, subscriber: Subscriber, first: Sequence[Told] | str | None, events: AsyncIterator[Sequence[Told] | str]
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"}, media_type=self.media_type)
        del self.headers["content-length"]
        self._subscriber, self._first, self._events = subscriber, first, events
        self._cursor: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        watching = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            body = RETRY + (b"" if self._first is None else self._body(self._first))
            await self._send(send, body)
            with suppress(HeadwaterError):  # it comes again, and is answered with a status
                async for found in self._events:
                    if not await self._send(send, self._body(found)):
                        await self._send(send, _event(told.slow(self._cursor, SLOW_SECONDS)))
                        break
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()
            self._subscriber.close()

    async def _watch(self, receive: Receive) -> None:
        await gone(receive)
        self._subscriber.leave()

    async def _send(self, send: Send, body: bytes) -> bool:
        """Whether each slice of it went out in time; the others go out too, as within an event nothing can be told."""
        longest = 0.0
        for start in range(0, len(body), SLICE_BYTES):
            began = time.monotonic()
            await send({"type": "http.response.body", "body": body[start : start + SLICE_BYTES], "more_body": True})
            longest = max(longest, time.monotonic() - began)
        return longest < SLOW_SECONDS

    def _body(self, found: Sequence[Told] | str) -> bytes:
        if isinstance(found, str):
            self._cursor = found
            return _event(told.alive(found))
        last = found[-1].cursor if found else None
        if last is not None or any(one.name == "reset" for one in found):
            self._cursor = last
        return _shared_body(found) if isinstance(found, tuple) else _body(found)


def _body(events: Sequence[Told]) -> bytes:
    return b"".join(map(_event, events))


# What thousands are told at one time is put into words once.
_shared_body = lru_cache(maxsize=8)(_body)


def _event(one: Told) -> bytes:
    id_ = RESET if one.name == "reset" else one.cursor
    marked = b"" if id_ is None else b"id: %s\n" % id_.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (marked, one.name.encode(), one.data)
