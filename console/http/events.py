"""What moves, as server-sent events: an event whenever there is something new to ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from console.http.pages.asking import Shown
from console.http.served import Served

# Between two looks whether there is news. After a silence a comment is sent, so that a peer that is gone is noticed.
LOOK_SECONDS, QUIET_SECONDS = 0.25, 10.0

router = APIRouter()


@router.get("/v1/events")
async def events(request: Request, asked: Shown) -> StreamingResponse:
    """`seen` with the number of the look, whenever the server has looked at the pipeline: ask `/v1/overview` then."""
    return StreamingResponse(
        _events(request, asked), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _events(request: Request, asked: Served) -> AsyncIterator[str]:
    told, quiet = -1, 0.0
    yield "retry: 2000\n\n"
    while not request.app.state.leaving() and not await request.is_disconnected():
        number = asked.watching.number
        if number != told:
            told, quiet = number, 0.0
            yield f"event: seen\ndata: {number}\n\n"
        elif quiet >= QUIET_SECONDS:
            quiet = 0.0
            yield ": nothing new\n\n"
        await asyncio.sleep(LOOK_SECONDS)
        quiet += LOOK_SECONDS
